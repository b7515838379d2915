"""Finds the `def` that a kernel's name stands for: at module level, in a class, or in a function that makes kernels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kiln.closure import jit, scope
from kiln.closure.module import Conditional, SourceModule, Unit
from kiln.closure.names import Names
from kiln.closure.refusals import headline
from kiln.closure.resolve import Definition, bound_inside, is_import
from kiln.errors import ClosureError, Position, did_you_mean

_Scope = (ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A jitted function, and the way to it."""

    module: SourceModule
    """the one that the `def` stands in: another than the kernel's where a function from there makes the kernel"""
    definition: ast.FunctionDef
    factory: ast.FunctionDef | None = None
    """the function that the name leads into, whose parameters kernels.yaml gives"""
    statements: tuple[ast.stmt, ...]
    """from the one that binds the kernel's name to the def, as the file has them: `k = autotune(...)(f)`, `def f`"""
    around: tuple[ast.FunctionDef | ast.ClassDef, ...] = ()
    """the definitions that the def stands in, from the outside in"""


def find(names: Names, module: SourceModule, function: str, where: Position | None) -> Entry:
    """The `def` behind `function`, which may be a path such as `Ops.kernel` or `make_kernel.kernel`.

    `where` is the place that names the function. Raises ClosureError when it is not there, or is no jitted function.
    """
    name, *path = function.split(".")
    units = names.project.binding(module, name)
    if not units:
        raise _no_function(names, module, name, function, where)
    last = units[-1]
    if last.undecided is not None:
        raise Conditional(module, last, function, where)
    if is_import(last):
        raise ClosureError(
            f"{name} is imported into {module.file}, not defined there",
            where=module.position(last.node),
            expected="the file that defines the function",
            actual=ast.unparse(last.node),
            remedy="declare the defining file as the kernel's source",
        )
    entry = _inside(names, module, last, path, function, where) if path else _at_top(names, module, last, name)
    if entry is None:
        raise ClosureError(
            f"{function} is not a Triton function",
            where=module.position(last.node),
            expected=f"@triton.jit above the def, {function} = triton.jit(...) of a function in the same file, or "
            f"{function} = make(...) of a function of the project that returns a jitted function",
            actual=headline(last.node),
            remedy=_not_jitted(names, module),
        )
    for unusable in (entry.definition.args.vararg, entry.definition.args.kwarg):
        if unusable is not None:
            raise ClosureError(
                f"{function} takes a variable number of arguments, *{unusable.arg}",
                where=entry.module.position(unusable),
                expected="named parameters, since a signature gives a type to each",
                remedy="name the parameters one by one",
            )
    return entry


def _at_top(names: Names, module: SourceModule, unit: Unit, name: str) -> Entry | None:
    made = jit.effective(names.project, module, unit.node)
    way = _way(names, module, unit)
    if not way:
        return _returned(names, module, made.node, name)
    jitted = made.jitted or jit.effective(names.project, module, way[-1]).jitted
    return _entry(module, way) if jitted else None


def _entry(
    module: SourceModule,
    way: list[ast.stmt],
    around: tuple[ast.FunctionDef | ast.ClassDef, ...] = (),
    factory: ast.FunctionDef | None = None,
) -> Entry:
    definition = way[-1]
    assert isinstance(definition, ast.FunctionDef)
    return Entry(module=module, definition=definition, factory=factory, statements=tuple(way), around=around)


def _way(names: Names, module: SourceModule, unit: Unit) -> list[ast.stmt]:
    """From a statement to the def that it makes its name stand for, through `triton.jit(f)` and plain renaming."""
    node = jit.effective(names.project, module, unit.node).node
    if isinstance(node, ast.FunctionDef):
        return [unit.node]
    if not isinstance(node, ast.Assign):
        return []
    value = jit.jitted_function(node.value) or node.value
    if not isinstance(value, ast.Name):
        return []
    earlier = [other for other in module.binding(value.id) if other.index < unit.index]
    rest = _way(names, module, earlier[-1]) if earlier else []
    return [unit.node, *rest] if rest else []


def _returned(names: Names, module: SourceModule, node: ast.stmt, name: str) -> Entry | None:
    """The jitted function that `name = make(...)` gets from a function of the project, or `a, name = make(...)`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    path = scope.plain_path(node.value.func)
    target = names.trace(module, *path) if path is not None else None
    if not isinstance(target, Definition) or target.attributes:
        return None
    factory = target.module.binding(target.name)[-1].node
    if not isinstance(factory, ast.FunctionDef):
        return None
    place = [
        number
        for bound in node.targets
        if isinstance(bound, (ast.Tuple, ast.List))
        for number, part in enumerate(bound.elts)
        if isinstance(part, ast.Name) and part.id == name
    ]
    found: list[list[ast.stmt]] = []
    for child in scope.own_nodes(factory.body):
        if not isinstance(child, ast.Return) or child.value is None:
            continue
        value = child.value
        if place and isinstance(value, ast.Tuple) and place[0] < len(value.elts):
            value = value.elts[place[0]]
        inner = _local(names, target.module, factory, value)
        if inner:
            found.append(inner)
    return _entry(target.module, found[-1], (factory,)) if found else None


def _local(
    names: Names,
    module: SourceModule,
    around: ast.FunctionDef | ast.ClassDef,
    value: ast.expr,
    before: int | None = None,
) -> list[ast.stmt]:
    """The statements that lead to the jitted def that an expression in a function, or in a class's body, stands for.

    Only the first `before` statements of the body have run by then. Empty where it is none.
    """
    imports = bound_inside(around)
    is_jit = False
    if isinstance(value, ast.Call):
        made = jit.effective(names.project, module, ast.Assign(targets=[], value=value), imports)
        if not made.jitted or not isinstance(made.node, ast.Assign):
            return []
        value, is_jit = jit.jitted_function(made.node.value) or made.node.value, True
    if not isinstance(value, ast.Name):
        return []
    for number, node in reversed(list(enumerate(bodies(around.body)))[:before]):
        if isinstance(node, ast.FunctionDef) and node.name == value.id:
            jitted = is_jit or jit.effective(names.project, module, node, imports).jitted
            return [node] if jitted else []
        if isinstance(node, ast.Assign) and value.id in scope.binds(node):
            rest = _local(names, module, around, node.value, number)
            return [node, *rest] if rest else []
    return []


def written(block: list[ast.stmt], function: str) -> list[ast.FunctionDef | ast.ClassDef]:
    """The definitions that a path leads through, the last of each name in the text, whatever condition it stands under.

    For a function that `find` cannot tell, and where no more than the text counts. Empty where one is not there.
    """
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for word in function.split("."):
        named = [node for node in bodies(block) if isinstance(node, _Scope) and node.name == word]
        if not named:
            return []
        found.append(named[-1])
        block = named[-1].body
    return found


def bodies(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those of its `if`, `with`, `for` and `try` among them."""
    for node in block:
        yield node
        if not isinstance(node, (*_Scope, ast.AsyncFunctionDef)):
            for part in (node, *getattr(node, "handlers", ())):
                for name in ("body", "orelse", "finalbody"):
                    yield from bodies(getattr(part, name, []))


