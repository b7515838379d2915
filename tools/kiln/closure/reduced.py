"""A class or a function with a part of its statements, as a slice keeps it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from kiln.closure.render import Trim

_BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True, kw_only=True)
class Reduced:
    """A statement as the slice has it. Nodes that are kept are those of the file's tree."""

    node: ast.stmt
    trims: tuple[Trim, ...] = ()
    """how its text differs from the file's, but for its own decorators"""
    jitted: bool = False
    """whether it makes a function that Triton compiles"""


@dataclass(kw_only=True)
class Reduction:
    """Collects how one statement differs from the file's, so it is not frozen."""

    is_kept: Callable[[ast.stmt], bool] = lambda node: True
    """whether a statement inside is kept; all of what is inside a statement that is not goes with it"""
    decorators: Mapping[ast.AST, Sequence[ast.expr]] = field(default_factory=dict)
    """definition -> the decorators that it has in the slice, in their order"""
    values: Mapping[ast.AST, ast.expr] = field(default_factory=dict)
    """assignment -> the value that it has in the slice"""
    bare: Container[ast.stmt] = frozenset()
    """`return` statements that give nothing in the slice"""
    trims: list[Trim] = field(default_factory=list)

    def of(self, node: ast.stmt) -> ast.stmt:
        """`node` without the statements inside that are not kept; its own decorators need no trim."""
        renewed = copy.copy(node)
        if isinstance(renewed, (ast.FunctionDef, ast.ClassDef)) and node in self.decorators:
            renewed.decorator_list = list(self.decorators[node])
        self._blocks(renewed)
        return renewed

    def _blocks(self, renewed: ast.AST) -> None:
        for name in _BLOCKS:
            block = getattr(renewed, name, None)
            if isinstance(block, list) and block:
                setattr(renewed, name, self._block(block))
        for name in ("handlers", "cases"):
            parts = [copy.copy(part) for part in getattr(renewed, name, ())]
            for part in parts:
                self._blocks(part)
            if parts:
                setattr(renewed, name, parts)

    def _block(self, block: list[ast.stmt]) -> list[ast.stmt]:
        kept = [self._inner(node) for node in block if self.is_kept(node)]
        dropped = [node for node in block if not self.is_kept(node)]
        for number, node in enumerate(dropped):
            self.trims.append(Trim(node=node, text="pass" if not kept and number == 0 else None))
        return kept or [ast.copy_location(ast.Pass(), block[0])]

    def _inner(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.Assign) and node in self.values:
            renewed = copy.copy(node)
            renewed.value = self.values[node]
            self.trims.append(Trim(node=node.value, text=ast.unparse(renewed.value)))
            return renewed
        if isinstance(node, ast.Return) and node.value is not None and node in self.bare:
            self.trims.append(Trim(node=node.value, text="None"))
            return ast.copy_location(ast.Return(value=ast.Constant(value=None)), node)
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return self.of(node) if any(getattr(node, name, None) for name in (*_BLOCKS, "handlers", "cases")) else node
        kept = self.decorators.get(node, node.decorator_list)
        before = {(part.lineno, part.col_offset): part for part in node.decorator_list}
        for place, part in before.items():
            found = [other for other in kept if (other.lineno, other.col_offset) == place]
            if not found or found[0] is not part:
                self.trims.append(Trim(node=part, text=ast.unparse(found[0]) if found else None))
        return self.of(node)
