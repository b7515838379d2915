"""The parameters of a kernel, or of a function that makes it, as its `def` has them."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from dataclasses import dataclass

from kiln.closure import jit, scope
from kiln.closure.annotations import is_foreign
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Project


@dataclass(frozen=True, kw_only=True)
class FunctionParameter:
    """A parameter of the kernel, or of the function that makes it."""

    name: str
    is_constexpr: bool
    """whether its annotation makes it a compile-time constant"""
    has_default: bool
    annotation: str | None
    """as Python would write it; None for one that says nothing to Triton"""


def read_parameters(
    project: Project, module: SourceModule, node: ast.FunctionDef, names: Container[str] | None = None
) -> Iterable[FunctionParameter]:
    """A function's parameters, or those in `names`."""
    defaults = {argument for argument, _ in scope.defaults(node.args)}
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if names is None or argument.arg in names:
            yield _parameter(project, module, argument, argument in defaults)


def _parameter(project: Project, module: SourceModule, argument: ast.arg, has_default: bool) -> FunctionParameter:
    foreign = is_foreign(project, module, argument.annotation)
    annotation = None if argument.annotation is None or foreign else ast.unparse(argument.annotation)
    is_constexpr = False
    if argument.annotation is not None and annotation is not None:
        # Triton looks for the word in the annotation's name. An annotation that Python leaves as text keeps its alias.
        is_constexpr = "constexpr" in annotation or (
            not module.lazy_annotations and project.canonical(module, argument.annotation) in jit.CONSTEXPR
        )
    return FunctionParameter(
        name=argument.arg, is_constexpr=is_constexpr, has_default=has_default, annotation=annotation
    )
