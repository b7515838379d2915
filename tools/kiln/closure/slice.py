"""Cuts the slice of a project's Python files that one Triton function needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kiln.closure import jit
from kiln.closure.annotations import is_foreign
from kiln.closure.cutter import Cutter, Want, headline, undecided_error
from kiln.closure.digest import Digests
from kiln.closure.module import SourceModule
from kiln.closure.render import render
from kiln.closure.resolve import Project, is_import, parts_of, synthetic_name
from kiln.errors import ClosureError, Position, did_you_mean


@dataclass(frozen=True, kw_only=True)
class FunctionParameter:
    name: str
    is_constexpr: bool
    """whether its annotation makes it a compile-time constant"""
    has_default: bool
    annotation: str | None
    """as Python would write it; None for one that says nothing to Triton"""


@dataclass(frozen=True, kw_only=True)
class SlicedModule:
    """What one file gives to a closure."""

    name: str
    """of the synthetic module: kiln_slice.kernels.softmax"""
    file: str
    """relative to the project's root, with forward slashes"""
    text: str
    """Python source; every kept statement stands at its original lines"""


@dataclass(frozen=True, kw_only=True)
class Closure:
    """A Triton function with all of the project's code that it needs, and nothing else of it. Pickles."""

    function: str
    position: Position
    """of its `def`"""
    modules: tuple[SlicedModule, ...]
    """the function's own first, then the others by file"""
    parameters: tuple[FunctionParameter, ...]
    sources: tuple[Path, ...]
    """the files that the slice is cut from, in the order of `modules`"""
    digest: str
    """sha256, of everything in the slice that can change what is compiled"""
    components: Mapping[str, str]
    """`kernels/softmax.py:softmax_kernel` -> digest of that definition alone"""


def cut(source: Path, function: str, *, root: Path, where: Position | None) -> Closure:
    """The closure of `function` in the file `source`, which lies below the folder `root`. Nothing is executed.

    `where` is the place that names the function, such as its line in kernels.yaml.

    The reading is static. What the kernel's files do to its objects when they are imported is kept, through aliases and
    calls too; what a module does to them that is imported for nothing but that is not seen.

    Raises ClosureError when the function is not there or is no Triton function, when it needs a module that may be
    missing where kernels are built, and when a name that it needs is bound by code which only a run can follow.
    """
    project = Project(root=root)
    module = project.open(source)
    cutter = Cutter(project)
    try:
        definition = _find(project, module, function, where)
        cutter.need(Want(module=module, name=function, at=module.position(definition)))
        cutter.follow()
        return _closure(cutter, module, function, definition)
    except RecursionError:
        raise ClosureError(
            f"an expression that {function} needs is nested too deeply to be read",
            where=module.file,
            remedy="break it into several statements",
        ) from None


def _find(project: Project, module: SourceModule, function: str, where: Position | None) -> ast.FunctionDef:
    """The `def` behind `function`, which must make a jitted function."""
    if not module.binding(function):
        raise _no_function(module, function, where)
    last = module.binding(function)[-1]
    position = module.position(last.node)
    if last.undecided is not None:
        raise undecided_error(module, last, function, where or position, ())
    if is_import(last):
        raise ClosureError(
            f"{function} is imported into {module.file}, not defined there",
            where=position,
            expected="the file that defines the function",
            actual=ast.unparse(last.node),
            remedy="declare the defining file as the kernel's source",
        )
    made = jit.effective(project, module, last.node)
    definition = _definition(project, module, made.node, last.index)
    jitted = made.jitted or (definition is not None and jit.effective(project, module, definition).jitted)
    if definition is None or not jitted:
        raise ClosureError(
            f"{function} is not a Triton function",
            where=position,
            expected=f"@triton.jit above the def, or {function} = triton.jit(...) of a function in the same file",
            actual=headline(last.node),
            remedy="decorate it with @triton.jit",
        )
    for unusable in (definition.args.vararg, definition.args.kwarg):
        if unusable is not None:
            raise ClosureError(
                f"{function} takes a variable number of arguments, *{unusable.arg}",
                where=module.position(unusable),
                expected="named parameters, since a signature gives a type to each",
                remedy="name the parameters one by one",
            )
    return definition


def _definition(project: Project, module: SourceModule, node: ast.stmt, before: int) -> ast.FunctionDef | None:
    """The def that a statement makes its name stand for, through `triton.jit(f)` and plain renaming."""
    if isinstance(node, ast.FunctionDef):
        return node
    if not isinstance(node, ast.Assign):
        return None
    value = jit.jitted_function(node.value) or node.value
    if not isinstance(value, ast.Name):
        return None
    earlier = [unit for unit in module.binding(value.id) if unit.index < before]
    if not earlier:
        return None
    return _definition(project, module, jit.effective(project, module, earlier[-1].node).node, earlier[-1].index)


def _no_function(module: SourceModule, function: str, where: Position | None) -> ClosureError:
    functions = [unit.node.name for unit in module.units if isinstance(unit.node, ast.FunctionDef)]
    for unit in module.units:
        for child in ast.walk(unit.node):
            if isinstance(child, ast.FunctionDef) and child.name == function:
                return ClosureError(
                    f"{function} is not at module level, but inside the statement in line {unit.node.lineno}",
                    where=module.position(child),
                    expected="a function at module level",
                    actual=headline(unit.node),
                    remedy="move the function out to module level",
                )
    if function in module.dead:
        return ClosureError(
            f"{function} is defined only in a branch that never runs",
            where=Position(file=module.file, line=module.dead[function]),
            remedy="move the function out of the condition",
        )
    return ClosureError(
        f"{module.file} has no function {function!r}",
        where=where or module.file,
        expected=f"one of {', '.join(functions)}" if functions else "a function, and the file defines none",
        actual=function,
        remedy=did_you_mean(function, functions)
        or "check the name; functions inside others or in classes do not count",
    )


def _closure(cutter: Cutter, module: SourceModule, function: str, definition: ast.FunctionDef) -> Closure:
    files = sorted(cutter.kept.values(), key=lambda kept: (kept.module is not module, kept.module.file))
    modules = tuple(
        SlicedModule(
            name=synthetic_name(parts_of(kept.module.file)),
            file=kept.module.file,
            text=render(kept.module, kept.content(), kept.blanked),
        )
        for kept in files
    )
    by_name = {sliced.name: sliced for sliced in modules}
    for sliced in modules:
        if by_name[sliced.name] is not sliced:
            raise ClosureError(
                f"{sliced.file} and {by_name[sliced.name].file} are the same module to Python",
                where=sliced.file,
                remedy="rename one of them",
            )
    digests = Digests(function=function)
    for sliced in modules:
        digests.add(sliced.name, sliced.file, sliced.text)
    return Closure(
        function=function,
        position=module.position(definition),
        modules=modules,
        parameters=tuple(_parameters(cutter.project, module, definition)),
        sources=tuple(kept.module.path for kept in files),
        digest=digests.hexdigest(),
        components=digests.components,
    )


def _parameters(project: Project, module: SourceModule, node: ast.FunctionDef) -> Iterable[FunctionParameter]:
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = len(positional) - len(node.args.defaults)
    for number, argument in enumerate(positional):
        yield _parameter(project, module, argument, number >= defaults)
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        yield _parameter(project, module, argument, default is not None)


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
