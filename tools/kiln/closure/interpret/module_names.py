"""What names at module level stand for: the interpreter runs the live statements that bind them."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kiln.closure import packages, scope
from kiln.closure.interpret.builtins import NAMES
from kiln.closure.interpret.outside_names import Found
from kiln.closure.interpret.values import Frame, ModuleValue, OutsideValue, Raised, Undecided
from kiln.closure.module import SourceModule, Unit, decide
from kiln.closure.names import Names
from kiln.closure.resolve import Definition, Location, Missing, Outside, is_import
from kiln.errors import ClosureError

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter

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
        self._shared: dict[str, dict[str, set[int]]] = {}

    def of_module(self, module: SourceModule, name: str, limit: int | None) -> object:
        """What a name of a module stands for before its statement number `limit`, or once all have run."""
        units = self.units(module, name, limit)
        if not any(name in unit.binds for unit in units):
            return self._unbound(module, name, limit)
        key = (module.file, name, tuple(unit.index for unit in units))
        if key in self._values:
            return self._unshared(module, name, limit, self._outside.again(self._values[key]))
        if (module.file, name) in self._running:
            raise Undecided(f"{name} depends on itself")
        if name in _declared_global(module):
            raise Undecided(f"a function of {module.file} changes {name}")
        self._running.add((module.file, name))
        try:
            self._values[key] = self._outside.noted(lambda: self._computed(module, name, units))
        finally:
            self._running.discard((module.file, name))
        return self._unshared(module, name, limit, self._interpreter.share(self._values[key].value))

    def _unshared(self, module: SourceModule, name: str, limit: int | None, value: object) -> object:
        """A name's value, which no statement has changed under another name of the same object."""
        if isinstance(value, (list, dict, set)):
            if module.file not in self._shared:
                self._shared[module.file] = _changed_elsewhere(module, self._changes(module))
            if any(limit is None or index < limit for index in self._shared[module.file].get(name, ())):
                raise Undecided(f"what {name} stands for is changed under another name")
        return value

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
            self._interpreter.code.statement(node, frame)

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
        known = decide(node.test)
        if known is not None:
            return known
        if key not in self._live:
            first = min((unit.index for unit in module.units if node in unit.inside), default=None)
            with self._interpreter.before(module, first):
                frame = Frame(module=module)
                self._live[key] = self._outside.noted(lambda: self._interpreter.code.truth(node.test, frame))
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
            return (self.of_module(other, name, None),)
        return None

    def imported(self, module: SourceModule, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> object:
        """What one name of an import statement stands for; what cannot be imported raises ImportError in the code."""
        try:
            imported = self._project.needed(module, node, alias)
        except ClosureError as error:
            raise Raised(ModuleNotFoundError, error.what) from None
        if isinstance(imported.module, Location):
            return self.below(imported.module, imported.names, module, ImportError)
        dotted = ".".join((imported.module.dotted, *imported.names))
        path = alias.name if isinstance(node, ast.Import) else imported.module.dotted
        if self._outside.exists(path) is False:
            raise Raised(ModuleNotFoundError, f"there is no {path} where kernels are built")
        if self._outside.exists(dotted) is False:
            raise Raised(ImportError, f"there is no {dotted} where kernels are built")
        return self._outside.value(dotted)

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
        value = self.of_module(end.module, end.name, None)
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


def _changed_elsewhere(module: SourceModule, changes: Mapping[str, list[Unit]]) -> dict[str, set[int]]:
    """name -> the statements that may change its object under another name, which `other = name` has given to it."""
    grown = {
        name: [unit.index for unit in module.binding(name) if isinstance(unit.node, ast.AugAssign)]
        for name in module.by_name
    }
    found: dict[str, set[int]] = {}
    for unit in module.units:
        node = unit.node
        if not isinstance(node, ast.Assign):
            continue
        alike = [item.id for item in (*node.targets, node.value) if isinstance(item, ast.Name)]
        for one, other in itertools.permutations(alike, 2):
            after = [*grown.get(other, ()), *(change.index for change in changes.get(other, ()))]
            found.setdefault(one, set()).update(index for index in after if index > unit.index)
    return found


def _names_in(node: ast.AST) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
