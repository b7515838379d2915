"""Tells decorators that only launch a jitted function from those that may change what Triton compiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kiln.closure import packages, scope
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Definition, Outside, Project, alias_of, is_import

_LAUNCHING = frozenset(
    {
        "torch._dynamo.allow_in_graph",
        "torch._dynamo.disable",
        "torch._library.capture_triton",
        "torch.compiler.allow_in_graph",
        "torch.compiler.disable",
        "torch.library.wrap_triton",
    }
)
_LAUNCHERS = frozenset({"libentry", "libtuner"})
"""names under which packages that are not read here give such decorators"""
_REACHES_IN = frozenset(
    {
        "__closure__",
        "__code__",
        "__defaults__",
        "__dict__",
        "__globals__",
        "_unsafe_update_src",
    }
)
"""attributes through which a function, or what Triton made of it, can be made another"""
_LISTS = frozenset({"arg_names", "constexprs", "params"})
"""attributes that tuners read, and that could be changed in place"""
_RUN = frozenset({"compile", "delattr", "eval", "exec", "setattr", "vars"})
_JITS = frozenset({"triton.jit", "triton.runtime.JITFunction", "triton.runtime.jit", "triton.runtime.jit.JITFunction"})
_MADE = frozenset({"__init__", "__new__", "__post_init__"})


def only_launches(project: Project, module: SourceModule, decorator: ast.expr, dotted: str | None) -> bool:
    """Whether a decorator above `@triton.jit` leaves the jitted function as it is; `dotted` is its name outside.

    Those of the project, and of installed packages, are read: one that stores into nothing but its own objects, reaches
    into no function and compiles none anew can only call what it was given, or hand it on.
    """
    if dotted is not None and packages.is_foreign(dotted):
        return dotted in _LAUNCHING or dotted.rpartition(".")[2] in _LAUNCHERS
    path = scope.plain_path(scope.decorated_with(decorator))
    found = _definition(project, module, *path) if path is not None else None
    return found is not None and all(_leaves(project, *piece) for piece in _run(project, *found))


def _definition(
    project: Project, module: SourceModule, name: str, attributes: tuple[str, ...]
) -> tuple[SourceModule, ast.FunctionDef | ast.ClassDef] | None:
    """The function or class of a project file behind a name."""
    seen: set[tuple[str, str]] = set()
    while (module.file, name) not in seen and (units := project.binding(module, name)):
        seen.add((module.file, name))
        unit = units[-1]
        if isinstance(unit.node, (ast.Import, ast.ImportFrom)) and is_import(unit):
            imported = project.needed(module, unit.node, alias_of(unit.node, name))
            if isinstance(imported.module, Outside):
                return None
            end = project.follow(imported.module, (*imported.names, *attributes), module)
            if not isinstance(end, Definition):
                return None
            module, name, attributes = end.module, end.name, end.attributes
        elif isinstance(unit.node, ast.Assign) and (path := scope.plain_path(unit.node.value)) is not None:
            name, attributes = path[0], (*path[1], *attributes)
        else:
            is_one = len(units) == 1 and not attributes and unit.undecided is None
            return (module, unit.node) if is_one and isinstance(unit.node, (ast.FunctionDef, ast.ClassDef)) else None
    return None


def _run(
    project: Project, module: SourceModule, node: ast.FunctionDef | ast.ClassDef
) -> Iterator[tuple[SourceModule, ast.FunctionDef | ast.ClassDef, bool]]:
    """The project's code that runs when something is decorated, and whether it is a method."""
    pending, seen = [(module, node)], set[ast.AST]()
    while pending:
        module, node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pieces: list[ast.FunctionDef | ast.ClassDef] = [node]
        if isinstance(node, ast.ClassDef):
            pieces = [child for child in node.body if isinstance(child, ast.FunctionDef) and child.name in _MADE]
        for piece in pieces:
            yield module, piece, isinstance(node, ast.ClassDef)
            for child in ast.walk(piece):
                if isinstance(child, ast.Name) and project.binding(module, child.id):
                    found = _definition(project, module, child.id, ())
                    if found is not None:
                        pending.append(found)


def _leaves(project: Project, module: SourceModule, node: ast.FunctionDef | ast.ClassDef, is_method: bool) -> bool:
    """Whether code neither changes a function that it gets nor makes another one of it."""
    own = node.args.args[0].arg if is_method and isinstance(node, ast.FunctionDef) and node.args.args else None
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute):
            if project.canonical(module, child) in _JITS:
                return False
            stores = not isinstance(child.ctx, ast.Load)
            if stores and not (isinstance(child.value, ast.Name) and child.value.id == own):
                return False
            if not stores and child.attr in _REACHES_IN:
                return False
            held = child.value.attr if isinstance(child.value, ast.Attribute) else None
            if held in _LISTS and child.attr in packages.CHANGING_METHODS:
                return False
        elif isinstance(child, ast.Name) and (child.id in _RUN or project.canonical(module, child) in _JITS):
            return False
    return True
