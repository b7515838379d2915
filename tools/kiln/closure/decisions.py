"""What a cut needs to know of a world: which branches are live, and what probes, tables and the environment answer.

A cut starts with no answers. When it meets a condition that decides what a needed name stands for, or an expression
that only the machine at hand could answer, the answer is found for that place, and the cut begins anew with it. So only
what is needed is asked.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kiln.closure.entry import find
from kiln.closure.interpret.answers import UndeclaredVariable
from kiln.closure.interpret.interpreter import Interpreter
from kiln.closure.interpret.values import Frame, Raised, Undecided
from kiln.closure.module import Conditional, Decision, SourceModule, Spot, TryPath, Unit, decide, spot
from kiln.closure.names import Names
from kiln.closure.refusals import undecided_error, undeclared_error
from kiln.closure.render import Trim
from kiln.closure.resolve import Project
from kiln.closure.world import World
from kiln.errors import ClosureError, UncutError


@dataclass(frozen=True, kw_only=True)
class Fold:
    """An expression that a slice has as the constant that it gives for the world."""

    begin: Spot
    end: Spot
    text: str
    """the constant, as Python writes it"""

    def covers(self, node: ast.AST) -> bool:
        """Whether `node` of the file is the expression."""
        return isinstance(node, ast.expr) and (spot(node), _end(node)) == (self.begin, self.end)


class Refused(Exception):
    """A cut met something that only the machine at hand can answer, or that need not be there."""

    def __init__(self, trail: tuple[tuple[SourceModule, Unit], ...], error: ClosureError) -> None:
        super().__init__(str(error))
        self.trail = trail
        """the statements that lead to it, the kernel's first"""
        self.error = error


@dataclass(kw_only=True)
class Decisions:
    """The answers that a cut has so far. They become more with each round, so it is not frozen."""

    world: World | None
    branches: dict[str, dict[Spot, Decision]] = field(default_factory=dict)
    """file -> where an `if` or `try` begins -> what of it runs"""
    folds: dict[str, set[Fold]] = field(default_factory=dict)
    """file -> expressions"""
    asked: set[str] = field(default_factory=set)
    """in the words of Closure.asked"""

    def decide(self, project: Project, met: Conditional) -> None:
        """Find out what runs of the statements around a unit. Raises UncutError if nobody can tell before a run."""
        error = undecided_error(met.module, met.unit, met.name, met.at, met.via)
        found = self.branches.setdefault(met.module.file, {})
        asked: set[str] = set()
        new: dict[Spot, Decision] = {}
        try:
            if self.world is None:
                raise Undecided("the target is not known here")
            interpreter = Interpreter(project, met.module, self.world, asked)
            blocks = (*met.unit.inside, met.unit.node)
            for node, inner in zip(blocks, (*blocks[1:], None), strict=True):
                is_open = isinstance(node, ast.If) and decide(node.test, met.module.type_checks) is None
                if isinstance(node, ast.If) and is_open and spot(node) not in found:
                    new[spot(node)] = interpreter.holds(met.module, node)
                    if new[spot(node)] is not (inner in node.body):
                        break
                elif isinstance(node, ast.Try) and spot(node) not in found:
                    with interpreter.before(met.module, met.unit.index):
                        new[spot(node)] = _path(interpreter, met.module, node)
            if not new:
                raise Undecided(f"`{ast.unparse(met.unit.undecided or met.unit.node).splitlines()[0]}` is not followed")
        except UndeclaredVariable as undeclared:
            raise undeclared_error(undeclared.name, undeclared.at or error.where) from None
        except Undecided as undecided:
            raise _with_reason(error, undecided) from None
        found.update(new)
        self.asked |= asked

    def fold(self, project: Project, met: Refused) -> None:
        """Find the constants that stand for what was refused. Raises the refusal if there are none."""
        if self.world is None:
            raise met.error
        for module, unit in met.trail:
            known = self.folds.setdefault(module.file, set())
            folder = _Folder(project, self.world, module, unit.node)
            new = {fold for fold in folder.folds() if fold not in known}
            if folder.undeclared is not None:
                found = folder.undeclared
                raise undeclared_error(found.name, found.at or met.error.where)
            if new:
                known |= new
                self.asked |= folder.asked
                return
        raise met.error

    def folded(self, file: str, node: ast.stmt) -> tuple[ast.stmt, tuple[Trim, ...]]:
        """A statement with its folds as constants, and how its text differs for that."""
        folds = self.folds.get(file, ())
        found = [Trim(node=child, text=fold.text) for child in ast.walk(node) for fold in folds if fold.covers(child)]
        if not found:
            return node, ()
        renewed = _Replaced({id(trim.node): trim.text or "" for trim in found}).visit(node)
        assert isinstance(renewed, ast.stmt)
        return renewed, tuple(found)

    def answers(self) -> Mapping[str, str]:
        """What was asked -> what was answered, as text."""
        assert self.world is not None or not self.asked
        return {fact: self.world.answer(fact) for fact in sorted(self.asked)} if self.world is not None else {}


def settle(project: Project, source: Path, function: str, world: World) -> Project:
    """The project with the conditions decided that a function, and the names of its decorators, are bound under.

    Where they cannot be decided, or the function is not there, it is the project as far as that goes.
    """
    decisions = Decisions(world=world)
    while True:
        settled = dataclasses.replace(project, decided=decisions.branches)
        cutting = dataclasses.replace(settled, is_cut=True)
        for each in (settled, cutting):
            each.folders.adopted.update(project.folders.adopted)
        try:
            find(Names(cutting), cutting.open(source), function, None)
        except Conditional as met:
            try:
                decisions.decide(cutting, met)
            except ClosureError:
                return settled
        except ClosureError:
            return settled
        else:
            return settled


