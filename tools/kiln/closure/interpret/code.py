"""Runs statements and expressions of plain Python for the interpreter, over its own values."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kiln.closure import scope
from kiln.closure.interpret.builtins import EXCEPTIONS
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


class Return(Exception):
    """`return value`"""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Code:
    """Runs the code of one frame at a time; what it meets besides is the interpreter's."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    # -- statements

    def run(self, body: list[ast.stmt], frame: Frame) -> None:
        for node in body:
            self.statement(node, frame)

    def statement(self, node: ast.stmt, frame: Frame) -> None:
        """Run one statement."""
        self._interpreter.step(frame, node)
        run: Callable[[ast.stmt, Frame], None] | None = getattr(self, f"_run_{type(node).__name__}", None)
        if run is None:
            raise Undecided(f"`{ast.unparse(node).splitlines()[0]}` is not followed", frame.module.position(node))
        try:
            run(node, frame)
        except Undecided as error:
            raise error.placed(frame.module.position(node)) from None

    def _run_Pass(self, node: ast.Pass, frame: Frame) -> None:
        return

    def _run_Global(self, node: ast.Global, frame: Frame) -> None:
        raise Undecided("a function that changes names of its module is not followed", frame.module.position(node))

    _run_Nonlocal = _run_Global

    def _run_Expr(self, node: ast.Expr, frame: Frame) -> None:
        self.value(node.value, frame)

    def _run_Return(self, node: ast.Return, frame: Frame) -> None:
        raise Return(None if node.value is None else self.value(node.value, frame))

    def _run_Break(self, node: ast.Break, frame: Frame) -> None:
        raise _Break

    def _run_Continue(self, node: ast.Continue, frame: Frame) -> None:
        raise _Continue

    def _run_Assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.value(node.value, frame)
        for target in node.targets:
            self.store(target, value, frame)

    def _run_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value, frame), frame)

    def _run_AugAssign(self, node: ast.AugAssign, frame: Frame) -> None:
        before = self.value(_as_read(node.target), frame)
        given = self.value(node.value, frame)
        if isinstance(before, (list, dict, set)):
            self._interpreter.changing(before)
        value: object = before
        if isinstance(before, list) and isinstance(node.op, ast.Add):
            before.extend(self._interpreter.items(given))
        elif isinstance(before, list):
            before[:] = self._interpreter.items(binary(BINARY[type(node.op)], before, given))
        elif isinstance(before, dict) and isinstance(node.op, ast.BitOr) and isinstance(given, dict):
            before.update(given)
        elif isinstance(before, set):
            after = self._interpreter.items(binary(BINARY[type(node.op)], before, given))
            before.clear()
            before.update(after)
        else:
            value = binary(BINARY[type(node.op)], before, given)
        self.store(node.target, bounded(value), frame)

    def _run_If(self, node: ast.If, frame: Frame) -> None:
        self.run(node.body if self.truth(node.test, frame) else node.orelse, frame)

    def _run_While(self, node: ast.While, frame: Frame) -> None:
        try:
            while self.truth(node.test, frame):
                try:
                    self.run(node.body, frame)
                except _Continue:
                    continue
        except _Break:
            return
        self.run(node.orelse, frame)

    def _run_For(self, node: ast.For, frame: Frame) -> None:
        try:
            value = self.value(node.iter, frame)
            items = self._interpreter.items(value)
            for number, item in enumerate(items, 1):
                self.store(node.target, item, frame)
                with suppress(_Continue):
                    self.run(node.body, frame)
                if not _is_as_it_was(value, items, number):
                    raise Undecided("it changes what it goes through")
        except _Break:
            return
        self.run(node.orelse, frame)

    def _run_Assert(self, node: ast.Assert, frame: Frame) -> None:
        if not self.truth(node.test, frame):
            raise Raised(AssertionError, "" if node.msg is None else ast.unparse(node.msg))

    def _run_Raise(self, node: ast.Raise, frame: Frame) -> None:
        named = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = named.id if isinstance(named, ast.Name) else ""
        raise Raised(EXCEPTIONS.get(name, Exception), "" if node.exc is None else ast.unparse(node.exc))

    def _run_Try(self, node: ast.Try, frame: Frame) -> None:
        try:
            try:
                with self._interpreter.trying():
                    self.run(node.body, frame)
            except Raised as error:
                self.run(self.handler(node, error, frame).body, frame)
            else:
                self.run(node.orelse, frame)
        finally:
            self.run(node.finalbody, frame)

    def handler(self, node: ast.Try, error: Raised, frame: Frame) -> ast.ExceptHandler:
        """The `except` that catches an exception; without one the exception goes on."""
        for handler in node.handlers:
            if handler.type is None:
                return handler
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            for kind in kinds:
                known = EXCEPTIONS.get(kind.id) if isinstance(kind, ast.Name) else None
                if known is None:
                    raise Undecided(f"whether `except {ast.unparse(kind)}` catches it", frame.module.position(handler))
                if issubclass(error.kind, known):
                    return handler
        raise error

    def _run_Import(self, node: ast.Import, frame: Frame) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            frame.names[name] = self._interpreter.names.imported(frame.module, node, alias)

    def _run_ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        for alias in node.names:
            if node.module != "__future__":
                frame.names[alias.asname or alias.name] = self._interpreter.names.imported(frame.module, node, alias)

    def _run_ClassDef(self, node: ast.ClassDef, frame: Frame) -> None:
        if frame.outer is not None:
            raise Undecided(f"the class {node.name} inside a function is not followed")
        frame.names[node.name] = self._interpreter.define(node, frame)

    def _run_FunctionDef(self, node: ast.FunctionDef, frame: Frame) -> None:
        if frame.outer is None:
            frame.names[node.name] = self._interpreter.define(node, frame)
            return
        if node.decorator_list:
            raise Undecided(f"the decorated function {node.name} is not followed", frame.module.position(node))
        frame.names[node.name] = self.function(node, frame)

    def function(self, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> LocalFunction:
        """A function object, with its defaults evaluated."""
        defaults = {argument.arg: self.value(default, frame) for argument, default in scope.defaults(node.args)}
        return LocalFunction(node=node, frame=frame, defaults=defaults)

    def _run_Delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in frame.names:
                del frame.names[target.id]
            elif isinstance(target, ast.Subscript):
                owner = self.value(target.value, frame)
                self._interpreter.changing(owner)
                native(operator.delitem, owner, plain(self.value(target.slice, frame)))
            else:
                raise Undecided(f"`{ast.unparse(node)}` is not followed", frame.module.position(node))

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

    # -- expressions

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


def _is_as_it_was(value: object, items: list[object], number: int) -> bool:
    """Whether a loop still has the items before it that it began with, from that one on."""
    if not isinstance(value, (list, dict, set)):
        return True
    if len(value) != len(items):
        return False
    return not isinstance(value, list) or number == len(items) or value[number] is items[number]


def _as_read(target: ast.expr) -> ast.expr:
    """The target of an augmented assignment as what it is before."""
    read = copy.copy(target)
    read.ctx = ast.Load()  # type: ignore[attr-defined]  # what is assigned to has one
    return read
