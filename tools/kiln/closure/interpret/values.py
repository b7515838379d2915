"""The values of the interpreter that are no plain Python objects, and the exception of what cannot be told."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import total_ordering

from kiln.closure.module import SourceModule
from kiln.closure.resolve import Location
from kiln.errors import Position


class Undecided(Exception):
    """Code whose value only a run can tell: `reason` says why, `at` where."""

    def __init__(self, reason: str, at: Position | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at

    def placed(self, at: Position) -> Undecided:
        """Itself, with a place where it has none: the innermost piece of code gives it."""
        self.at = self.at or at
        return self

    def __str__(self) -> str:
        return f"{self.reason} ({self.at})" if self.at else self.reason


class Raised(Exception):
    """An exception that the code itself raises, on its way to the code's own `except`."""

    def __init__(self, kind: type[BaseException], text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Once(list[object]):
    """What an iterator gives, found beforehand: it can be gone through once."""

    def __init__(self, items: Iterable[object], *over: object) -> None:
        """`over` is what it goes through, and what may not change until then."""
        super().__init__(items)
        self.is_used = False
        self._over = [(each, list(each)) for each in over if isinstance(each, (list, dict, set))]

    def taken(self) -> list[object]:
        """All that is left. Raises Undecided where nobody followed what is left."""
        if self.is_used:
            raise Undecided("an iterator that is gone through more than once is not followed")
        for each, items in self._over:
            if len(each) != len(items) or any(one is not other for one, other in zip(each, items, strict=True)):
                raise Undecided("an iterator over what has changed since is not followed")
        self.is_used = True
        return list(self)


@dataclass(frozen=True, kw_only=True)
class FunctionValue:
    """A function at module level of a project file, jitted or plain."""

    module: SourceModule
    name: str


@dataclass(frozen=True, kw_only=True)
class ClassValue:
    """A class at module level of a project file."""

    module: SourceModule
    name: str


@dataclass(frozen=True, kw_only=True)
class ModuleValue:
    """A module or package of the project."""

    location: Location
    importer: SourceModule


@dataclass(frozen=True, kw_only=True)
class ConfigValue:
    """`triton.Config(...)`"""

    constants: Mapping[str, object]
    options: Mapping[str, object]
    """num_warps, num_stages, ... as far as they are given, in the order of the call"""
    has_hook: bool
    """whether it has a `pre_hook`, which does something to the arguments before each launch"""
    position: Position


@dataclass(frozen=True, kw_only=True)
class OutsideValue:
    """Something of a package outside the project: `triton.language.float16`; `f()` in it is the result of a call."""

    dotted: str


@dataclass(frozen=True, kw_only=True)
class ConstexprValue:
    """`tl.constexpr(value)`; what is computed with one is one again, as Triton has it."""

    value: object


@dataclass(frozen=True, kw_only=True)
class SomeValue:
    """Something that is there, and of which no more is known: a pointer, the version of ROCm, a run-time number."""

    what: str
    is_true: bool | None = None
    """whether it counts as true; None where that is not known either"""
    multiple_of: int = 0
    """for an integer: what divides it for certain; 0 for what is no integer"""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """those that are known"""


@dataclass(kw_only=True, eq=False)
class Frame:
    """The variables of running code. They change while it runs, so it is not frozen."""

    module: SourceModule
    names: dict[str, object] = field(default_factory=dict)
    outer: Frame | None = None
    """of the function around it; None at module level"""
    own: frozenset[str] = frozenset()
    """the names that the code binds somewhere, and that are thus no names of the module"""
    unknown: frozenset[str] = frozenset()
    """names whose values only a run can tell"""
    yielded: list[object] | None = None
    """what a generator has given so far; None for code that is none"""
    is_class: bool = False
    """whether it is the body of a class, whose names code inside it does not see"""
    is_comprehension: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalFunction:
    """A lambda, or a function inside another, with the variables around it."""

    node: ast.FunctionDef | ast.Lambda
    frame: Frame
    defaults: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of a plain object, before it is called: `configs.append`."""

    owner: object
    name: str


@dataclass(frozen=True, kw_only=True)
class Partial:
    """`functools.partial(function, ...)`"""

    function: object
    positional: tuple[object, ...]
    keywords: Mapping[str, object] = field(default_factory=dict)


@total_ordering
@dataclass(frozen=True, kw_only=True)
class VersionValue:
    """`packaging.version.Version(text)`, as far as comparisons of releases need it: 3.2.0 is 3.2, 3.2.0rc1 before it.

    What follows a `+` only tells builds of one release apart, and is left out.
    """

    release: tuple[int, ...]
    is_final: bool

    @classmethod
    def parse(cls, text: str) -> VersionValue:
        """Raises ValueError for what is no version."""
        found = re.fullmatch(r"\s*v?(\d+(?:\.\d+)*)([^+]*)(\+.*)?\s*", text)
        if found is None:
            raise ValueError(f"{text!r} is no version")
        release = tuple(int(word) for word in found[1].split("."))
        while len(release) > 1 and release[-1] == 0:
            release = release[:-1]
        rest = found[2].strip(" .-_").lower()
        return cls(release=release, is_final=not rest or rest.startswith("post"))

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, VersionValue):
            return NotImplemented
        return (self.release, self.is_final) < (other.release, other.is_final)


def plain(value: object) -> object:
    """A constexpr as the value that it holds; all else as it is."""
    return value.value if isinstance(value, ConstexprValue) else value


def is_plain(value: object) -> bool:
    """Whether a value is Python's own through and through: numbers, texts, None, and containers of such."""
    if isinstance(value, (tuple, list, set, frozenset)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes, range, slice))
