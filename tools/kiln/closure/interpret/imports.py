"""Whether the import of a project's module, which code tries, ends well: what the modules do when they are imported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from kiln.closure import scope
from kiln.closure.interpret.values import Undecided
from kiln.closure.module import SourceModule, Unit
from kiln.closure.resolve import Location, Missing, Outside, Project
from kiln.errors import ClosureError

_EXITS = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})


def check_import(
    project: Project,
    location: Location,
    begun: set[str],
    is_live: Callable[[SourceModule, Unit], bool],
    exists: Callable[[str], bool | None],
) -> None:
    """Raise Undecided where the import of a module may raise: it says so, or imports what may be missing.

    `begun` are the files whose import has begun before, and is not tried here; `exists` says of other packages' modules
    whether they are there.
    """
    pending, seen = [location], set(begun)
    while pending:
        place = pending.pop()
        around = [project.locate(place.parts[:depth]) for depth in range(1, len(place.parts))]
        for each in (place, *around):
            if each is None or each.path is None:
                continue
            module = project.open(each.path)
            if module.file not in seen:
                seen.add(module.file)
                pending += _imported(project, module, is_live, exists)


def _imported(
    project: Project,
    module: SourceModule,
    is_live: Callable[[SourceModule, Unit], bool],
    exists: Callable[[str], bool | None],
) -> Iterator[Location]:
    """The modules of the project that a module imports."""
    for unit in module.units:
        tried = isinstance(unit.node, ast.Try)
        if not any(_may_raise(node) for node in scope.own_nodes([unit.node])) or not is_live(module, unit):
            continue
        for node in scope.own_nodes([unit.node]):
            where = module.position(node) if hasattr(node, "lineno") else module.position(unit.node)
            if isinstance(node, (ast.Raise, ast.Assert)) or _is_exit(node):
                raise Undecided(f"whether the import of {module.file} raises is not followed", where)
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) and not tried else ():
                assert isinstance(node, (ast.Import, ast.ImportFrom))
                found = _module(project, module, node, alias)
                if isinstance(found, Location):
                    yield found
                elif found is None or exists(found.dotted) is False:
                    raise Undecided(f"{module.file} imports what may be missing: `{ast.unparse(node)}`", where)


def _module(
    project: Project, module: SourceModule, node: ast.Import | ast.ImportFrom, alias: ast.alias
) -> Location | Outside | None:
    """The module that one name of an import statement makes Python import; None where there is none."""
    if isinstance(node, ast.Import):
        # With `as`, the name means the last module of the path, not the first.
        alias = ast.alias(name=alias.name, asname="_")
        node = ast.copy_location(ast.Import(names=[alias]), node)
    try:
        imported = project.imported(module, node, alias)
        if isinstance(imported.module, Outside) or alias.name == "*":
            return imported.module
        end = project.follow(imported.module, imported.names, module)
    except ClosureError:
        return None
    if isinstance(end, Missing):
        stars = project.open(end.location.path).stars if end.location.path is not None else ()
        return imported.module if stars else None
    return end if isinstance(end, Location) else imported.module


def _may_raise(node: ast.AST) -> bool:
    return isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)) or _is_exit(node)


def _is_exit(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in _EXITS
