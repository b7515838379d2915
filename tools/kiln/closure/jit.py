"""Recognises Triton's decorators on a function, and takes off what only serves compilation at run time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass

from kiln.closure import scope
from kiln.closure.module import SourceModule
from kiln.closure.resolve import Project
from kiln.closure.wrappers import only_launches
from kiln.errors import ClosureError

JIT = frozenset({"triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit"})
TUNING = frozenset(
    f"{prefix}.{name}"
    for prefix in ("triton", "triton.runtime", "triton.runtime.autotuner")
    for name in ("autotune", "heuristics")
)
CONSTEXPR = frozenset({"triton.language.constexpr", "triton.language.core.constexpr"})

_KEPT = frozenset({"noinline"})
_DROPPED = frozenset(
    {"debug", "do_not_specialize", "do_not_specialize_on_alignment", "launch_metadata", "repr", "version"}
)
"""arguments of triton.jit that say how to launch and to name, not how to compile, or that a build decides itself"""


Imports = Mapping[str, ast.Import | ast.ImportFrom]
"""names that import statements inside a function bind, for the functions in it"""


@dataclass(frozen=True, kw_only=True)
class Effective:
    """A statement as the slice has it."""

    node: ast.stmt
    jitted: bool
    """whether it makes a function that Triton compiles"""


def effective(project: Project, module: SourceModule, node: ast.stmt, imports: Imports | None = None) -> Effective:
    """`node` without what only serves the JIT: `@triton.autotune`, `@triton.heuristics`, arguments such as `repr=`.

    Both `@triton.jit` and `f = triton.jit(f)` are known, and decorators above them that only launch. Raises
    ClosureError for a jitted function with any other decorator, since that may change what is compiled.
    """
    if isinstance(node, ast.FunctionDef):
        return _function(project, module, node, imports or {})
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        value = _unwrapped(project, module, node.value, imports or {})
        if value is not None:
            renewed = copy.copy(node)
            renewed.value = value
            return Effective(node=renewed, jitted=True)
    return Effective(node=node, jitted=False)


def jitted_function(node: ast.expr) -> ast.expr | None:
    """X of an effective `triton.jit(X)` or `triton.jit(noinline=True)(X)`."""
    return node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None


def is_jitted(
    project: Project, module: SourceModule, node: ast.FunctionDef, imports: Imports, *, needed: bool = True
) -> bool:
    """Whether one of a function's decorators is `triton.jit`; `needed` as in Project.canonical."""
    return any(
        outside_name(project, module, scope.decorated_with(decorator), imports, needed=needed) in JIT
        for decorator in node.decorator_list
    )


def outside_name(
    project: Project, module: SourceModule, node: ast.expr, imports: Imports, *, needed: bool = True
) -> str | None:
    """The dotted name outside the project that an expression in a function stands for; see Project.canonical."""
    path = scope.plain_path(node)
    if path is None or path[0] not in imports:
        return project.canonical(module, node, needed=needed)
    return project.canonical_import(module, imports[path[0]], *path, needed=needed)


def _function(project: Project, module: SourceModule, node: ast.FunctionDef, imports: Imports) -> Effective:
    names = [
        outside_name(project, module, scope.decorated_with(decorator), imports) for decorator in node.decorator_list
    ]
    if not JIT.intersection(names):
        if TUNING.intersection(names):
            raise ClosureError(
                f"{node.name} is tuned but not jitted: none of its decorators is triton.jit",
                where=module.position(node),
                remedy="put @triton.jit directly above the def",
            )
        return Effective(node=node, jitted=False)
    kept: list[ast.expr] = []
    below = False
    for decorator, name in zip(node.decorator_list, names, strict=True):
        if name in JIT:
            kept.append(_jit(module, decorator))
            below = True
        elif isinstance(decorator, ast.Name) and decorator.id == "staticmethod" and not module.binding("staticmethod"):
            kept.append(decorator)
        elif name not in TUNING and (below or not only_launches(project, module, decorator, name)):
            raise ClosureError(
                f"{node.name} has a decorator that Kiln does not know: @{ast.unparse(scope.decorated_with(decorator))}",
                where=module.position(decorator),
                expected="triton.jit, triton.autotune and triton.heuristics, and above them what only launches",
                actual=f"@{ast.unparse(scope.decorated_with(decorator))}" + (f", which is {name}" if name else ""),
                remedy="declare a function that carries triton.jit alone, and decorate it where it is launched",
            )
    renewed = copy.copy(node)
    renewed.decorator_list = kept
    return Effective(node=renewed, jitted=True)


def _jit(module: SourceModule, decorator: ast.expr) -> ast.expr:
    """`@triton.jit(...)` with the arguments that matter to the compiler, or bare."""
    if not isinstance(decorator, ast.Call):
        return decorator
    keywords = _keywords(module, decorator)
    if decorator.args:
        raise ClosureError(
            f"cannot read the decorator `@{ast.unparse(decorator)}`",
            where=module.position(decorator),
            expected="keyword arguments only",
            remedy="write @triton.jit, or @triton.jit(name=value)",
        )
    if not keywords:
        return decorator.func
    return _call(decorator, decorator.func, [], keywords)


def _keywords(module: SourceModule, call: ast.Call) -> list[ast.keyword]:
    unknown = [keyword for keyword in call.keywords if keyword.arg not in _KEPT | _DROPPED]
    if unknown:
        raise ClosureError(
            f"triton.jit has an argument that Kiln does not know: {ast.unparse(unknown[0])}",
            where=module.position(call),
            expected=f"one of {', '.join(sorted(_KEPT | _DROPPED))}",
            actual=ast.unparse(call),
            remedy="leave it out, or write it in one of those words",
        )
    return [keyword for keyword in call.keywords if keyword.arg in _KEPT]


def _unwrapped(project: Project, module: SourceModule, node: ast.expr, imports: Imports) -> ast.expr | None:
    """The `triton.jit(X)` in an expression that wraps it for tuning, or None when it is no such thing."""
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return None
    if outside_name(project, module, node.func, imports) in JIT:
        return _call(node, node.func, node.args, _keywords(module, node))
    if isinstance(node.func, ast.Call):
        name = outside_name(project, module, node.func.func, imports)
        if name in JIT and not node.func.args and not node.keywords:
            keywords = _keywords(module, node.func)
            return _call(node, node.func.func, node.args, keywords)
        if name in TUNING:
            inner = node.args[0]
            return _unwrapped(project, module, inner, imports) or (inner if isinstance(inner, ast.Name) else None)
    return None


def _call(like: ast.Call, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> ast.Call:
    return ast.copy_location(ast.Call(func=function, args=arguments, keywords=keywords), like)
