"""The tree of an expression: text -> Python's `ast` -> a small typed tree that knows only Kiln's own functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from kiln.errors import ManifestError, Position
from kiln.manifest.wording import show

Type = Literal["int", "bool"]

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1

MAX_LENGTH = 1024
"""characters of an expression"""
MAX_DEPTH = 32
"""levels of nesting; a sum of n terms is n - 1 levels deep"""
MAX_NODES = 200
"""nodes of the tree, counted as written out; it bounds the size of generated code"""


@dataclass(frozen=True, kw_only=True)
class Function:
    """One function of the language: the types it takes, and the type it gives."""

    operands: tuple[Type, ...]
    result: Type


def _functions() -> dict[str, Function]:
    functions = {"neg": Function(operands=("int",), result="int")}
    for name in ("add", "sub", "mul", "floordiv", "floormod", "cdiv", "min", "max"):
        functions[name] = Function(operands=("int", "int"), result="int")
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        functions[name] = Function(operands=("int", "int"), result="bool")
    functions["negate"] = Function(operands=("bool",), result="bool")
    for name in ("both", "either"):
        functions[name] = Function(operands=("bool", "bool"), result="bool")
    functions["choose"] = Function(operands=("bool", "int", "int"), result="int")
    functions["choose_bool"] = Function(operands=("bool", "bool", "bool"), result="bool")
    return functions


FUNCTIONS = _functions()
"""Every function that a tree can hold; the generated code has one helper for each."""

RESERVED_NAMES = frozenset({"cdiv", "min", "max"})
"""names that mean a function in an expression, and so cannot be an input's name"""


@dataclass(frozen=True, kw_only=True)
class Constant:
    value: int
    """an int in the range of int64, or a bool"""

    @property
    def type(self) -> Type:
        return "bool" if isinstance(self.value, bool) else "int"


@dataclass(frozen=True, kw_only=True)
class Name:
    name: str

    @property
    def type(self) -> Type:
        return "int"


@dataclass(frozen=True, kw_only=True)
class Apply:
    function: str
    """a key of FUNCTIONS"""
    operands: tuple[Node, ...]

    @property
    def type(self) -> Type:
        return FUNCTIONS[self.function].result


Node = Constant | Name | Apply

_TOKEN = re.compile(
    r"""(?P<space>[ \n]+)
    |(?P<number>(?:0[xX][0-9a-fA-F]+|[0-9]+)(?![A-Za-z0-9_.]))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<operator>//|<=|>=|==|!=|[-+*%<>(),])""",
    re.VERBOSE,
)

_LANGUAGE = "integers, names, + - * // %, cdiv, min, max, comparisons, and, or, not, and `a if condition else b`"

_SPLIT = "compute part of it in the caller and pass it as a launch input"

# What people write out of habit from C or Python, and what it is called here; longest first.
_HABITS = (
    ("&&", "write `and`"),
    ("||", "write `or`"),
    ("!", "write `not`"),
    ("?", "write `a if condition else b`"),
    ("/", "write // for the quotient rounded down, or cdiv(a, b) for the one rounded up"),
    ("=", "write == to compare"),
)

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_ARTICLE: dict[Type, str] = {"int": "an integer", "bool": "a truth value"}


