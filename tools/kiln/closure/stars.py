"""What `from x import *` brings, read off the text of x."""

from __future__ import annotations

import ast
import dataclasses
from typing import TYPE_CHECKING

from kiln.closure import packages, scope, triton_names
from kiln.closure.module import SourceModule, Unit

_DEFINITE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.Import, ast.ImportFrom)
_BINDING = frozenset({"exec", "globals", "locals", "setattr", "vars"})
"""builtins that can bind a name which no statement binds"""

if TYPE_CHECKING:
    from kiln.closure.resolve import Project


def binding(project: Project, module: SourceModule, name: str) -> tuple[Unit, ...]:
    """The units that bind `name`; a star import that brings it stands there as an import of that name alone."""
    own = module.binding(name)
    if not module.stars or name == "__all__":
        return own
    key = (module, name)
    if key not in project.stars:
        # Files may import each other by stars; one that is being looked at brings what it binds itself.
        project.stars[key] = own
        found = [*own]
        for star in module.stars:
            if brings(project, module, star, name) and not _is_hidden(project, module, star, name):
                found.append(named(star, name))
        project.stars[key] = tuple(sorted(found, key=lambda unit: unit.index))
    return project.stars[key]


def named(star: Unit, name: str) -> Unit:
    """A star import as an import of one name."""
    assert isinstance(star.node, ast.ImportFrom)
    node = ast.ImportFrom(module=star.node.module, names=[ast.alias(name=name)], level=star.node.level)
    return dataclasses.replace(star, node=ast.copy_location(node, star.node), binds=frozenset({name}))


def _is_hidden(project: Project, module: SourceModule, star: Unit, name: str) -> bool:
    """Whether it makes no difference that a star import brings a name, for the file's own bindings of it."""
    own = module.binding(name)
    if not own:
        return False
    if own[0].index > star.index and is_definite(own[0]):
        between = module.units[star.index + 1 : own[0].index + 1]
        return not any(read.name == name for unit in between for read in scope.reads(unit.node))
    # `import triton`, and once more by the star.
    outside = _outside_of(project, module, own[-1], name)
    return outside is not None and outside == _outside_of(project, module, named(star, name), name)


def may_bind(
    project: Project,
    module: SourceModule,
    star: Unit,
    name: str,
    units: tuple[Unit, ...] = (),
    *,
    lists_change: bool = False,
) -> bool:
    """Whether a star import may give `name` another meaning than `units` do, for all that can be read off files.

    `lists_change`: other files may change the `__all__` of what it imports.
    """
    if units and units[0].index > star.index and is_definite(units[0]):
        return False
    if brings(project, module, star, name) is not None and not (lists_change and _leads(project, module, star, name)):
        return False
    outside = _outside_of(project, module, units[-1], name) if units else None
    assert isinstance(star.node, ast.ImportFrom)
    is_foreign = hasattr(project.imported(module, star.node, star.node.names[0]).module, "dotted")
    # A package hardly has another `triton`.
    return outside is None or not (is_foreign or outside == _outside_of(project, module, named(star, name), name))


def _leads(project: Project, module: SourceModule, star: Unit, name: str) -> bool:
    """Whether a star import is one of a file of the project that may have a name."""
    assert isinstance(star.node, ast.ImportFrom)
    path = getattr(project.imported(module, star.node, star.node.names[0]).module, "path", None)
    return path is not None and _may_have(project, project.open(path), name, frozenset())


def _outside_of(project: Project, module: SourceModule, unit: Unit, name: str) -> str | None:
    """The dotted name outside the project that an import binds to a name."""
    if not isinstance(unit.node, (ast.Import, ast.ImportFrom)):
        return None
    return project.canonical_import(module, unit.node, name, ())


def is_definite(unit: Unit) -> bool:
    """Whether a statement that binds a name always does; a `for` need not."""
    return isinstance(unit.node, _DEFINITE) and unit.undecided is None


def brings(
    project: Project, module: SourceModule, star: Unit, name: str, seen: frozenset[str] = frozenset()
) -> bool | None:
    """Whether a star import brings `name`; None where that cannot be read off any file."""
    assert isinstance(star.node, ast.ImportFrom)
    imported = project.needed(module, star.node, star.node.names[0])
    dotted = getattr(imported.module, "dotted", None)
    if dotted is not None:
        return _outside_brings(dotted, name)
    path = getattr(imported.module, "path", None)
    if path is None:
        return False
    other = project.open(path)
    listed = _listed(project, other, frozenset())
    if other.binding("__all__"):
        if listed is not None:
            return name in listed
        return None if _may_have(project, other, name, seen) else False
    if name.startswith("_"):
        return False
    if other.binding(name):
        return True
    if other.file in seen:
        return False
    found = [brings(project, other, inner, name, seen | {other.file}) for inner in other.stars]
    return True if True in found else None if None in found else False


def _may_have(project: Project, module: SourceModule, name: str, seen: frozenset[str]) -> bool:
    """Whether a module whose `__all__` cannot be read may have a name; it cannot list what it does not have."""
    if module.binding(name) or module.binding("__getattr__"):
        return True
    own = [unit.node for unit in module.units if not unit.binds & {"__all__"}]
    words = {child.id for node in own for child in ast.walk(node) if isinstance(child, ast.Name)}
    if words & _BINDING:
        return True
    seen |= {module.file}
    return any(brings(project, module, star, name, seen) is not False for star in module.stars)


def _outside_brings(dotted: str, name: str) -> bool | None:
    if name.startswith("_"):
        return False
    words = dotted.split(".")
    if words[0] == "triton":
        folder = triton_names.installed()
        return triton_names.brings(folder, tuple(words[1:]), name) if folder is not None else None
    if dotted in packages.COMPUTING:
        return True if name in packages.COMPUTING[dotted] else None
    return None


def _listed(project: Project, module: SourceModule, seen: frozenset[str]) -> frozenset[str] | None:
    """The names in `__all__`, or None where its value cannot be read off the text."""
    found: set[str] = set()
    for unit in module.units:
        node = unit.node
        values: list[ast.expr] = []
        if "__all__" in unit.binds:
            if unit.undecided is not None or not isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                return None
            values = [node.value] if node.value is not None else []
            if not isinstance(node, ast.AugAssign):
                found.clear()
        elif any(read.name == "__all__" for read in scope.reads(node)):
            call = node.value if isinstance(node, ast.Expr) else None
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
                return None
            values = [ast.List(elts=call.args)] if call.func.attr == "append" else call.args
            if call.func.attr not in ("append", "extend"):
                return None
        for value in values:
            names = _texts(project, module, value, seen | {module.file})
            if names is None:
                return None
            found |= names
    return frozenset(found)


def _texts(project: Project, module: SourceModule, value: ast.expr, seen: frozenset[str]) -> frozenset[str] | None:
    """The texts in a list, in sums of such, and in the `__all__` of other files."""
    if isinstance(value, (ast.List, ast.Tuple)):
        return scope.texts(value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        sides = [_texts(project, module, side, seen) for side in (value.left, value.right)]
        return None if None in sides else frozenset().union(*(side for side in sides if side is not None))
    path = scope.plain_path(value)
    if path is not None and path[1:] and path[1][-1:] == ("__all__",):
        other = project.module_at(module, path[0], path[1][:-1])
        return _listed(project, other, seen) if other is not None and other.file not in seen else None
    return None
