"""The one small expression language of kernels.yaml: evaluated in Python, written out as C and Rust from one tree.

The language has two types, 64-bit signed integers and truth values, checked when it is read:

    2048  0x800  n_cols            integers and names of integers
    a + b   a - b   -a   a * b
    a // b   a % b                 quotient rounded down, and its remainder, as in Python
    cdiv(a, b)                     quotient rounded up
    min(a, b)   max(a, b, c)
    a <= b   a < b < c   ==   !=   >   >=
    not p   p and q   p or q   True   False
    a if p else b

The language is exact: a division by zero has no value, nor has what leaves 64 bits on the way. What an operand before
decides leaves it alone: `n != 0 and m % n == 0` is false where n is 0. Kiln refuses an expression without a value where
it needs it for a build. A launch in C or Rust tells its caller: such a `select` does not hold, as one that is false
(`NOT_SELECTED`, `NotSelected`); such a `grid` is an error (`GRID_OUT_OF_RANGE`; `Grid` with `GridError::Arithmetic`);
and so is a shape or a stride in Rust (`TensorSize`), while C looks at no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kiln.errors import ManifestError, Position
from kiln.manifest.expression_code import c_helpers, rust_helpers, tree_to_c, tree_to_rust
from kiln.manifest.expression_tree import INT_MAX, INT_MIN, RESERVED_NAMES, Apply, Constant, Name, Node, Type, parse
from kiln.manifest.wording import show

__all__ = ["RESERVED_NAMES", "Expression", "Type", "c_helpers", "parse_expression", "rust_helpers"]


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A checked expression over named integers, such as `n_cols <= BLOCK_SIZE`. `parse_expression` makes it."""

    text: str
    position: Position
    names: frozenset[str]
    tree: Node = field(repr=False, compare=False)

    @property
    def type(self) -> Type:
        """`int` or `bool`"""
        return self.tree.type

    def evaluate(self, values: Mapping[str, int]) -> int | bool:
        """The exact value, with `values` for the names; a bool among them counts as 0 or 1.

        Raises ManifestError at the expression's position for a name without a value, a division by zero, and any
        intermediate result that does not fit 64 bits signed.
        """
        missing = sorted(self.names - values.keys())
        if missing:
            raise self._failure(f"has no value for {', '.join(missing)}", values)
        return self._evaluate(self.tree, values)

    def to_c(self, names: Mapping[str, str], helper_prefix: str) -> str:
        """A C99 and C++ expression that calls the functions of `c_helpers(helper_prefix)`.

        It is of the helpers' struct `<prefix>integer`, or `<prefix>condition` for a truth value. `names` gives a
        sub-expression of type int64_t for each name, evaluated any number of times.
        """
        return tree_to_c(self.tree, names, helper_prefix)

    def to_rust(self, names: Mapping[str, str], helper_path: str = "") -> str:
        """A Rust expression of type Option<i64> (or Option<bool>) that calls the functions of `rust_helpers()`.

        `names` gives a sub-expression of type i64 for each name, evaluated any number of times. `helper_path` is the
        path to the helpers' module, such as `crate::expression::`. The result is a call: it needs no parentheses
        beside the caller's operators.
        """
        return tree_to_rust(self.tree, names, helper_path)

    def shortfall(self) -> Expression:
        """How far a condition is from holding: 0 where it does, and more the more its integers miss.

        It is for telling which of several conditions comes nearest. As every expression it has no value where it
        leaves 64 bits.
        """
        return replace(self, tree=_shortfall(self.tree))

    def _evaluate(self, node: Node, values: Mapping[str, int]) -> int:
        if isinstance(node, Constant):
            return node.value
        if isinstance(node, Name):
            return self._checked(int(values[node.name]), values)
        function, operands = node.function, node.operands
        first = self._evaluate(operands[0], values)
        # As in Python, what the first operand decides leaves the others alone: `n != 0 and m % n == 0` is safe.
        if function == "both":
            return first and self._evaluate(operands[1], values)
        if function == "either":
            return first or self._evaluate(operands[1], values)
        if function in ("choose", "choose_bool"):
            return self._evaluate(operands[1] if first else operands[2], values)
        if function == "neg":
            return self._checked(-first, values)
        if function == "negate":
            return not first
        return self._binary(function, first, self._evaluate(operands[1], values), values)

    def _binary(self, function: str, a: int, b: int, values: Mapping[str, int]) -> int:
        if function in ("floordiv", "floormod", "cdiv"):
            if b == 0:
                raise self._failure("divides by zero", values)
            if function == "floormod":
                return a % b
            return self._checked(a // b if function == "floordiv" else -(-a // b), values)
        if function in ("add", "sub", "mul"):
            return self._checked(a + b if function == "add" else a - b if function == "sub" else a * b, values)
        if function in ("min", "max"):
            return min(a, b) if function == "min" else max(a, b)
        if function in ("eq", "ne"):
            return (a == b) == (function == "eq")
        if function in ("lt", "ge"):
            return (a < b) == (function == "lt")
        return (a <= b) == (function == "le")

    def _checked(self, value: int, values: Mapping[str, int]) -> int:
        if not INT_MIN <= value <= INT_MAX:
            raise self._failure("leaves the range of 64-bit signed integers", values)
        return value

    def _failure(self, what: str, values: Mapping[str, int]) -> ManifestError:
        given = ", ".join(f"{name} = {values[name]}" for name in sorted(self.names & values.keys()))
        return ManifestError(f"the expression {show(self.text)} {what}", where=self.position, actual=given or None)


def parse_expression(text: str, position: Position) -> Expression:
    """Read an expression. Raises ManifestError at `position` that names the part at fault, and what is meant there.

    `text` has at most 1024 characters and 32 levels of nesting; it may run over several lines.
    """
    tree, names = parse(text, position)
    return Expression(text=text, position=position, names=names, tree=tree)


def _shortfall(tree: Node) -> Node:
    """See `Expression.shortfall`; `tree` is of type bool."""

    def apply(function: str, *operands: Node) -> Node:
        return Apply(function=function, operands=operands)

    none, one = Constant(value=0), Constant(value=1)
    if isinstance(tree, Apply):
        a, b = tree.operands[0], tree.operands[-1]
        match tree.function:
            case "le":
                return apply("max", none, apply("sub", a, b))
            case "lt":
                return apply("max", none, apply("add", apply("sub", a, b), one))
            case "ge" | "gt":
                return _shortfall(apply("le" if tree.function == "ge" else "lt", b, a))
            case "eq":
                return apply("max", apply("sub", a, b), apply("sub", b, a))
            case "both":
                return apply("add", _shortfall(a), _shortfall(b))
            case "either":
                return apply("min", _shortfall(a), _shortfall(b))
            case "choose_bool":
                return apply("choose", a, *map(_shortfall, tree.operands[1:]))
    return apply("choose", tree, none, one)