def _inside(
    names: Names, module: SourceModule, unit: Unit, path: list[str], function: str, where: Position | None
) -> Entry:
    """The def at the end of a path that leads into a class or a function."""
    around: ast.stmt = unit.node
    factory: ast.FunctionDef | None = None
    outer: list[ast.FunctionDef | ast.ClassDef] = []
    for number, word in enumerate(path):
        if not isinstance(around, _Scope):
            break
        if isinstance(around, ast.FunctionDef):
            if factory is not None or number:
                raise ClosureError(
                    f"{function} leads into a function that stands inside another definition",
                    where=module.position(around),
                    expected="a class or a function at module level, and the kernel right in it",
                    remedy=f"move {around.name} out to module level",
                )
            factory = around
        outer.append(around)
        is_last = number == len(path) - 1
        if is_last:
            way = _local(names, module, around, ast.Name(id=word, ctx=ast.Load()))
            if way:
                return _entry(module, way, tuple(outer), factory)
        found = [node for node in bodies(around.body) if word in scope.binds(node)]
        if not found or is_last:
            return _not_inside(names, module, around, word, bool(found), function, where)
        around = found[-1]
    raise ClosureError(
        f"{function} leads nowhere: {headline(around)} is neither a class nor a function",
        where=module.position(around),
        expected="a path such as Ops.kernel, into a class, or make_kernel.kernel, into a function",
        actual=function,
        remedy="write the path to the function that carries @triton.jit",
    )


def _not_inside(
    names: Names,
    module: SourceModule,
    around: ast.FunctionDef | ast.ClassDef,
    word: str,
    is_bound: bool,
    function: str,
    where: Position | None,
) -> Entry:
    imports = bound_inside(around)
    kernels = [
        node.name
        for node in bodies(around.body)
        if isinstance(node, ast.FunctionDef) and jit.is_jitted(names.project, module, node, imports, needed=False)
    ]
    raise ClosureError(
        f"{function} is not a Triton function" if is_bound else f"{around.name} has nothing called {word!r} in it",
        where=where or module.position(around),
        expected=f"one of {', '.join(f'{around.name}.{name}' for name in kernels)}"
        if kernels
        else f"a function with @triton.jit in {around.name}, at {module.position(around)}",
        actual=function,
        remedy=did_you_mean(word, kernels) or "check the name, or decorate the function with @triton.jit",
    )


def _not_jitted(names: Names, module: SourceModule) -> str:
    """What to do when `function` is plain: often it launches a kernel that stands in the same file."""
    kernels = [
        unit.node.name
        for unit in module.units
        if isinstance(unit.node, ast.FunctionDef) and jit.is_jitted(names.project, module, unit.node, {}, needed=False)
    ]
    decorate = "decorate it with @triton.jit"
    return f"{decorate}, or set `function` to one that is: {', '.join(kernels)}" if kernels else decorate


def _no_function(names: Names, module: SourceModule, name: str, function: str, where: Position | None) -> ClosureError:
    inside = next(iter(_paths(module, name)), None) if name == function else None
    if inside is not None:
        path, node = inside
        return ClosureError(
            f"{name} is not at module level, but inside of {path.partition('.')[0]}",
            where=module.position(node),
            expected="a function at module level, or the path to it",
            actual=function,
            remedy=f"write `function: {path}`",
        )
    if name in module.dead:
        return ClosureError(
            f"{name} is defined only in a branch that never runs",
            where=Position(file=module.file, line=module.dead[name]),
            remedy="move the function out of the condition",
        )
    kinds = ast.FunctionDef if name == function else _Scope
    functions = [unit.node.name for unit in module.units if isinstance(unit.node, kinds)]
    subject = module.file if where is not None else "the file"
    return ClosureError(
        f"{subject} has no function {function!r}"
        if name == function
        else f"{subject} has no class or function {name!r}",
        where=where or module.file,
        expected=f"one of {', '.join(functions)}" if functions else "a function, and the file defines none",
        actual=function,
        remedy=did_you_mean(name, functions) or "check the name; one inside a class or a function is written with it",
    )


def _paths(module: SourceModule, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The paths to functions of that name inside of classes and functions."""
    for unit in module.units:
        if isinstance(unit.node, _Scope):
            for node in bodies(unit.node.body):
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    yield f"{unit.node.name}.{name}", node
