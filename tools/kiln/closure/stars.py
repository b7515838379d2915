"""What `from x import *` brings, read off the text of x."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from kiln.closure import packages, scope
from kiln.closure.module import SourceModule, Unit, load_module

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
    if own[0].index > star.index:
        between = module.units[star.index + 1 : own[0].index + 1]
        return not any(read.name == name for unit in between for read in scope.reads(unit.node))
    if not isinstance(own[-1].node, (ast.Import, ast.ImportFrom)):
        return False
    # `import triton`, and once more by the star.
    node = named(star, name).node
    assert isinstance(node, ast.ImportFrom)
    outside = project.canonical_import(module, own[-1].node, name, ())
    return outside is not None and outside == project.canonical_import(module, node, name, ())


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
        return None if listed is None else name in listed
    if name.startswith("_"):
        return False
    if other.binding(name):
        return True
    if other.file in seen:
        return False
    found = [brings(project, other, inner, name, seen | {other.file}) for inner in other.stars]
    return True if True in found else None if None in found else False


def _outside_brings(dotted: str, name: str) -> bool | None:
    words = dotted.split(".")
    if words[0] == "triton":
        file = _triton_file(words[1:])
        if file is None:
            return None
        module = load_module(file, f"triton/{'/'.join(words[1:])}")
        listed = _constant_list(module)
        if listed is not None:
            return name in listed
        return bool(module.binding(name)) and not name.startswith("_") if not module.stars else None
    if dotted in packages.COMPUTING:
        return True if name in packages.COMPUTING[dotted] else None
    return None


def _triton_file(words: list[str]) -> Path | None:
    """The file of a module of Triton, which is not imported for that."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return None
    place = Path(found.origin).parent.joinpath(*words)
    paths = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in paths if path.is_file()), None)


def _constant_list(module: SourceModule) -> frozenset[str] | None:
    """`__all__` where one statement gives it as plain text."""
    units = module.binding("__all__")
    value = getattr(units[0].node, "value", None) if len(units) == 1 else None
    return _literal(value) if isinstance(value, (ast.List, ast.Tuple)) else None


def _literal(value: ast.List | ast.Tuple) -> frozenset[str] | None:
    texts = [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return frozenset(texts) if len(texts) == len(value.elts) else None


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
        return _literal(value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        sides = [_texts(project, module, side, seen) for side in (value.left, value.right)]
        return None if None in sides else frozenset().union(*(side for side in sides if side is not None))
    path = scope.plain_path(value)
    if path is not None and path[1:] and path[1][-1:] == ("__all__",):
        other = project.module_at(module, path[0], path[1][:-1])
        return _listed(project, other, seen) if other is not None and other.file not in seen else None
    return None
