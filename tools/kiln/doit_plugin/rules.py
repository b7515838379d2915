"""Rules: the functions of dodo.py that say, for an image, a target or the library, what one step does."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kiln
from kiln import files
from kiln.digests import digest_json
from kiln.engine.step import Found, Step, Text, kind_of
from kiln.errors import KilnError

if TYPE_CHECKING:
    # A build that has nothing to do makes no steps: it starts in half the time without what they are made with.
    from kiln.library import Library
    from kiln.manifest.model import Image, Manifest

_PATTERN = re.compile(r"[a-z]+(:(<image>|<target>|<bundle>|[a-z]+))?")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A task name with at most one placeholder, and the function that makes its step."""

    pattern: str
    """`compile:<image>`, `archive:<target>`, `bundle:<bundle>`, `header:c` or `crate`"""
    function: Callable[..., Step]
    when: Callable[[Manifest], bool] | None = None
    """whether a manifest asks for what it makes; None: each does"""
    default: bool = True
    """whether a build that names nothing makes it"""
    before: Callable[[Library], None] | None = None
    """what is asked before anything is built for a selection that needs it; it raises KilnError to refuse"""

    @property
    def kind(self) -> str:
        """`compile` of `compile:<image>`: the group that all of the rule's tasks belong to"""
        return kind_of(self.pattern)

    @property
    def doc(self) -> str:
        """The function's first docstring line."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def applies(self, manifest: Manifest) -> bool:
        """Whether it has steps for the manifest."""
        return self.when is None or self.when(manifest)

    def steps(self, library: Library) -> Iterator[tuple[str, Callable[[], Step]]]:
        """Task name -> how to make its step, in order of declaration; nothing is made yet."""
        if not self.applies(library.manifest):
            return
        if self.pattern.endswith("<image>"):
            for image in library.manifest.images:
                owner = image.variant.kernel.key
                yield f"{self.kind}:{image.id}", partial(self._make, library, owner, image)
            return
        for name, subject in self.shared(library.manifest):
            yield name, partial(self._make, library, files.FOR_ALL, *subject)

    def shared(self, manifest: Manifest) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Task name -> what it is for beside the library, of steps that stand for many images: a target, a variant."""
        if self.pattern.endswith("<target>"):
            yield from ((f"{self.kind}:{target}", (target,)) for target in manifest.targets)
        elif self.pattern.endswith("<bundle>"):
            # Imported where there are any: most libraries have none.
            from kiln.packaging.inventory import inventory_of

            yield from ((f"{self.kind}:{variant}", (variant,)) for variant, _ in inventory_of(manifest.images).bundles)
        elif not self.pattern.endswith("<image>"):
            yield self.pattern, ()

    def _make(self, library: Library, owner: str, *subject: Any) -> Step:
        """The step, with the rule itself among its inputs: an edit of the rule is an edit of what it makes.

        What its inputs are read off is noted for the `owner`.
        """
        with files.asked_by(owner):
            step = self.function(library, *subject)

        def inputs() -> Mapping[str, str]:
            with files.asked_by(owner):
                return {**step.inputs(), "rule": self.digest}

        def found(names: Found) -> Mapping[str, str]:
            with files.asked_by(owner):
                return step.found(names)

        def text(name: str, digest: str, names: Found) -> Text | None:
            if name == "rule":
                return self._text()
            with files.asked_by(owner):
                own = step.text(name, digest, names)
                images = self._images(library, subject)
                return own if own is not None else _library_text(library, images, step.after, name, digest, names)

        return replace(step, inputs=inputs, found=found, text=text)

    def _images(self, library: Library, subject: Sequence[Any]) -> Sequence[Image]:
        """What a step of the rule is made of."""
        if self.pattern.endswith("<image>"):
            return subject
        if self.pattern.endswith("<target>"):
            return library.images_for(subject[0])
        return library.bundles[subject[0]] if self.pattern.endswith("<bundle>") else library.images

    def _text(self) -> Text:
        """The function, with what else of its file it uses."""
        file, name = self.place
        with files.asked_by(files.FOR_ALL):
            lines = files.read(Path(file)).decode("utf-8", "replace").splitlines(keepends=True)
        numbers: set[int] = set()
        for used in _used(Path(file), name):
            node = _statements(Path(file))[used]
            decorators = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
            numbers |= set(range(min([node.lineno, *decorators]), (node.end_lineno or node.lineno) + 1))
        return Text(body="".join(lines[number - 1] for number in sorted(numbers)), place=file, lines=sorted(numbers))

    @property
    def place(self) -> tuple[str, str]:
        """The file of the function, and its name there."""
        return self.function.__code__.co_filename, self.function.__name__

    @cached_property
    def digest(self) -> str:
        """Of the rule's function and of what else of its file it uses; comments and other rules do not count."""
        file, name = self.place
        return _digest(Path(file), name)


