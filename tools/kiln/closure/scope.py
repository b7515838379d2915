"""What a piece of Python code reads from the module it stands in, and what it binds there.

The rules are those of Python's reference, "Execution model: Resolution of names": a function's parameters and all that
it binds are its own, a class body's names are not seen by the functions inside it, a comprehension's targets belong
to the comprehension while `:=` in it binds outside.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, kw_only=True)
class Read:
    """A name of the module that some code reads, with the attributes that it goes on to: `a.b.c` is a, (b, c)."""

    name: str
    attributes: tuple[str, ...]
    node: ast.AST
    """where; `lineno` and `col_offset` are those of the name"""
    certain: bool = True
    """False where the code may find the name nearer by, so that the module need not have it"""


def dotted(node: ast.expr) -> tuple[ast.Name, tuple[str, ...]] | None:
    """`a.b.c` as the Name a and (b, c); None when the expression is anything else."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node, tuple(reversed(attributes))) if isinstance(node, ast.Name) else None


def plain_path(node: ast.expr) -> tuple[str, tuple[str, ...]] | None:
    """`a.b.c` as a and (b, c), as text."""
    chain = dotted(node)
    return None if chain is None else (chain[0].id, chain[1])


def root_name(node: ast.expr) -> str | None:
    """a of `a.b[1].c`; None when the expression begins with anything else."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def decorated_with(decorator: ast.expr) -> ast.expr:
    """f of `@f(...)` and of `@f`."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def defaults(arguments: ast.arguments) -> list[tuple[ast.arg, ast.expr]]:
    """The parameters that have a default, each with it, in their order."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return [(argument, default) for argument, default in pairs if default is not None]


def chains(node: ast.AST) -> list[tuple[ast.Name, tuple[str, ...]]]:
    """Every `a.b.c` and every name in a piece of code, each as long as it goes, whatever scope it stands in."""
    inner = {id(child.value) for child in ast.walk(node) if isinstance(child, ast.Attribute) and dotted(child)}
    every = [
        child for child in ast.walk(node) if isinstance(child, (ast.Name, ast.Attribute)) and id(child) not in inner
    ]
    return [chain for child in every if (chain := dotted(child)) is not None]


def reads(node: ast.AST, *, annotations: bool = True) -> list[Read]:
    """All that `node`, a statement or expression at module level, reads from its module, in the order of the text.

    Bodies of functions count, since what they read they read from the same module later. `annotations=False` leaves
    annotations out, for code that never evaluates them.
    """
    reader = _Reader(annotations)
    reader.visit(node)
    return reader.found


def binds(node: ast.stmt) -> frozenset[str]:
    """The names that a statement binds (or deletes) in the scope that it stands in."""
    return frozenset(_bound([node]))


def imports_inside(node: ast.stmt) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements below a definition or block, which run when the code around them does."""
    for child in ast.walk(node):
        if child is not node and isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child


def declared(nodes: list[ast.stmt], kind: type[ast.Global | ast.Nonlocal]) -> frozenset[str]:
    """The names that a function's body declares `global`, or `nonlocal`."""
    return frozenset(name for node in own_nodes(nodes) if isinstance(node, kind) for name in node.names)


def texts(value: ast.List | ast.Tuple) -> frozenset[str] | None:
    """The texts in a list that holds nothing else."""
    found = [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return frozenset(found) if len(found) == len(value.elts) else None


def captures(pattern: ast.pattern) -> frozenset[str]:
    """The names that a pattern of `match` binds."""
    return frozenset(name for child in ast.walk(pattern) if (name := _plain_text_name(child)))


def _plain_text_name(node: ast.AST) -> str | None:
    """The name in `except E as name`, and in a capture of `match`, which stands as plain text in the tree."""
    if isinstance(node, ast.MatchMapping):
        return node.rest
    return node.name if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) else None


