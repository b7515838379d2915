"""Rules: the functions of dodo.py that say, for an image, a target or the library, what one step does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kiln.engine.step import Step
from kiln.errors import KilnError
from kiln.library import Library

_PATTERN = re.compile(r"[a-z]+(:(<image>|<target>|[a-z]+))?")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A task name with at most one placeholder, and the function that makes its step."""

    pattern: str
    """`compile:<image>`, `archive:<target>`, `header:c` or `crate`"""
    function: Callable[..., Step]

    @property
    def kind(self) -> str:
        """`compile` of `compile:<image>`: the group that all of the rule's tasks belong to"""
        return self.pattern.partition(":")[0]

    @property
    def doc(self) -> str:
        """The function's first docstring line."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def steps(self, library: Library) -> Iterator[tuple[str, Callable[[], Step]]]:
        """Task name -> how to make its step, in order of declaration; nothing is made yet."""
        if self.pattern.endswith("<image>"):
            for image in library.manifest.images:
                yield f"{self.kind}:{image.id}", partial(self.function, library, image)
        elif self.pattern.endswith("<target>"):
            for target in library.manifest.targets:
                yield f"{self.kind}:{target}", partial(self.function, library, target)
        else:
            yield self.pattern, partial(self.function, library)


def rule(pattern: str) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Make a function of dodo.py the rule for the tasks that `pattern` names.

    With `<image>` in the pattern there is a task for each image, and the function takes (library, image); with
    `<target>` one for each target and (library, target); otherwise one task and (library). It returns a Step.
    """
    if not _PATTERN.fullmatch(pattern):
        raise KilnError(
            f"{pattern!r} is no pattern for a rule",
            expected="a word, and after a colon <image>, <target> or a word: `compile:<image>`, `header:c`",
            actual=pattern,
        )

    def mark(function: Callable[..., Step]) -> Callable[..., Step]:
        function.kiln_rule = pattern  # type: ignore[attr-defined]  # how the loader finds it in dodo.py's namespace
        return function

    return mark


def collect(namespace: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a loaded dodo.py, in the order in which they stand there."""
    functions = [value for value in namespace.values() if hasattr(value, "kiln_rule")]
    functions.sort(key=lambda function: function.__code__.co_firstlineno)
    return tuple(Rule(pattern=function.kiln_rule, function=function) for function in functions)