class _Replaced(ast.NodeTransformer):
    """Copies a tree with constants in the place of some of its nodes; the rest of the tree stays as it is."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._texts = texts

    def visit(self, node: ast.AST) -> ast.AST:
        text = self._texts.get(id(node))
        if text is not None:
            value = ast.parse(text, mode="eval").body
            return ast.copy_location(value, node)
        result = self.generic_visit(copy.copy(node))
        assert isinstance(result, ast.AST)
        return result

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in list(ast.iter_fields(node)):
            if isinstance(value, list):
                setattr(node, name, [self.visit(item) if isinstance(item, ast.AST) else item for item in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return node


def _path(interpreter: Interpreter, module: SourceModule, node: ast.Try) -> TryPath:
    """How a `try` at module level runs."""
    frame = Frame(module=module)
    for number, statement in enumerate(node.body):
        try:
            with interpreter.trying():
                interpreter.statements.statement(statement, frame)
        except Raised as error:
            try:
                handler = interpreter.statements.handler(node, error, frame)
            except Raised:
                raise Undecided(f"it raises {error.kind.__name__}: {error.text}", module.position(statement)) from None
            return TryPath(ran=number, handler=node.handlers.index(handler))
    return TryPath(ran=len(node.body), handler=None)


class _Folder:
    """Finds the expressions of one statement whose values are constants of the world."""

    def __init__(self, project: Project, world: World, module: SourceModule, node: ast.stmt) -> None:
        self._interpreter = Interpreter(project, module, world)
        self._module = module
        self._node = node
        self.asked: set[str] = set()
        self.undeclared: UndeclaredVariable | None = None

    def folds(self) -> list[Fold]:
        """The outermost expressions that are such constants, and that ask something which a slice must not."""
        return [fold for node in self._starts() for fold in self._of(node)]

    def _starts(self) -> Iterator[ast.AST]:
        if isinstance(self._node, (ast.FunctionDef, ast.ClassDef)):
            # Decorators and annotations are no values.
            yield from (ast.iter_child_nodes(self._node.args) if isinstance(self._node, ast.FunctionDef) else ())
            yield from self._node.body
        else:
            yield self._node

    def _of(self, node: ast.AST) -> Iterator[Fold]:
        if isinstance(node, (ast.arg, ast.JoinedStr)):
            return
        if isinstance(node, ast.expr) and not isinstance(node, (ast.Constant, ast.Lambda, ast.Starred)):
            if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
                return
            text = self._constant(node)
            if text is not None:
                if text:
                    yield Fold(begin=spot(node), end=_end(node), text=text)
                return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = [*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)]
            children: list[ast.AST] = [*defaults, *node.body]
        elif isinstance(node, ast.AnnAssign):
            children = [node.value] if node.value is not None else []
        else:
            children = list(ast.iter_child_nodes(node))
        for child in children:
            yield from self._of(child)

    def _constant(self, node: ast.expr) -> str | None:
        """The value as text; empty where it is constant but asks nothing; None where it is not constant."""
        limit = None if isinstance(self._node, (ast.FunctionDef, ast.ClassDef)) else _index(self._module, self._node)
        frame = Frame(module=self._module, unknown=self._unknown)
        interpreter = self._interpreter
        try:
            with interpreter.before(self._module, limit):
                found = interpreter.outside.noted(
                    lambda: interpreter.entered(lambda: interpreter.expressions.value(node, frame))
                )
        except UndeclaredVariable as error:
            self.undeclared = error
            return None
        except Undecided:
            return None
        text = _literal(found.value)
        if text is None:
            return None
        if not found.refused:
            return ""
        self.asked |= found.asked
        return text

    @cached_property
    def _unknown(self) -> frozenset[str]:
        """Every name that the statement binds anywhere inside: which one of them is meant where is not looked into."""
        names: set[str] = set()
        for child in ast.walk(self._node):
            if isinstance(child, ast.arg):
                names.add(child.arg)
            elif isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
                names.add(child.id)
            elif isinstance(child, ast.ExceptHandler) and child.name:
                names.add(child.name)
        return frozenset(names)


def _literal(value: object) -> str | None:
    """A value as Python writes it, or None for what is no constant."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return f"({'-' if value < 0 else ''}1e999)" if math.isinf(value) else f"({value!r})"
    if isinstance(value, tuple):
        parts = [_literal(item) for item in value]
        return None if None in parts else f"({''.join(f'{part}, ' for part in parts)})"
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    return f"({value!r})" if isinstance(value, int) else None


def _index(module: SourceModule, node: ast.stmt) -> int | None:
    return next((unit.index for unit in module.units if spot(unit.node) == spot(node)), None)


def _end(node: ast.AST) -> Spot:
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)


def _with_reason(error: ClosureError, undecided: Undecided) -> ClosureError:
    where = f" ({undecided.at})" if undecided.at is not None else ""
    return UncutError(
        error.what,
        where=error.where,
        expected=error.expected,
        actual=f"{error.actual}; {undecided.reason}{where}",
        remedy=error.remedy,
    )
