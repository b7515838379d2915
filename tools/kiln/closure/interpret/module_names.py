"""What names at module level stand for: the interpreter runs the live statements that bind them."""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kiln.closure import library, scope
from kiln.closure.interpret.builtins import NAMES
from kiln.closure.interpret.outside import Found
from kiln.closure.interpret.values import Frame, ModuleValue, OutsideValue, Raised, Undecided
from kiln.closure.module import SourceModule, Unit, decide
from kiln.closure.resolve import Location, Missing, is_import
from kiln.closure.resolve import Outside as OutsideModule
from kiln.errors import ClosureError

if TYPE_CHECKING:
    from kiln.closure.interpret.interpreter import Interpreter


class ModuleNames:
    """The names of modules for one run of the interpreter; what is found is kept."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._project = interpreter.project
        self._outside = interpreter.outside
        self._values: dict[tuple[str, str, tuple[int, ...]], Found] = {}
        self._running: set[tuple[str, str]] = set()
        self._live: dict[tuple[str, ast.If], Found] = {}
        self._changing: dict[str, dict[str, list[Unit]]] = {}

    def of_module(self, module: SourceModule, name: str, limit: int | None) -> object:
        """What a name of a module stands for before its statement number `limit`, or once all have run."""
        units = self.units(module, name, limit)
        if not any(name in unit.binds for unit in units):
            return self._unbound(module, name, limit)
        key = (module.file, name, tuple(unit.index for unit in units))
        if key in self._values:
            return self._outside.again(self._values[key])
        if (module.file, name) in self._running:
            raise Undecided(f"{name} depends on itself")
        if name in _declared_global(module):
            raise Undecided(f"a function of {module.file} changes {name}")
        self._running.add((module.file, name))
        try:
            self._values[key] = self._outside.noted(lambda: self._computed(module, name, units))
        finally:
            self._running.discard((module.file, name))
        return self._values[key].value

    def _computed(self, module: SourceModule, name: str, units: list[Unit]) -> object:
        frame = Frame(module=module)
        for unit in units:
            frame.limit = unit.index
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
            frame = Frame(module=module, limit=first)
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
                    for name in _changed(module, unit.node):
                        found.setdefault(name, []).append(unit)
            self._changing[module.file] = found
        return self._changing[module.file]

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
        if isinstance(imported.module, OutsideModule):
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


def _changed(module: SourceModule, node: ast.stmt) -> set[str]:
    """The names whose objects a statement changes in place."""
    found: set[str] = set()
    for child in scope.own_nodes([node]):
        if isinstance(child, (ast.Attribute, ast.Subscript)) and not isinstance(child.ctx, ast.Load):
            found |= _root(child)
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            if child.func.attr in library.CHANGING_METHODS:
                found |= _root(child.func)
        elif isinstance(child, ast.Call) and isinstance(node, ast.Expr) and isinstance(child.func, ast.Name):
            # A function of the project that is called for what it does.
            named = {item.id for item in child.args if isinstance(item, ast.Name)}
            found |= named if module.binding(child.func.id) else set()
    return found


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()
