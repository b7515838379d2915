"""Annotations that say nothing to Triton, such as `x: torch.Tensor`: a slice has neither them nor what they name."""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Iterator

from kiln.closure import jit, packages, scope
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Project

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_foreign(project: Project, module: SourceModule, annotation: ast.expr | None) -> bool:
    """Whether an annotation names something of a package that is neither Triton nor Python's, and no constexpr.

    Triton looks for the word `constexpr` and for its own types. A call could give either, and so is never foreign.
    """
    return annotation is not None and _foreign(project, module, annotation, frozenset()) is True


def _foreign(
    project: Project, module: SourceModule, annotation: ast.expr, seen: frozenset[tuple[str, str]]
) -> bool | None:
    """None where the annotation may mean a constexpr."""
    if "constexpr" in ast.unparse(annotation) or any(isinstance(node, ast.Call) for node in ast.walk(annotation)):
        return None
    found = False
    for read in [read for part in _evaluated(annotation) for read in scope.reads(part)]:
        outside = project.canonical_path(module, read.name, read.attributes)
        if outside in jit.CONSTEXPR:
            return None
        if outside is not None:
            found = found or packages.is_foreign(outside)
        elif not module.binding(read.name):
            # Imported for type checkers alone.
            found = found or read.name in module.dead
        elif not read.attributes and (module.file, read.name) not in seen:
            # `Tensor = torch.Tensor | None`
            for unit in module.binding(read.name):
                if isinstance(unit.node, ast.Assign):
                    inner = _foreign(project, module, unit.node.value, seen | {(module.file, read.name)})
                    if inner is None:
                        return None
                    found = found or inner
    return found


def _evaluated(annotation: ast.expr) -> Iterator[ast.expr]:
    """An annotation, and those that stand as text in it."""
    yield annotation
    for node in ast.walk(annotation):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError, ValueError):
                yield ast.parse(node.value, mode="eval").body


def without_foreign(project: Project, module: SourceModule, node: ast.stmt) -> tuple[ast.stmt, tuple[ast.expr, ...]]:
    """A statement without the foreign annotations of the functions in it, and what was taken off."""
    places = [
        (number, name, annotation)
        for number, child in enumerate(ast.walk(node))
        for name in ("annotation", "returns")
        if isinstance(child, (ast.arg, *_Function)) and (annotation := getattr(child, name, None)) is not None
        if is_foreign(project, module, annotation)
    ]
    if not places:
        return node, ()
    renewed = copy.deepcopy(node)
    children = list(ast.walk(renewed))
    for number, name, _ in places:
        setattr(children[number], name, None)
    return renewed, tuple(annotation for _, _, annotation in places)