def parse(text: str, position: Position) -> tuple[Node, frozenset[str]]:
    """The typed tree of `text`, and the names it reads. Raises ManifestError at `position` for anything else."""
    if len(text) > MAX_LENGTH:
        raise ManifestError(
            f"the expression {show(text)} is too long",
            where=position,
            expected=f"at most {MAX_LENGTH} characters",
            actual=f"{len(text)} characters",
            remedy=_SPLIT,
        )
    if not text.strip():
        raise ManifestError("the expression is empty", where=position, expected=_LANGUAGE)
    _check_tokens(text, position)
    # A text folded over several lines holds line breaks, which Python would take as the end of the expression.
    line = text.replace("\n", " ").strip()
    try:
        body = ast.parse(line, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        detail = error.msg if isinstance(error, SyntaxError) else "too deeply nested"
        raise ManifestError(
            f"{show(text)} is no expression: {detail}",
            where=position,
            expected=_LANGUAGE,
        ) from None
    builder = _Builder(line, position)
    tree, _ = builder.build(body, 1)
    return tree, frozenset(builder.names)


def _check_tokens(text: str, position: Position) -> None:
    """Refuse what `ast` would read but this language does not have: other digits, other letters, comments, strings."""
    start = 0
    while start < len(text):
        token = _TOKEN.match(text, start)
        if token is None:
            rest = text[start:]
            remedy = next((remedy for habit, remedy in _HABITS if rest.startswith(habit)), None)
            if rest[0].isdigit():
                what, remedy = "this is no number", "write numbers as 2048 or 0x800"
            else:
                what = f"{show(rest[0])} is not part of the language"
            raise ManifestError(
                f"{show(text)} is no expression: at its character {start + 1}, {what}",
                where=position,
                expected=_LANGUAGE,
                actual=show(rest, 20),
                remedy=remedy,
            )
        start = token.end()


class _Builder:
    """Turns Python's tree into Kiln's, checks types on the way, and counts nodes as they will be written out."""

    def __init__(self, text: str, position: Position) -> None:
        self.text = text
        self.position = position
        self.names: set[str] = set()

    def build(self, node: ast.expr, depth: int) -> tuple[Node, int]:
        """The tree of `node`, and its number of nodes."""
        if depth > MAX_DEPTH:
            raise self._refuse(node, "nested too deeply", expected=f"at most {MAX_DEPTH} levels", remedy=_SPLIT)
        build = self._HANDLERS.get(type(node))
        if build is None:
            raise self._refuse(node, "not part of the language", expected=_LANGUAGE)
        tree, size = build(self, node, depth + 1)
        if size > MAX_NODES:
            expected = f"at most {MAX_NODES} numbers, names and operators"
            raise self._refuse(node, "too large", expected=expected, remedy=_SPLIT)
        return tree, size

    def _constant(self, node: ast.Constant, depth: int) -> tuple[Node, int]:
        if not isinstance(node.value, int):
            raise self._refuse(node, "not part of the language", expected=_LANGUAGE)
        return self._literal(node, node.value)

    def _literal(self, node: ast.expr, value: int) -> tuple[Node, int]:
        if not INT_MIN <= value <= INT_MAX:
            raise self._refuse(node, "out of range", expected=f"{INT_MIN} to {INT_MAX} (64 bits, signed)")
        return Constant(value=value), 1

    def _name(self, node: ast.Name, depth: int) -> tuple[Node, int]:
        if node.id in RESERVED_NAMES:
            raise self._refuse(node, "a function, and needs its operands", expected=f"{node.id}(a, b)")
        if node.id in ("true", "false"):
            raise self._refuse(node, "not part of the language", expected=node.id.capitalize())
        self.names.add(node.id)
        return Name(name=node.id), 1

    def _binary(self, node: ast.BinOp, depth: int) -> tuple[Node, int]:
        function = _BINARY.get(type(node.op))
        if function is None:
            raise self._refuse(node, "not part of the language", expected=_LANGUAGE)
        return self._apply(function, [self._typed(side, "int", depth) for side in (node.left, node.right)])

    def _unary(self, node: ast.UnaryOp, depth: int) -> tuple[Node, int]:
        operand = node.operand
        if isinstance(node.op, ast.Not):
            return self._apply("negate", [self._typed(operand, "bool", depth)])
        if isinstance(node.op, ast.UAdd):
            return self._typed(operand, "int", depth)
        if isinstance(node.op, ast.USub):
            if isinstance(operand, ast.Constant) and type(operand.value) is int:
                return self._literal(node, -operand.value)
            return self._apply("neg", [self._typed(operand, "int", depth)])
        raise self._refuse(node, "not part of the language", expected=_LANGUAGE)

    def _boolean(self, node: ast.BoolOp, depth: int) -> tuple[Node, int]:
        function = "both" if isinstance(node.op, ast.And) else "either"
        return self._fold(function, [self._typed(value, "bool", depth) for value in node.values])

    def _compare(self, node: ast.Compare, depth: int) -> tuple[Node, int]:
        """`a < b < c` is `a < b and b < c`; b is written twice, which is sound because nothing has side effects."""
        sides = [self._typed(side, "int", depth) for side in (node.left, *node.comparators)]
        parts: list[tuple[Node, int]] = []
        for index, operator in enumerate(node.ops):
            function = _COMPARE.get(type(operator))
            if function is None:
                raise self._refuse(node, "not part of the language", expected=_LANGUAGE)
            parts.append(self._apply(function, sides[index : index + 2]))
        return self._fold("both", parts)

    def _conditional(self, node: ast.IfExp, depth: int) -> tuple[Node, int]:
        condition = self._typed(node.test, "bool", depth)
        chosen = self.build(node.body, depth)
        kind = chosen[0].type
        other = self._typed(node.orelse, kind, depth)
        return self._apply("choose" if kind == "int" else "choose_bool", [condition, chosen, other])

    def _call(self, node: ast.Call, depth: int) -> tuple[Node, int]:
        function = node.func.id if isinstance(node.func, ast.Name) else None
        if function not in RESERVED_NAMES:
            raise self._refuse(node, "not a function of the language", expected="cdiv(a, b), min(a, b) or max(a, b)")
        assert function is not None
        count = len(node.args)
        if node.keywords or count < 2 or (function == "cdiv" and count > 2):
            expected = "cdiv(a, b)" if function == "cdiv" else f"{function}(a, b) or {function}(a, b, c, ...)"
            raise self._refuse(node, "called with the wrong operands", expected=expected)
        return self._fold(function, [self._typed(argument, "int", depth) for argument in node.args])

    def _typed(self, node: ast.expr, kind: Type, depth: int) -> tuple[Node, int]:
        tree, size = self.build(node, depth)
        if tree.type != kind:
            found = _ARTICLE[tree.type]
            remedy = "compare it: != 0" if kind == "bool" else "choose a number: 1 if ... else 0"
            raise self._refuse(
                node, f"{found}, where {_ARTICLE[kind]} is meant", expected=_ARTICLE[kind], remedy=remedy
            )
        return tree, size

    def _apply(self, function: str, operands: Sequence[tuple[Node, int]]) -> tuple[Node, int]:
        return Apply(function=function, operands=tuple(tree for tree, _ in operands)), 1 + sum(
            size for _, size in operands
        )

    def _fold(self, function: str, operands: Sequence[tuple[Node, int]]) -> tuple[Node, int]:
        result = operands[0]
        for operand in operands[1:]:
            result = self._apply(function, (result, operand))
        return result

    def _refuse(self, node: ast.expr, why: str, *, expected: str, remedy: str | None = None) -> ManifestError:
        part = ast.get_source_segment(self.text, node) or self.text
        within = "" if part == self.text else f" in the expression {show(self.text)}"
        return ManifestError(f"{show(part)}{within} is {why}", where=self.position, expected=expected, remedy=remedy)

    _HANDLERS: ClassVar[dict[type[ast.expr], Callable[..., tuple[Node, int]]]] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.BinOp: _binary,
        ast.UnaryOp: _unary,
        ast.BoolOp: _boolean,
        ast.Compare: _compare,
        ast.IfExp: _conditional,
        ast.Call: _call,
    }
