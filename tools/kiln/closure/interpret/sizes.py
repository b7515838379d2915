"""Bounds on what the interpreter computes: a slip in the code must not fill the memory, or take an hour."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kiln.closure.interpret.values import Undecided

T = TypeVar("T")

LONGEST = 1_000_000
"""elements of a list, characters of a text or bits of a number: what is longer is no value of a kernel, but a slip"""

_STEEP = frozenset({"math.comb", "math.factorial", "math.perm"})
_PRODUCTS = frozenset({"math.lcm", "math.prod"})
_MOST = 20_000
"""the largest number whose factorial is computed"""
_WIDTH = re.compile(r"\d{6,}")


def too_long(what: str = "a value") -> Undecided:
    return Undecided(f"{what} grows longer than any that is worth following")


def bounded(value: T) -> T:
    """The value itself. Raises Undecided for one that is longer than LONGEST."""
    if size(value) > LONGEST:
        raise too_long(f"a {type(value).__name__}")
    return value


def size(value: object) -> int:
    """Elements, characters or bits; 0 for what has none."""
    if isinstance(value, (str, bytes, list, tuple, dict, set, frozenset)):
        return len(value)
    return value.bit_length() if isinstance(value, int) else 0


def items_of(found: Iterable[object]) -> list[object]:
    """What an iterator of Python's own gives. Raises Undecided where that is too much."""
    items: list[object] = []
    total = 0
    for item in found:
        total += 1 + size(item) * isinstance(item, tuple)
        if total > LONGEST:
            raise too_long("a list")
        items.append(item)
    return items


def check_operator(function: Callable[..., object], values: Sequence[object]) -> None:
    """Raise Undecided where an operator would give something too long."""
    if function is operator.pow:
        check_power(values)
    elif function is operator.lshift:
        if isinstance(values[1], int) and values[1] > LONGEST:
            raise too_long("a number")
    elif function is operator.mul:
        lengths = [len(value) for value in values if isinstance(value, (str, list, tuple, bytes))]
        times = [value for value in values if isinstance(value, int)]
        if lengths and times and lengths[0] * times[0] > LONGEST:
            raise too_long("a list")
    elif function is operator.mod and isinstance(values[0], (str, bytes)):
        check_format(str(values[0]), values[1] if isinstance(values[1], tuple) else values[1:])


def check_power(values: Sequence[object]) -> None:
    """The same for `a ** b`."""
    base, exponent, *modulus = [*values, 0, 0][: max(2, len(values))]
    if modulus or not isinstance(base, int) or not isinstance(exponent, int):
        return
    if base.bit_length() * abs(exponent) > LONGEST:
        raise too_long("a number")


def check_format(text: str, given: Iterable[object]) -> None:
    """The same for a text with places for values: their width can be written in it, or given."""
    if _WIDTH.search(text):
        raise too_long("a text")
    is_nested = "*" in text or re.search(r"\{[^{}]*\{", text) is not None
    if is_nested and any(isinstance(value, int) and abs(value) > LONGEST for value in given):
        raise too_long("a text")


def check_method(owner: object, name: str, given: Sequence[object]) -> None:
    """The same for a method of a text, or of a pattern."""
    numbers = [value for value in given if isinstance(value, int)]
    texts = [len(value) for value in given if isinstance(value, (str, bytes))]
    length = 0
    if isinstance(owner, str):
        if name == "format":
            check_format(owner, given)
        elif name == "join" and given and isinstance(given[0], list):
            length = sum(len(part) + len(owner) for part in given[0] if isinstance(part, str))
        elif name == "replace":
            length = len(owner) * max([1, *texts])
        elif name in ("center", "ljust", "rjust", "zfill"):
            length = max([0, *numbers])
    elif name == "sub" and len(texts) == 2:
        length = (texts[0] + 1) * (texts[1] + 1)
    if length > LONGEST:
        raise too_long("a text")


def check_call(dotted: str, given: Sequence[object], named: Mapping[str, object]) -> None:
    """The same for a function of Python's library, or a builtin by its name alone."""
    every = [*given, *named.values()]
    numbers = [value for value in every if isinstance(value, int)]
    if dotted in _STEEP and max([0, *numbers]) > _MOST:
        raise too_long("a number")
    if dotted in _PRODUCTS:
        items = [item for value in every for item in (value if isinstance(value, (list, tuple)) else [value])]
        if sum(map(size, items)) > LONGEST:
            raise too_long("a number")
    if (dotted.startswith("itertools.") or dotted == "bytes") and max([0, *map(abs, numbers)]) > LONGEST:
        raise too_long("a list")
    if dotted == "round" and len(numbers) > 1 and numbers[1] < -_MOST:
        raise too_long("a number")
    if dotted == "format" and len(given) > 1:
        check_format(str(given[1]), ())
    if dotted.startswith("fractions.") and any(isinstance(value, str) and "e" in value.lower() for value in every):
        raise too_long("a number")
    if dotted in ("re.sub", "re.subn"):
        check_method(None, "sub", given[1:])
    if dotted.startswith("operator."):
        function = getattr(operator, dotted.removeprefix("operator."), None)
        if function is not None and len(given) > 1:
            check_operator(function, given)
