"""Rules: the functions of dodo.py that say, for an image, a target or the library, what one step does."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from kiln.closure.digest import canonical
from kiln.digests import digest_json
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
                yield f"{self.kind}:{image.id}", partial(self._make, library, image)
        elif self.pattern.endswith("<target>"):
            for target in library.manifest.targets:
                yield f"{self.kind}:{target}", partial(self._make, library, target)
        else:
            yield self.pattern, partial(self._make, library)

    def _make(self, library: Library, *subject: Any) -> Step:
        """The step, with the rule itself among its inputs: an edit of the rule is an edit of what it makes."""
        step = self.function(library, *subject)
        return replace(step, inputs=lambda: {**step.inputs(), "rule": self.digest})

    @cached_property
    def digest(self) -> str:
        """Of the rule's function and of what else of its file it uses; comments and other rules do not count."""
        statements = _statements(Path(self.function.__code__.co_filename))
        pending, used = [self.function.__name__], dict[str, str]()
        while pending:
            name = pending.pop()
            if name in statements and name not in used:
                node = statements[name]
                used[name] = "".join(canonical(node))
                pending += [found.id for found in ast.walk(node) if isinstance(found, ast.Name)]
        return digest_json(used)


@cache
def _statements(path: Path) -> dict[str, ast.stmt]:
    """Name -> the statement at the top of a file that binds it."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0]: node for alias in node.names}
    return found


def rule(pattern: str) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Make a function of dodo.py the rule for the tasks that `pattern` names.

    With `<image>` in the pattern there is a task for each image, and the function takes (library, image); with
    `<target>` one for each target and (library, target); otherwise one task and (library). It returns a Step.
    """
    if "doit.cmd_base" in sys.modules and "kiln.doit_plugin.loader" not in sys.modules:
        # doit's own loader would find no task in the file, and end well without having done anything.
        from doit.exceptions import InvalidDodoFile

        error = KilnError(
            "doit runs without Kiln's loader, which this dodo.py is written for",
            expected="the settings of the project's doit.cfg or pyproject.toml; doit reads those of the current folder",
            remedy="run doit in the project's own folder",
        )
        raise InvalidDodoFile(str(error))
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
