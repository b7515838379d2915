"""What the names of a project's files stand for, at module level and in functions: definitions, modules, places."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field

from kiln.closure import packages, scope, stars
from kiln.closure.module import SourceModule, Unit
from kiln.closure.resolve import Definition, Location, Missing, Outside, Project, alias_of, bound_by
from kiln.errors import ClosureError

Place = tuple[str, str]
"""what refers to an object: (file, name) is a name at module level of a project file, (file, "") that module itself,
(OUTSIDE, dotted name) something of another package, ("", ...) a variable of a function"""

OUTSIDE = "<outside>"
ANY = "<any>"
"""the file of a module that is looked up by a name which only a run can tell: (ANY, name) is that name in any file"""

ANY_MODULE: Place = (ANY, "")

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, kw_only=True)
class Builtin:
    name: str
    attributes: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether a call changes what it is given: `setattr(c, "S", 1)`, `dict.update(d, S=1)`."""
        if self.attributes:
            return self.attributes[-1] not in packages.READING_METHODS
        return self.name in ("setattr", "delattr")


@dataclass(frozen=True, kw_only=True)
class Local:
    """A variable of a function, and the attributes that are read off it."""

    place: Place
    attributes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The names of a function, a class body or a comprehension."""

    prefix: str
    names: frozenset[str]
    globals: frozenset[str] = frozenset()
    imports: Mapping[str, ast.Import | ast.ImportFrom] = field(default_factory=dict)
    is_class: bool = False
    is_function: bool = False

    def place(self, name: str) -> Place:
        return ("", f"{self.prefix}{name}")


Target = Definition | Location | Outside | Builtin


class Names:
    """Looks names up across a project. Whatever cannot be found counts as something outside that nobody knows."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.modules: dict[str, SourceModule] = {}
        self._scopes: dict[Function, Scope] = {}
        self._traced: dict[tuple[str, str, tuple[str, ...]], Target] = {}

    def trace(self, module: SourceModule, name: str, attributes: tuple[str, ...] = ()) -> Target:
        """Follow imports, across files, to where a name of `module` is defined."""
        key = (module.file, name, attributes)
        if key not in self._traced:
            self._traced[key] = self._trace(module, name, attributes)
        return self._traced[key]

    def _trace(self, module: SourceModule, name: str, attributes: tuple[str, ...]) -> Target:
        seen: set[tuple[str, str]] = set()
        while (module.file, name) not in seen:
            seen.add((module.file, name))
            self.modules[module.file] = module
            units, known = self._binding(module, name)
            if not units:
                known = known and hasattr(builtins, name)
                return Builtin(name=name, attributes=attributes) if known else Outside(dotted=f"?.{name}")
            found = _import(units[-1].node, name)
            if found is None:
                return Definition(module=module, name=name, attributes=attributes)
            end = self.through(module, found, name, attributes)
            if not isinstance(end, Definition):
                return end
            module, name, attributes = end.module, end.name, end.attributes
        return Outside(dotted=f"?.{name}")

    def _binding(self, module: SourceModule, name: str) -> tuple[tuple[Unit, ...], bool]:
        """The units that bind a name, and whether there can be no others."""
        try:
            units = self.project.binding(module, name)
            return units, all(stars.brings(self.project, module, star, name) is not None for star in module.stars)
        except ClosureError:
            return module.binding(name), False

    def through(
        self, module: SourceModule, node: ast.Import | ast.ImportFrom, name: str, attributes: tuple[str, ...]
    ) -> Definition | Location | Outside:
        """What the import statement `node` binds to `name`, and the attributes of it, stand for."""
        try:
            imported = self.project.imported(module, node, alias_of(node, name))
            path = (*imported.names, *attributes)
            if isinstance(imported.module, Outside):
                return Outside(dotted=".".join((imported.module.dotted, *path)))
            end = self.project.follow(imported.module, path, module)
        except ClosureError:
            # The kernel need not need it; if it does, the error is told when it is kept.
            return Outside(dotted=f"?.{name}")
        if isinstance(end, Missing):
            return end.location if end.name == "__dict__" else Outside(dotted=f"?.{name}")
        return end

    def place(self, target: Definition | Location | Outside) -> Place | None:
        """The place of a target, but for the attributes that go on from it."""
        if isinstance(target, Outside):
            return (OUTSIDE, target.dotted)
        if isinstance(target, Definition):
            self.modules[target.module.file] = target.module
            return (target.module.file, target.name)
        try:
            return None if target.path is None else (self.project.open(target.path).file, "")
        except ClosureError:
            return None

    def scope_of(self, module: SourceModule, node: Function) -> Scope:
        if node not in self._scopes:
            body = node.body if isinstance(node.body, list) else []
            outer = scope.declared(body, ast.Global)
            names, rest = parameters_of(node)
            bound = frozenset().union(*map(scope.binds, body)) if body else frozenset()
            self._scopes[node] = Scope(
                prefix=prefix(module, node),
                names=(frozenset(names + rest) | bound) - outer - scope.declared(body, ast.Nonlocal),
                globals=outer,
                imports=imports_in(body),
                is_function=True,
            )
        return self._scopes[node]


def parameters_of(node: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of a function's parameters, and those of its `*args` and `**kwargs`."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    return tuple(item.arg for item in named), tuple(item.arg for item in rest)


def prefix(module: SourceModule, node: ast.AST) -> str:
    """What sets the variables of one scope apart from those of all others."""
    return f"{module.file}:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}:"


def imports_in(body: list[ast.stmt]) -> dict[str, ast.Import | ast.ImportFrom]:
    """The names that import statements in a body bind."""
    return {
        bound_by(alias): node
        for node in scope.own_nodes(body)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def _import(node: ast.stmt, name: str) -> ast.Import | ast.ImportFrom | None:
    """The import that binds `name` in a statement; the first of those that a `try` may come to."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)):
        return None
    for child in ast.walk(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)) and any(bound_by(alias) == name for alias in child.names):
            return child
    return None
