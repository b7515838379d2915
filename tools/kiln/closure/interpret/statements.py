"""Runs statements of plain Python for the interpreter, over its own values."""

from __future__ import annotations

import ast
import copy
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kiln.closure.interpret.builtins import EXCEPTIONS
from kiln.closure.interpret.expressions import Expressions
from kiln.closure.interpret.operations import BINARY, binary, native
from kiln.closure.interpret.sizes import bounded
from kiln.closure.interpret.values import Frame, Raised, Undecided, plain

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter


class Return(Exception):
    """`return value`"""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Statements:
    """Runs the statements of one frame at a time; what it meets besides is the interpreter's."""

    def __init__(self, interpreter: Interpreter, expressions: Expressions) -> None:
        self._interpreter = interpreter
        self._expressions = expressions

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
        self._expressions.value(node.value, frame)

    def _run_Return(self, node: ast.Return, frame: Frame) -> None:
        raise Return(None if node.value is None else self._expressions.value(node.value, frame))

    def _run_Break(self, node: ast.Break, frame: Frame) -> None:
        raise _Break

    def _run_Continue(self, node: ast.Continue, frame: Frame) -> None:
        raise _Continue

    def _run_Assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self._expressions.value(node.value, frame)
        for target in node.targets:
            self._expressions.store(target, value, frame)

    def _run_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self._expressions.store(node.target, self._expressions.value(node.value, frame), frame)

    def _run_AugAssign(self, node: ast.AugAssign, frame: Frame) -> None:
        before = self._expressions.value(_as_read(node.target), frame)
        given = self._expressions.value(node.value, frame)
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
        self._expressions.store(node.target, bounded(value), frame)

    def _run_If(self, node: ast.If, frame: Frame) -> None:
        self.run(node.body if self._expressions.truth(node.test, frame) else node.orelse, frame)

    def _run_While(self, node: ast.While, frame: Frame) -> None:
        try:
            while self._expressions.truth(node.test, frame):
                try:
                    self.run(node.body, frame)
                except _Continue:
                    continue
        except _Break:
            return
        self.run(node.orelse, frame)

    def _run_For(self, node: ast.For, frame: Frame) -> None:
        try:
            value = self._expressions.value(node.iter, frame)
            items = self._interpreter.items(value)
            for number, item in enumerate(items, 1):
                self._expressions.store(node.target, item, frame)
                with suppress(_Continue):
                    self.run(node.body, frame)
                if not _is_as_it_was(value, items, number):
                    raise Undecided("it changes what it goes through")
        except _Break:
            return
        self.run(node.orelse, frame)

    def _run_Assert(self, node: ast.Assert, frame: Frame) -> None:
        if not self._expressions.truth(node.test, frame):
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
        frame.names[node.name] = self._expressions.function(node, frame)

    def _run_Delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in frame.names:
                del frame.names[target.id]
            elif isinstance(target, ast.Subscript):
                owner = self._expressions.value(target.value, frame)
                self._interpreter.changing(owner)
                native(operator.delitem, owner, plain(self._expressions.value(target.slice, frame)))
            else:
                raise Undecided(f"`{ast.unparse(node)}` is not followed", frame.module.position(node))


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