def trusted_patterns(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The patterns of rules that are Kiln's own, word for word: what others read nobody can know."""
    ours = {pattern: _digest(_GRAPH, name) for pattern, name in _kiln_rules().items()}
    return tuple(rule.pattern for rule in rules if rule.digest == ours.get(rule.pattern))


_GRAPH = Path(kiln.__file__).parent / "graph.py"


@cache
def _kiln_rules() -> Mapping[str, str]:
    """pattern -> function, of the rules of `kiln.graph`"""
    found: dict[str, str] = {}
    for name, node in _statements(_GRAPH).items():
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(decorator, ast.Call) and isinstance(decorator.args[0], ast.Constant):
                found[str(decorator.args[0].value)] = name
    return found


@cache
def _digest(path: Path, function: str) -> str:
    from kiln.closure.digest import canonical

    statements = _statements(path)
    return digest_json({name: "".join(canonical(statements[name])) for name in _used(path, function)})


def _used(path: Path, function: str) -> list[str]:
    """The names at the top of a file that a function of it uses, itself first."""
    statements = _statements(path)
    pending, used = [function], list[str]()
    while pending:
        name = pending.pop()
        if name in statements and name not in used:
            used.append(name)
            pending += [found.id for found in ast.walk(statements[name]) if isinstance(found, ast.Name)]
    return used


def _library_text(
    library: Library, images: Sequence[Image], after: Sequence[str], name: str, digest: str, found: Found
) -> Text | None:
    """What Kiln knows of an input of a rule's step, which is made of some images."""
    from kiln.input_texts import input_text

    return input_text(library, images, after, name, digest, found)


@cache
def _statements(path: Path) -> dict[str, ast.stmt]:
    """Name -> the statement at the top of a file that binds it."""
    found: dict[str, ast.stmt] = {}
    with files.asked_by(files.FOR_ALL):
        content = files.read(path)
    for node in ast.parse(content).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0]: node for alias in node.names}
    return found


def rule(
    pattern: str,
    *,
    when: Callable[[Manifest], bool] | None = None,
    default: bool = True,
    before: Callable[[Library], None] | None = None,
) -> Callable[[Callable[..., Step]], Callable[..., Step]]:
    """Make a function of dodo.py the rule for the tasks that `pattern` names.

    With `<image>` in the pattern there is a task for each image, and the function takes (library, image); with
    `<target>` one for each target and (library, target); with `<bundle>` one for each variant that has a fat binary,
    and (library, the variant's name); otherwise one task and (library). It returns a Step. With `when`, which no rule
    for images takes, there are tasks for the manifests alone that it holds of. With `default=False` a build makes them
    when they are named; `before` may refuse that, by a KilnError, before anything is built.
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
            expected="a word, and after a colon <image>, <target>, <bundle> or a word: `compile:<image>`, `header:c`",
            actual=pattern,
        )

    if when is not None and pattern.endswith("<image>"):
        raise KilnError(
            f"the rule {pattern!r} has a condition, and is one for images",
            expected="`when` for what stands for many images",
            actual=pattern,
            remedy="let the manifest declare other images",
        )

    def mark(function: Callable[..., Step]) -> Callable[..., Step]:
        # How the loader finds it in dodo.py's namespace.
        function.kiln_rule = pattern  # type: ignore[attr-defined]
        function.kiln_options = {"when": when, "default": default, "before": before}  # type: ignore[attr-defined]
        return function

    return mark


def collect(namespace: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a loaded dodo.py, in the order in which they stand there."""
    functions = [value for value in namespace.values() if hasattr(value, "kiln_rule")]
    functions.sort(key=lambda function: function.__code__.co_firstlineno)
    return tuple(Rule(pattern=function.kiln_rule, function=function, **function.kiln_options) for function in functions)
