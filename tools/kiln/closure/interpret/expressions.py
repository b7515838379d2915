"""Evaluates expressions of plain Python for the interpreter, over its own values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kiln.closure import scope
from kiln.closure.interpret.operations import BINARY, UNARY, binary, compare, native, same
from kiln.closure.interpret.sizes import bounded, check_format
from kiln.closure.interpret.values import (
    ConstexprValue,
    Frame,
    LocalFunction,
    Once,
    OutsideValue,
    Raised,
    Undecided,
    is_plain,
    plain,
)

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter

_CONVERSIONS: dict[int, Callable[[object], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


class Expressions:
    """Evaluates the expressions of one frame at a time, and binds values; what else it meets is the interpreter's."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def truth(self, node: ast.expr, frame: Frame) -> bool:
        """Whether an expression counts as true."""
        value = self.value(node, frame)
        try:
            return self._interpreter.truth(value)
        except Undecided as error:
            raise error.placed(frame.module.position(node)) from None

    def value(self, node: ast.expr, frame: Frame) -> object:
        """The value of an expression. Raises Undecided with the innermost place that cannot be told, and Raised."""
        self._interpreter.step(frame, node)
        evaluate: Callable[[ast.expr, Frame], object] | None = getattr(self, f"_value_{type(node).__name__}", None)
        if evaluate is None:
            raise Undecided(f"`{ast.unparse(node)}` is not followed", frame.module.position(node))
        try:
            value = evaluate(node, frame)
            self._interpreter.weigh(value)
            return value
        except Undecided as error:
            raise error.placed(frame.module.position(node)) from None

    def store(self, target: ast.expr, value: object, frame: Frame) -> None:
        """Bind a target of an assignment."""
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, self._interpreter.items(value), frame)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, frame)
            if not isinstance(owner, (list, dict)):
                raise Undecided("a part of what is not known is set", frame.module.position(target))
            self._interpreter.changing(owner)
            native(operator.setitem, owner, plain(self.value(target.slice, frame)), value)
        else:
            raise Undecided(f"storing into `{ast.unparse(target)}` is not followed", frame.module.position(target))

    def _unpack(self, targets: list[ast.expr], values: list[object], frame: Frame) -> None:
        stars = [number for number, target in enumerate(targets) if isinstance(target, ast.Starred)]
        surplus = len(values) - len(targets) + 1
        if stars and surplus >= 0:
            star = stars[0]
            starred = targets[star]
            assert isinstance(starred, ast.Starred)
            middle = values[star : star + surplus]
            targets = [*targets[:star], starred.value, *targets[star + 1 :]]
            values = [*values[:star], middle, *values[star + surplus :]]
        if len(targets) != len(values):
            raise Raised(ValueError, f"{len(values)} values for {len(targets)} names")
        for target, value in zip(targets, values, strict=True):
            self.store(target, value, frame)

    def function(self, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> LocalFunction:
        """A function object, with its defaults evaluated."""
        defaults = {argument.arg: self.value(default, frame) for argument, default in scope.defaults(node.args)}
        return LocalFunction(node=node, frame=frame, defaults=defaults)

    def _value_Constant(self, node: ast.Constant, frame: Frame) -> object:
        return node.value

    def _value_Name(self, node: ast.Name, frame: Frame) -> object:
        return self._interpreter.name(node.id, frame)

    def _value_Attribute(self, node: ast.Attribute, frame: Frame) -> object:
        return self._interpreter.attribute(self.value(node.value, frame), node.attr)

    def _value_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> str:
        return str(bounded("".join(str(self.value(part, frame)) for part in node.values)))

    def _value_FormattedValue(self, node: ast.FormattedValue, frame: Frame) -> str:
        value = plain(self.value(node.value, frame))
        if not is_plain(value):
            raise Undecided(f"what `{ast.unparse(node.value)}` reads like as text is not known before the run")
        if node.conversion >= 0:
            value = _CONVERSIONS[node.conversion](value)
        spec = "" if node.format_spec is None else self.value(node.format_spec, frame)
        check_format(str(spec), ())
        text = native(format, value, spec)
        assert isinstance(text, str)
        return text

    def _value_Tuple(self, node: ast.Tuple, frame: Frame) -> tuple[object, ...]:
        return tuple(self._elements(node.elts, frame))

    def _value_List(self, node: ast.List, frame: Frame) -> list[object]:
        return list(self._elements(node.elts, frame))

    def _value_Set(self, node: ast.Set, frame: Frame) -> set[object]:
        return native(set, list(self._elements(node.elts, frame)))

    def _elements(self, nodes: list[ast.expr], frame: Frame) -> Iterator[object]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self._interpreter.items(self.value(node.value, frame))
            else:
                yield self.value(node, frame)

    def _value_Dict(self, node: ast.Dict, frame: Frame) -> dict[object, object]:
        found: dict[object, object] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, frame)
            if key is not None:
                native(operator.setitem, found, self.value(key, frame), value)
            elif isinstance(value, dict):
                found.update(value)
            else:
                raise Undecided(f"`**{ast.unparse(item)}` is not known before the run")
        return found

    def _value_BinOp(self, node: ast.BinOp, frame: Frame) -> object:
        return binary(BINARY[type(node.op)], self.value(node.left, frame), self.value(node.right, frame))

    def _value_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> object:
        if isinstance(node.op, ast.Not):
            return not self.truth(node.operand, frame)
        value = self.value(node.operand, frame)
        if not is_plain(plain(value)):
            raise Undecided("it computes with a value that is not known before the run")
        result = native(UNARY[type(node.op)], plain(value))
        return ConstexprValue(value=result) if isinstance(value, ConstexprValue) else result

    def _value_BoolOp(self, node: ast.BoolOp, frame: Frame) -> object:
        ends = isinstance(node.op, ast.Or)
        value: object = None
        for operand in node.values:
            value = self.value(operand, frame)
            if operand is not node.values[-1] and self._interpreter.truth(value) is ends:
                return value
        return value

    def _value_IfExp(self, node: ast.IfExp, frame: Frame) -> object:
        return self.value(node.body if self.truth(node.test, frame) else node.orelse, frame)

    def _value_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> object:
        value = self.value(node.value, frame)
        around = frame
        while around.is_comprehension and around.outer is not None:
            around = around.outer
        self.store(node.target, value, around)
        return value

    def _value_Compare(self, node: ast.Compare, frame: Frame) -> object:
        left = self.value(node.left, frame)
        result: object = True
        for op, operand in zip(node.ops, node.comparators, strict=True):
            right = self.value(operand, frame)
            if isinstance(op, (ast.In, ast.NotIn)):
                result = self._contains(plain(right), plain(left)) is isinstance(op, ast.In)
            else:
                result = compare(op, left, right)
            if not self._interpreter.truth(result):
                return result
            left = right
        return result

    def _contains(self, container: object, item: object) -> bool:
        if isinstance(container, OutsideValue):
            return self._interpreter.truth(self._interpreter.outside_call(f"{container.dotted}.__contains__", [item]))
        if isinstance(container, (str, range)) and is_plain(item):
            return bool(native(operator.contains, container, item))
        return any(same(item, other, identical=False) for other in self._interpreter.items(container))

    def _value_Subscript(self, node: ast.Subscript, frame: Frame) -> object:
        owner = plain(self.value(node.value, frame))
        key = plain(self.value(node.slice, frame))
        if isinstance(owner, OutsideValue):
            return self._interpreter.outside_call(f"{owner.dotted}.__getitem__", [key])
        if isinstance(owner, (list, tuple, dict, str, range)):
            return native(operator.getitem, owner, key)
        raise Undecided(f"`{ast.unparse(node)}` is not known before the run")

    def _value_Slice(self, node: ast.Slice, frame: Frame) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else plain(self.value(part, frame)) for part in parts))

    def _value_Lambda(self, node: ast.Lambda, frame: Frame) -> LocalFunction:
        return self.function(node, frame)

    def _value_Call(self, node: ast.Call, frame: Frame) -> object:
        function = self.value(node.func, frame)
        positional = list(self._elements(node.args, frame))
        keywords: dict[str, object] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, frame)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, dict):
                keywords.update(value)
            else:
                raise Undecided(f"`**{ast.unparse(keyword.value)}` is not known before the run")
        return self._interpreter.called(function, positional, keywords, node, frame)

    def _value_Yield(self, node: ast.Yield, frame: Frame) -> None:
        self._yielded(frame).append(None if node.value is None else self.value(node.value, frame))

    def _value_YieldFrom(self, node: ast.YieldFrom, frame: Frame) -> None:
        self._yielded(frame).extend(self._interpreter.items(self.value(node.value, frame)))

    def _yielded(self, frame: Frame) -> list[object]:
        if frame.yielded is None:
            raise Undecided("a generator that only a run can follow")
        return frame.yielded

    # -- comprehensions

    def _value_ListComp(self, node: ast.ListComp, frame: Frame) -> list[object]:
        return [self.value(node.elt, inner) for inner in self._rounds(node.generators, frame)]

    def _value_GeneratorExp(self, node: ast.GeneratorExp, frame: Frame) -> Once:
        over: list[object] = []
        items = [self.value(node.elt, inner) for inner in self._rounds(node.generators, frame, over)]
        return Once(items, *over)

    def _value_SetComp(self, node: ast.SetComp, frame: Frame) -> set[object]:
        values = [self.value(node.elt, inner) for inner in self._rounds(node.generators, frame)]
        return native(set, values)

    def _value_DictComp(self, node: ast.DictComp, frame: Frame) -> dict[object, object]:
        pairs = [
            (self.value(node.key, inner), self.value(node.value, inner))
            for inner in self._rounds(node.generators, frame)
        ]
        return native(dict, pairs)

    def _rounds(
        self, generators: list[ast.comprehension], frame: Frame, over: list[object] | None = None
    ) -> Iterator[Frame]:
        """The frame of a comprehension, once a round, in which the targets are bound; functions made there share it.

        `over` gets what the comprehension goes through.
        """
        inner = Frame(module=frame.module, outer=frame, is_comprehension=True)
        return self._nested(generators, frame, inner, over if over is not None else [])

    def _nested(
        self, generators: list[ast.comprehension], around: Frame, inner: Frame, over: list[object]
    ) -> Iterator[Frame]:
        """Rounds within rounds; what is gone through first is computed outside of the comprehension."""
        first, *rest = generators
        over.append(self.value(first.iter, around))
        for item in self._interpreter.items(over[-1]):
            self.store(first.target, item, inner)
            if all(self.truth(test, inner) for test in first.ifs):
                if rest:
                    yield from self._nested(rest, inner, inner, over)
                else:
                    yield inner
