"""What a function that makes kernels needs of its own statements to make them; the rest launches or registers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat

from kiln.closure import packages, scope
from kiln.closure.names import parameters_of

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PLAIN = (ast.Constant, ast.JoinedStr, ast.Compare, ast.Lambda)
_OF_PLAIN = (ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.IfExp, ast.Tuple)
_GIVE_PLAIN = frozenset({"bool", "float", "int", "len", "str"})
_PLAIN_MODULES = ("math.", "triton.")


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a function's module and the rest of the closure say of the names in it."""

    definitions: Mapping[ast.AST, ast.stmt]
    """the inner functions as the slice has them, where that is otherwise than in the file"""
    is_needed: Callable[[str], bool]
    """whether the closure needs the object behind a name of the module, which can change in place"""
    may_change: Callable[[str], bool]
    """whether a call of what a name of the module stands for may change something that the closure needs; "" is that
    of the functions inside"""
    outside: Callable[[ast.expr], str | None]
    """the dotted name of what lies outside the project"""


class Factory:
    """A backward slice of one function. It grows until nothing more is needed, so it is not frozen.

    Without `wanted` the function's results are needed, and so is all that decides which one is returned; otherwise the
    names of its own variables in `wanted`, as they stand when it ends. A statement stays that binds what is needed, and
    one that may change it: a call, or a store, through a name that may lead to an object which is needed.
    """

    def __init__(self, node: ast.FunctionDef, wanted: frozenset[str] | None, around: Around) -> None:
        self.node = node
        self._returns = wanted is None
        self._around = around
        self._parameters = frozenset(name for names in parameters_of(node) for name in names)
        self._bound: dict[str, list[ast.stmt]] = {}
        for inner in node.body:
            for child in ast.walk(inner):
                if isinstance(child, ast.stmt):
                    for name in scope.binds(child):
                        self._bound.setdefault(name, []).append(child)
        self._own = self._parameters | self._bound.keys()
        self.needed: set[str] = set(wanted or ())
        self._leading: set[str] = set()
        """variables, functions among them, that may lead to what is needed and can change"""
        self._leads_by_methods = False
        """whether a class is among them: its methods run when it is compared, printed or asked for an attribute"""
        self._kept: set[ast.stmt] = set()
        self.bare: set[ast.stmt] = set()
        """`return` statements that are kept for where they are, and not for what they give"""
        first = min((child.lineno for name in wanted or () for child in self._bound.get(name, ())), default=0)
        self._early = {
            child
            for child in scope.own_nodes(node.body)
            if isinstance(child, ast.Return) and wanted and child is not node.body[-1] and child.lineno > first
        }
        """those after which a variable that is wanted may not become what the rest of the text makes of it"""
        known = -1
        while known < len(self._kept) + len(self.needed):
            known = len(self._kept) + len(self.needed)
            self._lead(node.body)
            self._block(node.body)

    def is_kept(self, node: ast.stmt) -> bool:
        """Whether a statement is needed; all that stands inside of one that is kept as a whole is."""
        return node in self._kept

    @property
    def parameters(self) -> frozenset[str]:
        """The function's own parameters that are needed."""
        return self._parameters & self.needed

    def _block(self, block: list[ast.stmt]) -> bool:
        # Each statement must have its turn.
        kept = [node for node in block if self._statement(node)]
        return bool(kept)

    def _statement(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            test = ast.Expr(value=node.test)
            if self._block(node.body) | self._block(node.orelse) | self._runs_on(test):
                self._kept.add(node)
                self._read(node.test)
        elif isinstance(node, (ast.Return, ast.Raise, ast.Assert)) and self._returns:
            self._keep(node)
        elif isinstance(node, ast.Return) and node in self._early:
            self._kept.add(node)
            if self._changes(node):
                self.bare.discard(node)
                self._read(node)
            else:
                self.bare.add(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self._kept.add(node)
        elif self._runs_on(node) or any(
            isinstance(child, ast.Return) and (self._returns or child in self._early)
            for child in scope.own_nodes([node])
        ):
            self._keep(node)
        return node in self._kept

    def _runs_on(self, node: ast.stmt) -> bool:
        """Whether a statement binds what is needed, or may change it in place."""
        if node in self._around.definitions and isinstance(node, _Definition):
            # What decorates it tunes and launches, and is no part of a slice.
            return node.name in self.needed
        return bool(scope.binds(node) & self.needed) or self._changes(node)

    def _keep(self, node: ast.stmt) -> None:
        if node in self._kept:
            return
        self._kept.update(child for child in ast.walk(node) if isinstance(child, ast.stmt))
        self._read(self._around.definitions.get(node, node))

    def _read(self, node: ast.AST) -> None:
        self.needed |= {read.name for read in scope.reads(node) if read.name in self._own}

    def _lead(self, block: list[ast.stmt]) -> None:
        """Find the variables that may lead to what is needed: `other = SIZES`, `table[0] = SIZES`, `def add()`."""
        known = -1
        while known < len(self._leading):
            known = len(self._leading)
            for outer in block:
                for node in _own_statements(outer, self._around.definitions):
                    self._lead_from(node)

    def _lead_from(self, node: ast.stmt) -> None:
        if isinstance(node, _Definition):
            nested = [name for inner in ast.walk(node) if isinstance(inner, ast.Nonlocal) for name in inner.names]
            if self.needed.intersection(nested) or any(self._leads(read.name) for read in scope.reads(node)):
                self._leading.add(node.name)
                self._leads_by_methods = self._leads_by_methods or isinstance(node, ast.ClassDef)
            return
        parts = _own_expressions(node)
        if any(map(self._leads_on, parts)):
            self._leading |= _targets(node) & self._own
        for part in parts:
            for child in ast.walk(part):
                if isinstance(child, ast.Call) and not self._only_reads(child.func):
                    names = _names(child)
                    if any(map(self._leads, names)):
                        self._leading |= {name for name in names & self._own if not self._is_jitted(name)}
                elif isinstance(child, ast.NamedExpr) and self._leads_on(child.value):
                    self._leading.add(child.target.id)

    def _leads_on(self, node: ast.AST) -> bool:
        """Whether an expression's value may lead to what is needed and can change; that of `len(SIZES)` does not."""
        if isinstance(node, (ast.Compare, ast.JoinedStr, ast.UnaryOp)):
            return False
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in _GIVE_PLAIN and node.func.id not in self._own:
                return False
            outside = self._around.outside(node.func)
            if outside is not None and not (packages.leads_to_arguments(outside) or packages.holds_arguments(outside)):
                return False
        if isinstance(node, ast.Name):
            return self._leads(node.id)
        return any(map(self._leads_on, ast.iter_child_nodes(node)))

    def _leads(self, name: str) -> bool:
        """Whether a name may lead to an object that is needed and can change."""
        if name in self._own:
            return name in self._leading or (name in self.needed and not self._is_plain(name))
        return self._around.is_needed(name)

    def _changes(self, node: ast.stmt) -> bool:
        """Whether a statement may change in place what is needed."""
        if isinstance(node, _Definition) and any(map(self._calls_with, node.decorator_list, repeat(node.name))):
            return True
        if isinstance(node, ast.AugAssign) and any(map(self._leads, _targets(node))):
            return True
        for child in scope.own_nodes([node]):
            if isinstance(child, (ast.Attribute, ast.Subscript)) and not isinstance(child.ctx, ast.Load):
                if self._stores(child):
                    return True
            elif isinstance(child, ast.Call):
                if self._calls(child) or (not self._only_reads(child.func) and any(map(self._leads, _names(child)))):
                    return True
            elif isinstance(child, ast.Name) and self._leads_by_methods and self._leads(child.id):
                return True
        return False

    def _calls_with(self, decorator: ast.expr, name: str) -> bool:
        """Whether `@decorator` above the definition of `name`, which it calls, may change what is needed."""
        function = scope.decorated_with(decorator)
        return not self._only_reads(function) and any(map(self._leads, (*_names(decorator), name)))

    def _stores(self, node: ast.Attribute | ast.Subscript) -> bool:
        """Whether `node = ...` may change what is needed."""
        root = scope.root_name(node)
        if root is not None and root not in self._own:
            return self._around.is_needed(root) or self._around.may_change("")
        return any(name in self.needed or self._leads(name) for name in ([root] if root else _names(node)))

    def _calls(self, call: ast.Call) -> bool:
        """Whether a call may change something outside of the function that the closure needs."""
        name = scope.root_name(call.func)
        if name is None:
            return False
        inner = self._bound.get(name, ())
        if name in self._parameters or any(not isinstance(node, (ast.Import, ast.ImportFrom)) for node in inner):
            # Of functions in here it is known of all or none.
            return self._around.may_change("") and not any(node in self._around.definitions for node in inner)
        return not inner and self._around.may_change(name)

    def _only_reads(self, function: ast.expr) -> bool:
        """Whether a call leaves what it is given as it is, and runs none of it."""
        outside = self._around.outside(function)
        if outside is not None:
            changes = packages.changes_arguments(outside) or packages.calls_arguments(outside)
            return packages.is_understood(outside) and not changes
        if isinstance(function, ast.Attribute):
            return function.attr in packages.READING_METHODS
        if isinstance(function, ast.Subscript):
            function = function.value
        if not isinstance(function, ast.Name):
            return False
        # `kernel[grid](x)`
        return self._is_jitted(function.id) if function.id in self._own else function.id in packages.READING_BUILTINS

    def _is_jitted(self, name: str) -> bool:
        bound = self._bound.get(name, ())
        return bool(bound) and all(node in self._around.definitions for node in bound)

    def _is_plain(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether nothing can change the object behind a variable in place."""
        if name in seen:
            return True
        if name in self._parameters:
            # What kernels.yaml gives is a number, a text or a function.
            return not self._returns
        return all(
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom))
            or (
                isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign))
                and node.value is not None
                and self._gives_plain(node.value, seen | {name})
            )
            for node in self._bound.get(name, ())
        )

    def _gives_plain(self, value: ast.expr, seen: frozenset[str]) -> bool:
        if isinstance(value, _PLAIN):
            return True
        if isinstance(value, _OF_PLAIN):
            parts = [child for child in ast.iter_child_nodes(value) if isinstance(child, ast.expr)]
            return all(self._gives_plain(part, seen) for part in parts)
        if isinstance(value, ast.Name):
            return value.id in self._parameters | self._bound.keys() and self._is_plain(value.id, seen)
        if isinstance(value, ast.Call):
            if isinstance(value.func, ast.Name):
                return value.func.id in _GIVE_PLAIN
            return (self._around.outside(value.func) or "").startswith(_PLAIN_MODULES)
        return (self._around.outside(value) or "").startswith(_PLAIN_MODULES)


def _own_statements(node: ast.stmt, definitions: Container[ast.AST]) -> Iterator[ast.stmt]:
    """A statement and those in its blocks; of definitions, what Triton compiles is left out."""
    if node in definitions and isinstance(node, _Definition):
        return
    yield node
    if not isinstance(node, _Definition):
        for child in ast.iter_child_nodes(node):
            for inner in (child,) if isinstance(child, ast.stmt) else ast.iter_child_nodes(child):
                if isinstance(inner, ast.stmt):
                    yield from _own_statements(inner, definitions)


def _own_expressions(node: ast.stmt) -> list[ast.expr | ast.pattern]:
    """The expressions of a statement, without those of the statements in its blocks."""
    children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
    parts = [
        part
        for child in children
        # An `except`, an item of `with` and a `case` have expressions of their own.
        for part in ([child] if isinstance(child, ast.expr) else ast.iter_child_nodes(child))
    ]
    return [part for part in parts if isinstance(part, (ast.expr, ast.pattern))]


def _targets(node: ast.stmt) -> set[str]:
    """The names that a statement binds or stores into: a of `a.b[1] = c`, and of `for a in c`."""
    found: set[str] = set()
    for part in _own_expressions(node):
        for child in ast.walk(part):
            if isinstance(child, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(child.ctx, ast.Load):
                root = scope.root_name(child)
                found |= {root} if root is not None else set()
            elif isinstance(child, ast.pattern):
                found |= scope.captures(child)
    return found


def _names(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