def own_nodes(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """Every node that runs when these statements do: the bodies of functions and lambdas inside them are left out."""
    pending: list[ast.AST] = list(reversed(nodes))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            children = [*getattr(node, "decorator_list", ()), node.args]
        else:
            children = list(ast.iter_child_nodes(node))
        pending.extend(reversed(children))


def _bound(nodes: list[ast.stmt]) -> set[str]:
    """Names bound by these statements in their own scope; `global` and `nonlocal` names are not its own."""
    found: set[str] = set()
    outer: set[str] = set()
    pending: list[tuple[ast.AST, bool]] = [(node, False) for node in nodes]
    while pending:
        node, comprehension = pending.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
            children: list[ast.AST] = [*node.decorator_list]
            if isinstance(node, ast.ClassDef):
                children += [*node.bases, *node.keywords]
            else:
                children.append(node.args)
        elif isinstance(node, ast.Lambda):
            children = [node.args]
        else:
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, _COMPREHENSIONS):
                comprehension = True
            elif isinstance(node, ast.NamedExpr):
                found.add(node.target.id)
                children = [node.value]
            elif isinstance(node, ast.Name):
                if not comprehension and not isinstance(node.ctx, ast.Load):
                    found.add(node.id)
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                outer.update(node.names)
            elif (name := _plain_text_name(node)) is not None:
                found.add(name)
        pending.extend((child, comprehension) for child in children)
    found.discard("*")
    return found - outer


def _parameters(arguments: ast.arguments) -> set[str]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument is not None}


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return _parameters(function.args) | _bound(function.body)


@dataclass(frozen=True, kw_only=True)
class _Scope:
    names: set[str]
    is_class: bool = False
    globals: frozenset[str] = frozenset()


class _Reader:
    """Walks code with the scopes around it in hand, and collects what no scope holds."""

    def __init__(self, annotations: bool) -> None:
        self.annotations = annotations
        self.found: list[Read] = []
        self.scopes: list[_Scope] = []

    def visit(self, node: ast.AST) -> None:
        special: Callable[[ast.AST], None] | None = getattr(self, f"visit_{type(node).__name__}", None)
        if special is not None:
            special(node)
        else:
            self.visit_all(ast.iter_child_nodes(node))

    def visit_all(self, nodes: Iterator[ast.AST] | list[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def read(self, name: ast.Name, attributes: tuple[str, ...]) -> None:
        certain = True
        for depth, scope in enumerate(reversed(self.scopes)):
            if name.id in scope.globals:
                break
            if name.id in scope.names:
                if not scope.is_class:
                    return
                if depth == 0:
                    # A class body looks a name up at run time: its own first, then the module's.
                    certain = False
                    break
        self.found.append(Read(name=name.id, attributes=attributes, node=name, certain=certain))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read(node, ())

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = dotted(node)
        if chain is not None:
            self.read(*chain)
        else:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None and self.annotations:
            self.visit(node.annotation)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if self.annotations:
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.read(node.target, ())
        else:
            self.visit(node.target)
        self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit_all([*node.decorator_list])
        generic = self.push_type_parameters(node)
        self.visit(node.args)
        if node.returns is not None and self.annotations:
            self.visit(node.returns)
        self.scopes.append(_Scope(names=_locals(node), globals=declared(node.body, ast.Global)))
        self.visit_all([*node.body])
        del self.scopes[-1 - generic :]

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self.scopes.append(_Scope(names=_parameters(node.args)))
        self.visit(node.body)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list])
        generic = self.push_type_parameters(node)
        self.visit_all([*node.bases, *node.keywords])
        self.scopes.append(_Scope(names=_bound(node.body), is_class=True))
        self.visit_all([*node.body])
        del self.scopes[-1 - generic :]

    def visit_TypeAlias(self, node: ast.AST) -> None:
        generic = self.push_type_parameters(node)
        self.visit(node.value)  # type: ignore[attr-defined]  # Python 3.12 and later
        if generic:
            self.scopes.pop()

    def push_type_parameters(self, node: ast.AST) -> int:
        """Open the scope of `def f[T]` (Python 3.12); how many scopes that made."""
        parameters = getattr(node, "type_params", [])
        if not parameters:
            return 0
        self.scopes.append(_Scope(names={parameter.name for parameter in parameters}))
        self.visit_all(parameters)
        return 1

    def visit_comprehension_scope(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        targets: list[ast.AST] = [generator.target for generator in node.generators]
        names = {
            child.id
            for target in targets
            for child in ast.walk(target)
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
        }
        self.scopes.append(_Scope(names=names))
        for generator in node.generators:
            self.visit(generator.target)
            if generator is not first:
                self.visit(generator.iter)
            self.visit_all([*generator.ifs])
        self.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_comprehension_scope
