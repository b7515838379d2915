"""What names at module level stand for: the interpreter runs the live statements that bind them."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kiln.closure import packages, scope
from kiln.closure.interpret.builtins import NAMES
from kiln.closure.interpret.changes import Changes, can_change, has_iterator
from kiln.closure.interpret.imports import check_import
from kiln.closure.interpret.outside_names import Found
from kiln.closure.interpret.values import Frame, ModuleValue, OutsideValue, Raised, Undecided
from kiln.closure.module import SourceModule, Unit, decide
from kiln.closure.names import Names
from kiln.closure.resolve import Definition, Location, Missing, Outside, is_import
from kiln.errors import ClosureError

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A name of a module that was read while other modules, or this one, were being imported."""

    module: SourceModule
    name: str
    limits: Mapping[str, int]
    """how far each of them had come; see Interpreter.limits"""


_CHANGE_WHAT_THEY_GET = ("bisect.", "heapq.", "operator.", "random.")
"""modules of Python's library whose functions may change a list that they are given"""


class ModuleNames:
    """The names of modules for one run of the interpreter; what is found is kept."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._project = interpreter.project
        self._outside = interpreter.outside
        self._values: dict[tuple[str, str, tuple[int, ...]], Found] = {}
        self._running: set[tuple[str, str]] = set()
        self._live: dict[tuple[str, ast.If], Found] = {}
        self._traced = Names(self._project)
        self._changing: dict[str, dict[str, list[Unit]]] = {}
        self._changes_of = Changes(self._project, self._traced, interpreter.start)
        self._checking: set[tuple[str, str]] = set()
        self._reads: list[dict[tuple[str, str], _Read]] = [{}]
        """by piece of code that is run, the innermost last: the names that it read whose objects can change"""
        self._held: dict[tuple[str, str, tuple[int, ...]], dict[tuple[str, str], _Read]] = {}
        """of a value: the same for what it was computed from, and may hold"""

    def of_module(self, module: SourceModule, name: str, limit: int | None) -> object:
        """What a name of a module stands for before its statement number `limit`, or once all have run."""
        units = self.units(module, name, limit)
        if not any(name in unit.binds for unit in units):
            return self._unbound(module, name, limit)
        key = (module.file, name, tuple(unit.index for unit in units))
        if key in self._values:
            return self._checked(module, name, limit, units, self._outside.again(self._values[key]))
        if (module.file, name) in self._running:
            raise Undecided(f"{name} depends on itself")
        if name in _declared_global(module):
            raise Undecided(f"a function of {module.file} changes {name}")
        self._running.add((module.file, name))
        self._reads.append({})
        try:
            self._values[key] = self._outside.noted(lambda: self._computed(module, name, units))
            self._held[key] = self._reads[-1]
        finally:
            self._reads.pop()
            self._running.discard((module.file, name))
        return self._checked(module, name, limit, units, self._interpreter.share(self._values[key].value))

    def _checked(self, module: SourceModule, name: str, limit: int | None, units: list[Unit], value: object) -> object:
        """A name's value, which nothing has changed by now but the statements `units`, which were run."""
        place = (module.file, name)
        if place in self._checking:
            raise Undecided(f"{name} depends on itself")
        if has_iterator(value):
            raise Undecided(f"what is left of {name} when it is read is not followed")
        in_place = can_change(value)
        self._checking.add(place)
        try:
            now = self._interpreter.limits()
            # What is done before the name is bound, to an object that then gets it, is done to where that comes from.
            first = min(unit.index for unit in units if name in unit.binds)
            done = {*range(first), *(unit.index for unit in units)}
            for other, unit in self._changes_of.of(module, name, in_place=in_place):
                end = limit if other.file == module.file else now.get(other.file)
                is_done = other.file == module.file and unit.index in done
                if not is_done and (end is None or unit.index < end) and self._is_live(other, unit):
                    raise Undecided(f"line {unit.node.lineno} of {other.file} may change what {name} stands for")
            if in_place:
                held = self._held[module.file, name, tuple(unit.index for unit in units)]
                for read in held.values():
                    self._check_held(read, now, name)
                # The first time that a name was read counts: what changes later has changed since.
                self._reads[-1] = {**held, place: _Read(module=module, name=name, limits=now), **self._reads[-1]}
        finally:
            self._checking.discard(place)
        return value

    def _check_held(self, read: _Read, now: Mapping[str, int], name: str) -> None:
        """Check that what a value was computed from, and may hold, has not been changed since."""
        for other, unit in self._changes_of.of(read.module, read.name, in_place=True):
            then = read.limits.get(other.file)
            end = now.get(other.file)
            if then is not None and then <= unit.index and (end is None or unit.index < end):
                raise Undecided(f"line {unit.node.lineno} of {other.file} may change what {name} holds")

    def _computed(self, module: SourceModule, name: str, units: list[Unit]) -> object:
        frame = Frame(module=module)
        for unit in units:
            with self._interpreter.before(module, unit.index):
                self._run_unit(unit, name, frame)
        if name not in frame.names:
            raise Raised(NameError, f"{name} has no value")
        return frame.names[name]

    def _run_unit(self, unit: Unit, name: str, frame: Frame) -> None:
        node = unit.node
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) == name:
                    frame.names[name] = self.imported(frame.module, node, alias)
        else:
            self._interpreter.statements.statement(node, frame)

    def units(self, module: SourceModule, name: str, limit: int | None) -> list[Unit]:
        """The statements that bind a name or change its object in place, as far as they are live, in order."""
        units = {unit.index: unit for unit in (*module.binding(name), *self._changes(module).get(name, ()))}
        return [
            unit
            for index, unit in sorted(units.items())
            if (limit is None or index < limit) and self._is_live(module, unit)
        ]

    def _is_live(self, module: SourceModule, unit: Unit) -> bool:
        if unit.undecided is None:
            return True
        blocks = (*unit.inside, unit.node)
        for around, inner in itertools.pairwise(blocks):
            if isinstance(around, ast.If) and self.condition(module, around) is not (inner in around.body):
                return False
        return True

    def condition(self, module: SourceModule, node: ast.If) -> bool:
        key = (module.file, node)
        known = decide(node.test, module.type_checks)
        if known is not None:
            return known
        if key not in self._live:
            first = min((unit.index for unit in module.units if node in unit.inside), default=None)
            with self._interpreter.before(module, first):
                frame = Frame(module=module)
                self._live[key] = self._outside.noted(lambda: self._interpreter.expressions.truth(node.test, frame))
        return bool(self._outside.again(self._live[key]))

    def _changes(self, module: SourceModule) -> Mapping[str, list[Unit]]:
        """name -> the statements at module level that change its object: `configs.append(...)`, `fill(configs)`."""
        if module.file not in self._changing:
            found: dict[str, list[Unit]] = {}
            for unit in module.units:
                if not isinstance(unit.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not is_import(
                    unit
                ):
                    for name in self._changed(module, unit.node):
                        found.setdefault(name, []).append(unit)
            self._changing[module.file] = found
        return self._changing[module.file]

    def _changed(self, module: SourceModule, node: ast.stmt) -> set[str]:
        """The names whose objects a statement changes in place."""
        found: set[str | None] = set()
        for child in scope.own_nodes([node]):
            if isinstance(child, (ast.Attribute, ast.Subscript)) and not isinstance(child.ctx, ast.Load):
                found.add(scope.root_name(child))
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
                if child.func.attr in packages.CHANGING_METHODS:
                    found.add(scope.root_name(child.func))
            elif isinstance(child, ast.Call) and isinstance(node, ast.Expr) and isinstance(child.func, ast.Name):
                # A function of the project that is called for what it does.
                named = {item.id for item in child.args if isinstance(item, ast.Name)}
                found |= named if module.binding(child.func.id) else set()
            if isinstance(child, ast.Call) and self._may_change(module, child.func):
                given = [*child.args, *(keyword.value for keyword in child.keywords)]
                found.update(*map(_names_in, given))
        for child in scope.own_nodes([node]):
            if isinstance(child, (ast.For, ast.comprehension)) and found & _names_in(child.target):
                found |= _names_in(child.iter)
        return {name for name in found if name is not None}

    def _may_change(self, module: SourceModule, function: ast.expr, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether a call may change what it is given: one of the project's functions that change anything, or a few."""
        path = scope.plain_path(function)
        target = self._traced.trace(module, *path) if path is not None else None
        if isinstance(target, Outside):
            return target.dotted.startswith(_CHANGE_WHAT_THEY_GET)
        if not isinstance(target, Definition):
            return False
        for unit in target.module.binding(target.name):
            if not isinstance(unit.node, ast.FunctionDef) or target.attributes:
                return not isinstance(unit.node, ast.ClassDef)
            if unit.node in seen:
                continue
            for child in ast.walk(unit.node):
                if isinstance(child, (ast.AugAssign, ast.Delete)):
                    return True
                if isinstance(child, (ast.Attribute, ast.Subscript)) and not isinstance(child.ctx, ast.Load):
                    return True
                if isinstance(child, ast.Call):
                    if isinstance(child.func, ast.Attribute) and child.func.attr in packages.CHANGING_METHODS:
                        return True
                    if self._may_change(target.module, child.func, seen | {unit.node}):
                        return True
        return False

    def _unbound(self, module: SourceModule, name: str, limit: int | None) -> object:
        for star in reversed(module.stars):
            if (limit is None or star.index < limit) and self._is_live(module, star):
                found = self._from_star(module, star, name)
                if found is not None:
                    return found[0]
        if name in NAMES:
            return OutsideValue(dotted=f"builtins.{name}")
        if hasattr(builtins, name) or name.startswith("__"):
            raise Undecided(f"{name} is not followed")
        raise Raised(NameError, f"{module.file} has no name {name!r}")

    def _from_star(self, module: SourceModule, star: Unit, name: str) -> tuple[object] | None:
        """What `from x import *` brings for a name, if it brings it."""
        assert isinstance(star.node, ast.ImportFrom)
        if name.startswith("_"):
            return None
        imported = self._project.needed(module, star.node, star.node.names[0])
        if isinstance(imported.module, Outside):
            dotted = f"{imported.module.dotted}.{name}"
            return (self._outside.value(dotted),) if self._outside.exists(dotted) else None
        if imported.module.path is None:
            return None
        other = self._project.open(imported.module.path)
        if other.binding(name) or any(self._from_star(other, inner, name) for inner in other.stars):
            return (self._of_other(other, name),)
        return None

    def _of_other(self, module: SourceModule, name: str) -> object:
        """What a name of a module that an import statement leads to stands for by now."""
        return self.of_module(module, name, self._interpreter.limit(module))

    def imported(self, module: SourceModule, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> object:
        """What one name of an import statement stands for; what cannot be imported raises ImportError in the code."""
        try:
            imported = self._project.needed(module, node, alias)
        except ClosureError as error:
            raise Raised(ModuleNotFoundError, error.what) from None
        if isinstance(imported.module, Location):
            if self._interpreter.is_trying:
                module_of = self._project.follow(imported.module, imported.names, module)
                whole = module_of if isinstance(module_of, Location) else imported.module
                check_import(self._project, whole, self._begun(), self._is_live, self._outside.exists)
            return self.below(imported.module, imported.names, module, ImportError)
        dotted = ".".join((imported.module.dotted, *imported.names))
        path = alias.name if isinstance(node, ast.Import) else imported.module.dotted
        if self._outside.exists(path) is False:
            raise Raised(ModuleNotFoundError, f"there is no {path} where kernels are built")
        if self._outside.exists(dotted) is False:
            raise Raised(ImportError, f"there is no {dotted} where kernels are built")
        return self._outside.value(dotted)

    def _begun(self) -> set[str]:
        """The files whose import began before that of the code at hand."""
        start = self._interpreter.start
        location = self._project.folders.spelled(start) or ()
        around = [self._project.locate(location[:depth]) for depth in range(1, len(location))]
        packages = {self._project.open(each.path).file for each in around if each is not None and each.path is not None}
        return {*self._interpreter.limits(), *packages}

    def below(
        self, location: Location, path: tuple[str, ...], importer: SourceModule, error: type[BaseException]
    ) -> object:
        """What a path of names leads to, from a module of the project."""
        try:
            end = self._project.follow(location, path, importer)
        except ClosureError as problem:
            raise Undecided(problem.what) from None
        if isinstance(end, Location):
            return ModuleValue(location=end, importer=importer)
        if isinstance(end, Missing):
            return self._missing(end, error)
        value = self._of_other(end.module, end.name)
        for attribute in end.attributes:
            value = self._interpreter.attribute(value, attribute)
        return value

    def _missing(self, missing: Missing, error: type[BaseException]) -> object:
        if missing.location.path is not None:
            module = self._project.open(missing.location.path)
            for star in reversed(module.stars):
                found = self._from_star(module, star, missing.name)
                if found is not None:
                    return found[0]
        raise Raised(error, f"{'.'.join(missing.location.parts)} has no name {missing.name!r}")


def _declared_global(module: SourceModule) -> frozenset[str]:
    """The names that functions of a module declare `global`, and so may bind anew whenever they are called."""
    text = any(line.lstrip().startswith("global ") for line in module.lines)
    if not text:
        return frozenset()
    nodes = [node for unit in module.units for node in ast.walk(unit.node)]
    return frozenset(name for node in nodes if isinstance(node, ast.Global) for name in node.names)


def _names_in(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
