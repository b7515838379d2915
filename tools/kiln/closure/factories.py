"""What a function that makes kernels needs of its own statements to make them; the rest launches or registers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kiln.closure import packages, scope
from kiln.closure.names import parameters_of

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PLAIN = (ast.Constant, ast.JoinedStr, ast.Compare, ast.Lambda)
_OF_PLAIN = (ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.IfExp, ast.Tuple)
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
    names of its own variables in `wanted`, as they stand when it ends.
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
        self.needed: set[str] = set(wanted or ())
        self._kept: set[ast.stmt] = set()
        known = -1
        while known < len(self._kept) + len(self.needed):
            known = len(self._kept) + len(self.needed)
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
            if self._block(node.body) | self._block(node.orelse):
                self._kept.add(node)
                self._read(node.test)
        elif isinstance(node, _Definition):
            if node.name in self.needed:
                self._keep(node)
        elif isinstance(node, (ast.Return, ast.Raise, ast.Assert)):
            if self._returns:
                self._keep(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            self._kept.add(node)
        elif (
            scope.binds(node) & self.needed
            or self._changes(node)
            or (self._returns and any(isinstance(child, ast.Return) for child in scope.own_nodes([node])))
        ):
            self._keep(node)
        return node in self._kept

    def _keep(self, node: ast.stmt) -> None:
        if node in self._kept:
            return
        self._kept.update(child for child in ast.walk(node) if isinstance(child, ast.stmt))
        self._read(self._around.definitions.get(node, node))

    def _read(self, node: ast.AST) -> None:
        own = self._parameters | self._bound.keys()
        self.needed |= {read.name for read in scope.reads(node) if read.name in own}

    def _changes(self, node: ast.stmt) -> bool:
        """Whether a statement may change in place what is needed."""
        for child in scope.own_nodes([node]):
            if isinstance(child, (ast.Attribute, ast.Subscript)) and not isinstance(child.ctx, ast.Load):
                if self._counts(scope.root_name(child), stored=True):
                    return True
            elif isinstance(child, ast.Call) and (self._calls(child) or any(map(self._counts, self._reached(child)))):
                return True
        return False

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

    def _counts(self, name: str | None, *, stored: bool = False) -> bool:
        if name is None:
            return False
        if name in self._parameters | self._bound.keys():
            return name in self.needed and (stored or not self._is_plain(name))
        return self._around.is_needed(name)

    def _reached(self, call: ast.Call) -> set[str]:
        """The names of what a call may change."""
        found: set[str] = set()
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        outside = self._around.outside(call.func)
        if outside is not None and packages.is_understood(outside) and not packages.changes_arguments(outside):
            return found
        if isinstance(call.func, ast.Attribute):
            root = scope.root_name(call.func)
            if root is not None and call.func.attr not in packages.READING_METHODS:
                found.add(root)
        elif isinstance(call.func, ast.Name):
            if call.func.id in packages.READING_BUILTINS:
                return found
            for inner in self._bound.get(call.func.id, ()):
                if isinstance(inner, _Definition) and inner not in self._around.definitions:
                    found |= {read.name for read in scope.reads(inner)}
        return found | {child.id for part in given for child in ast.walk(part) if isinstance(child, ast.Name)}

    def _is_plain(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether nothing can change the object behind a variable in place."""
        if name in seen:
            return True
        if name in self._parameters:
            # What kernels.yaml gives is a number, a text or a function.
            return not self._returns
        return all(
            isinstance(node, (*_Definition, ast.Import, ast.ImportFrom))
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
                return value.func.id in {"bool", "float", "int", "len", "str"}
            return (self._around.outside(value.func) or "").startswith(_PLAIN_MODULES)
        return (self._around.outside(value) or "").startswith(_PLAIN_MODULES)
