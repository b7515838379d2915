"""Operators and comparisons of the interpreter's values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TypeVar

from kiln.closure.interpret.number_formats import torch_name
from kiln.closure.interpret.sizes import bounded, check_operator, too_long
from kiln.closure.interpret.values import (
    ConstexprValue,
    OutsideValue,
    Raised,
    SomeValue,
    Undecided,
    VersionValue,
    is_plain,
    plain,
)

T = TypeVar("T")

BINARY: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Mod: operator.mod,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.RShift: operator.rshift,
    ast.Sub: operator.sub,
}
UNARY: dict[type[ast.unaryop], Callable[..., object]] = {
    ast.Invert: operator.invert,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_ORDER: dict[type[ast.cmpop], Callable[..., object]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}


def binary(function: Callable[..., object], left: object, right: object) -> object:
    """A binary operation; with a constexpr on either side its result is one. Raises Undecided, and Raised."""
    constexpr = isinstance(left, ConstexprValue) or isinstance(right, ConstexprValue)
    left, right = plain(left), plain(right)
    if isinstance(left, SomeValue) or isinstance(right, SomeValue):
        return _of_some(function, left, right)
    sequences = (list, tuple)
    if function is operator.add and isinstance(left, sequences) and isinstance(right, sequences):
        return native(function, left, right)
    if function is operator.mul and (isinstance(left, sequences) or isinstance(right, sequences)):
        return native(function, left, right)
    if function is operator.or_ and isinstance(left, dict) and isinstance(right, dict):
        return {**left, **right}
    if function is operator.mod and isinstance(left, str) and is_plain(right):
        return native(function, left, right)
    if not (is_plain(left) and is_plain(right)):
        raise Undecided("it computes with a value that is not known before the run")
    result = native(function, left, right)
    return ConstexprValue(value=result) if constexpr else result


def compare(op: ast.cmpop, left: object, right: object) -> object:
    """A comparison by anything but `in`; with a constexpr on either side its result is one. The same is raised."""
    constexpr = isinstance(left, ConstexprValue) or isinstance(right, ConstexprValue)
    left, right = plain(left), plain(right)
    if isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        found = same(left, right, identical=isinstance(op, (ast.Is, ast.IsNot)))
        result: object = found is isinstance(op, (ast.Is, ast.Eq))
    else:
        versions = isinstance(left, VersionValue) and isinstance(right, VersionValue)
        if not versions and not (is_plain(left) and is_plain(right)):
            raise Undecided("it compares a value that is not known before the run")
        result = native(_ORDER[type(op)], left, right)
    return ConstexprValue(value=result) if constexpr else result


def same(left: object, right: object, *, identical: bool) -> bool:
    """`left == right`, or `left is right`, which says no more of plain values in the code that people write."""
    for value, other in ((left, right), (right, left)):
        if isinstance(value, SomeValue):
            if other is None:
                return False
            raise Undecided(f"what {value.what} equals is not known before the run")
        if isinstance(value, OutsideValue):
            if other is None:
                return False
            return _same_outside(value, other)
    if identical:
        if left is right or type(left) is not type(right):
            return left is right
        if not isinstance(left, (bool, int, str)):
            raise Undecided("whether two values are one object is not followed")
        return left == right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        pairs = zip(left, right, strict=False)
        return (
            type(left) is type(right)
            and len(left) == len(right)
            and all(same(*pair, identical=False) for pair in pairs)
        )
    return left is right or left == right


def _same_outside(left: OutsideValue, right: object) -> bool:
    """Whether two things of other packages are one: number formats are told by their names."""
    if not isinstance(right, OutsideValue):
        if is_plain(right) and torch_name(left.dotted) is not None:
            return False
        raise Undecided(f"what {left.dotted} equals is not known before the run")
    if left.dotted == right.dotted and "()" not in left.dotted:
        return True
    names = [torch_name(value.dotted) for value in (left, right)]
    if None not in names:
        return names[0] == names[1] and left.dotted.partition(".")[0] == right.dotted.partition(".")[0]
    if all(value.dotted.startswith("triton.language.") and value.dotted.count(".") == 2 for value in (left, right)):
        return False
    raise Undecided(f"whether {left.dotted} is {right.dotted} is not known before the run")


def _of_some(function: Callable[..., object], left: object, right: object) -> object:
    """What is known of a computation with a number that only a run has: what divides it."""
    if isinstance(left, SomeValue) and isinstance(right, int) and right > 0 and left.multiple_of:
        if function is operator.mod and left.multiple_of % right == 0:
            return 0
        if function is operator.floordiv and left.multiple_of % right == 0:
            return SomeValue(what=left.what, multiple_of=left.multiple_of // right)
    if function is operator.mul:
        for some, times in ((left, right), (right, left)):
            if isinstance(some, SomeValue) and isinstance(times, int) and some.multiple_of and times:
                return SomeValue(what=some.what, multiple_of=some.multiple_of * abs(times))
    named = left if isinstance(left, SomeValue) else right
    assert isinstance(named, SomeValue)
    raise Undecided(f"{named.what} is not known before the run")


def run_native(run: Callable[[], T]) -> T:
    """What Python itself computes from plain values; an exception becomes one of the code's own."""
    try:
        return bounded(run())
    except MemoryError:
        raise too_long() from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Raised(type(error), str(error)) from None


def native(function: Callable[..., T], *values: object) -> T:
    """`function(*values)` of plain values, with a check that nothing grows out of hand."""
    check_operator(function, values)
    return run_native(lambda: function(*values))
