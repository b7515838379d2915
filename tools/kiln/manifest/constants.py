"""What constants are: values as kernels.yaml gives them and as a compiler gets them, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kiln.errors import ManifestError, Position
from kiln.manifest.dtypes import DTYPES, suggest_dtype
from kiln.manifest.pattern import check_pattern, fill
from kiln.manifest.wording import show


@dataclass(frozen=True, kw_only=True)
class DTypeConstant:
    """A dtype: `{dtype: fp16}` is what a kernel knows as tl.float16."""

    name: str
    """fp16; in a kernel, before it is expanded, it may be a pattern over dtype and axes: `{dtype}`"""


@dataclass(frozen=True, kw_only=True)
class FunctionConstant:
    """A jitted function of the kernel's own module, by the name that it has there: `{function: relu}`, or `Ops.relu`
    where a class holds it."""

    name: str


Value = bool | int | float | str | None | DTypeConstant | FunctionConstant | tuple["Value", ...]
"""A constant or an option as it reaches the compiler; None is Python's own, and a list of kernels.yaml is a tuple."""


def same(own: Value, other: Value) -> bool:
    """Whether two values are equal and of one type, members too: true is not 1, and 1 is not 1.0."""
    if isinstance(own, tuple) and isinstance(other, tuple):
        return len(own) == len(other) and all(same(*pair) for pair in zip(own, other, strict=True))
    return type(own) is type(other) and own == other


def written(value: Value) -> str:
    """A value as kernels.yaml has it, for messages: true, 64, 'relu', null, [1, 2], {dtype: fp16}."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return show(value)
    if isinstance(value, tuple):
        return f"[{', '.join(written(member) for member in value)}]"
    if isinstance(value, DTypeConstant):
        return f"{{dtype: {value.name}}}"
    if isinstance(value, FunctionConstant):
        return f"{{function: {value.name}}}"
    return str(value)


def described(value: Value) -> str:
    """A value as packages show it to people: True, 64, relu, None, (1, 'a'), fp16."""
    if isinstance(value, tuple):
        members = [repr(member) if isinstance(member, str) else described(member) for member in value]
        return f"({', '.join(members)}{',' if len(members) == 1 else ''})"
    return value.name if isinstance(value, DTypeConstant | FunctionConstant) else str(value)


def functions_of(values: Iterable[Value]) -> tuple[str, ...]:
    """The names of the functions among some values and their members, each once, in order."""
    found = [leaf.name for value in values for leaf in _leaves(value) if isinstance(leaf, FunctionConstant)]
    return tuple(dict.fromkeys(found))


def _leaves(value: Value) -> Iterator[Value]:
    if isinstance(value, tuple):
        for member in value:
            yield from _leaves(member)
    else:
        yield value


def fill_dtypes(value: Value, words: Mapping[str, str], position: Position, what: str) -> Value:
    """`value` with the placeholders of its dtypes filled: `words` has what stands for `dtype` and for each axis.

    Raises ManifestError at `position` for an unknown placeholder, and for what is no dtype once it is filled.
    """
    if isinstance(value, tuple):
        return tuple(fill_dtypes(member, words, position, what) for member in value)
    if not isinstance(value, DTypeConstant) or "{" not in value.name:
        return value
    check_pattern(value.name, [name for name in words if name != "block"], position)
    name = fill(value.name, words)
    if name not in DTYPES:
        raise ManifestError(
            f"`{what}` is no dtype for one of the variants",
            where=position,
            expected=f"one of {', '.join(DTYPES)}",
            actual=f"{show(name)}, from {show(value.name)}",
            remedy=suggest_dtype(name) or "use placeholders whose values are dtypes",
        )
    return DTypeConstant(name=name)
