"""What a slice keeps of a class: the attributes that are read off it, or all but methods that nobody calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from kiln.closure import packages, scope
from kiln.closure.module import SourceModule
from kiln.closure.names import Names
from kiln.closure.resolve import Definition, Outside

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_TRANSPARENT = ("abc.ABC", "dataclasses.", "enum.", "functools.total_ordering", "typing.")
"""beginnings of the names of bases and decorators that call no method but those whose names begin with `_`"""
_REWRITES = frozenset({"__init_subclass__", "__getattr__", "__getattribute__", "__set_name__"})


@dataclass(kw_only=True)
class ClassUse:
    """What is needed of one class. It grows, so it is not frozen."""

    names: set[str] = field(default_factory=set)
    """attributes that are read off the class itself"""
    is_whole: bool = False
    """whether it is used otherwise: called, derived from, or given away"""


class Members:
    """Which statements of a class's body the slice keeps, as far as its use is known by now."""

    def __init__(
        self, names: Names, module: SourceModule, node: ast.ClassDef, use: ClassUse, mentioned: frozenset[str] | None
    ) -> None:
        """`mentioned` are the attribute names that the closure's code has anywhere; None for any name."""
        self._names = names
        self._module = module
        self.node = node
        self.drops_bases = False
        own = frozenset().union(*map(scope.binds, node.body))
        if not use.is_whole and use.names <= own and self._is_plain(module, node, frozenset()):
            self.drops_bases = bool(node.bases)
            self._kept = self._attributes(use.names)
        else:
            self._kept = set(node.body)
            if mentioned is not None and self._is_transparent():
                self._kept -= self._idle(mentioned)

    def is_kept(self, node: ast.stmt) -> bool:
        return node in self._kept

    def _attributes(self, wanted: set[str]) -> set[ast.stmt]:
        """The statements that bind the wanted names, and what those read and others change."""
        needed, kept = set(wanted), set[ast.stmt]()
        known = -1
        while known < len(kept) + len(needed):
            known = len(kept) + len(needed)
            for node in self.node.body:
                binds, reads = scope.binds(node), self._reads(node)
                is_plain = isinstance(node, (*_Function, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom))
                has_call = not isinstance(node, _Function) and any(
                    isinstance(child, ast.Call) for child in scope.own_nodes([node])
                )
                if binds & needed or (reads & needed and (has_call or not is_plain)):
                    kept.add(node)
                    needed |= reads
        return kept

    def _reads(self, node: ast.stmt) -> set[str]:
        """The names that a statement of the body reads while the body runs, of those that the body binds."""
        own = frozenset().union(*map(scope.binds, self.node.body))
        return {
            child.id
            for child in scope.own_nodes([node])
            if isinstance(child, ast.Name) and child.id in own and (isinstance(child.ctx, ast.Load) or _augments(node))
        }

    def _idle(self, mentioned: frozenset[str]) -> set[ast.stmt]:
        """Methods that nothing names."""
        methods = [node for node in self.node.body if isinstance(node, _Function) and not node.name.startswith("_")]
        rest = [node for node in self.node.body if node not in methods]
        named = mentioned | {name for node in rest for name in self._reads(node)}
        return {node for node in methods if node.name not in named}

    def _is_plain(self, module: SourceModule, node: ast.ClassDef, seen: frozenset[str]) -> bool:
        """Whether the class gives what its body binds, whatever it is derived from."""
        if node.decorator_list or node.keywords or any(name in _REWRITES for name in _methods(node)):
            return False
        if any(self._sets_names(module, child) for child in scope.own_nodes([*node.body])):
            return False
        for base in self._bases(module, node):
            if isinstance(base, Outside):
                if not packages.is_foreign(base.dotted):
                    return False
            elif isinstance(base, Definition):
                found = [unit.node for unit in base.module.binding(base.name)]
                key = f"{base.module.file}:{base.name}"
                if len(found) != 1 or not isinstance(found[0], ast.ClassDef) or key in seen:
                    return False
                if not self._is_plain(base.module, found[0], seen | {key}):
                    return False
            elif base is None:
                return False
        return True

    def _sets_names(self, module: SourceModule, node: ast.AST) -> bool:
        """Whether a node calls something of the project that may give an object with `__set_name__`."""
        target = self._target_in(module, node.func) if isinstance(node, ast.Call) else None
        return isinstance(target, Definition) and target.module.mentions({"__set_name__"})

    def _is_transparent(self) -> bool:
        """Whether nothing can call the class's methods but code of the closure that names them."""
        if self.node.keywords:
            return False
        outer = [*self._bases(self._module, self.node), *map(self._target, self.node.decorator_list)]
        for target in outer:
            if isinstance(target, Outside):
                if not target.dotted.startswith(_TRANSPARENT):
                    return False
            elif isinstance(target, Definition):
                found = [unit.node for unit in target.module.binding(target.name)]
                if len(found) != 1 or not isinstance(found[0], ast.ClassDef):
                    return False
                if not Members(self._names, target.module, found[0], ClassUse(is_whole=True), None)._is_transparent():
                    return False
            elif target != "object":
                return False
        return True

    def _bases(self, module: SourceModule, node: ast.ClassDef) -> Iterator[Definition | Outside | str | None]:
        for base in node.bases:
            yield self._target_in(module, base)

    def _target(self, node: ast.expr) -> Definition | Outside | str | None:
        return self._target_in(self._module, node.func if isinstance(node, ast.Call) else node)

    def _target_in(self, module: SourceModule, node: ast.expr) -> Definition | Outside | str | None:
        """What a base is: `object`, something of the project, something else, or not to be told."""
        path = scope.plain_path(node.value if isinstance(node, ast.Subscript) else node)
        if path is None:
            return None
        if path == ("object", ()) and not module.binding("object"):
            return "object"
        target = self._names.trace(module, *path)
        if isinstance(target, Definition) and target.attributes:
            return None
        return target if isinstance(target, (Definition, Outside)) else None


def _methods(node: ast.ClassDef) -> set[str]:
    return {child.name for child in node.body if isinstance(child, _Function)}


def _augments(node: ast.stmt) -> bool:
    return isinstance(node, ast.AugAssign)


def mentioned_in(node: ast.AST) -> frozenset[str] | None:
    """The attribute names that code reads, names given as text among them; None where they may be any."""
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute):
            found.add(child.attr)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            found.add(child.value)
        elif isinstance(child, ast.keyword) and child.arg is not None:
            found.add(child.arg)
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "getattr":
            if len(child.args) > 1 and not isinstance(child.args[1], ast.Constant):
                return None
        elif isinstance(child, ast.Name) and child.id in ("dir", "vars"):
            return None
    return frozenset(found)
