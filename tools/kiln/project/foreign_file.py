"""Finds the file of a kernel that somebody else wrote, and the kernel in it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kiln.closure.entry import written
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Project
from kiln.closure.roots import Roots
from kiln.errors import KilnError, Position, did_you_mean
from kiln.manifest import installed


class ImportKernelError(KilnError):
    """A kernel is not where it was looked for."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where a kernel's file lies, for a kernels.yaml in `folder`."""

    project: Project
    module: SourceModule
    keys: Mapping[str, str]
    """`source`, with `root`; or `package`"""
    roots: Mapping[str, str]


def find_file(file: str, folder: Path) -> Found:
    """The file that a path or the dotted name of an installed module names. Raises ImportKernelError, ClosureError."""
    path = Path(file)
    if not file.endswith(".py") and "/" not in file:
        return _find_installed(file, folder)
    if not path.is_file():
        raise ImportKernelError(
            "there is no such file",
            where=file,
            expected="a Python file, or the dotted name of an installed module",
            remedy="check the path",
        )
    absolute, own = path.resolve(), folder.resolve()
    if absolute.is_relative_to(own):
        project = Project(root=own)
        return Found(
            project=project,
            module=project.open(absolute),
            keys={"source": absolute.relative_to(own).as_posix()},
            roots={},
        )
    top = absolute.parent
    while (top / "__init__.py").is_file() and top.parent != top:
        top = top.parent
    relative = Path(os.path.relpath(top, own)).as_posix()
    name = re.sub(r"\W+", "_", top.name).strip("_").lower() or "sources"
    project = Project(root=own, roots=(relative,))
    keys = {"source": absolute.relative_to(top).as_posix(), "root": name}
    return Found(project=project, module=project.open(absolute), keys=keys, roots={name: relative})


def _find_installed(name: str, folder: Path) -> Found:
    project = Project(root=folder.resolve())
    folders = [base.folder for base in Roots(root=folder.resolve()).packages]
    path = installed.find_module(name.split("."), folders)
    never = installed.why_never(name.partition(".")[0])
    if path is None and never is not None:
        raise ImportKernelError(
            f"no kernel is taken from there: {never}",
            where=name,
            expected="a module that defines a Triton kernel, such as liger_kernel.ops.softmax",
            remedy="copy the kernel into a file, and name that",
        )
    if path is None:
        raise ImportKernelError(
            f"no module {name!r} is installed",
            where=name,
            expected="a module of a package that lies on Python's path, or the path of a file, which ends with .py",
            remedy="install it, or name its file",
        )
    project.adopt(name)
    return Found(project=project, module=project.open(path), keys={"package": name}, roots={})


def full_name(module: SourceModule, function: str) -> str:
    """The function with the classes and functions around it: Ops.kernel for a `kernel` in a class Ops.

    Raises ImportKernelError when there is none of that name, or several.
    """
    paths = _paths(module)
    inside = [path for path in paths if path.endswith(f".{function}")]
    jitted = [path for path in inside if _says_jit(module, path)]
    if _definition(module, function) is not None and (_says_jit(module, function) or len(jitted) != 1):
        return function
    inside = jitted or inside
    if len(inside) == 1:
        return inside[0]
    raise ImportKernelError(
        f"the file has several functions {function}" if inside else f"the file has no function {function!r}",
        where=Position(file=module.file, line=1),
        expected=f"one of {', '.join(inside or paths)}" if paths else "a function, and the file defines none",
        actual=function,
        remedy=did_you_mean(function, paths) or "check the name",
    )


def _definition(module: SourceModule, path: str) -> ast.FunctionDef | None:
    found = written([unit.node for unit in module.units], path)
    return found[-1] if found and isinstance(found[-1], ast.FunctionDef) else None


def _says_jit(module: SourceModule, path: str) -> bool:
    """Whether a decorator of a function names `jit`: a plain function often has the name of the kernel that it runs."""
    definition = _definition(module, path)
    return definition is not None and any("jit" in ast.unparse(each) for each in definition.decorator_list)


def _paths(module: SourceModule) -> list[str]:
    found: list[str] = []

    def visit(node: ast.AST, around: str) -> None:
        path = around
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            path = f"{around}.{node.name}" if around else node.name
            if isinstance(node, ast.FunctionDef):
                found.append(path)
        for child in ast.iter_child_nodes(node):
            visit(child, path)

    for unit in module.units:
        visit(unit.node, "")
    return found
