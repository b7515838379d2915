"""The grid of a launch in kernels.yaml's expressions: over arguments and constants, with inputs for all else."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kiln.errors import ManifestError, Position
from kiln.manifest.expression import RESERVED_NAMES, parse_expression
from kiln.manifest.names import check_parameter
from kiln.project.launch_code import Launch, scope_literal

_PLAIN = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
_DEEPEST = 8
"""variables that are followed one through the other"""


@dataclass(kw_only=True)
class Grid:
    """A grid in kernels.yaml's words."""

    extents: list[str] = field(default_factory=list)
    """one to three expressions"""
    inputs: list[str] = field(default_factory=list)
    """names in them that are neither arguments nor constants: what a launch must be given besides"""


def grid_of(launch: Launch | None, integers: set[str], taken: set[str], dimensions: int) -> Grid:
    """The grid of a launch; where it cannot be told, an input for each of the kernel's `dimensions`.

    `integers` are the kernel's parameters that expressions can use. Those in `taken` cannot be the names of inputs.
    """
    grid = Grid()
    if launch is not None:
        extents, meta = _extents(launch.grid, launch, 0)
        translator = _Translator(
            launch=launch, meta=meta, integers=integers, taken=taken, grid=grid, known=_known(launch, integers)
        )
        grid.extents = [translator.text(extent) for extent in extents[:3]]
    if not grid.extents:
        names = ["grid_x", "grid_y", "grid_z"][:dimensions]
        grid.extents = list(names)
        grid.inputs = list(names)
    return grid


def _known(launch: Launch, integers: set[str]) -> dict[str, str]:
    """What the launch passes, as text -> the parameter that it is passed for."""
    known: dict[str, str] = {}
    for name, passed in launch.passed.items():
        if name in integers and passed.node is not None and not isinstance(passed.node, ast.Constant):
            known.setdefault(ast.dump(passed.node), name)
            if isinstance(passed.node, ast.Name) and passed.node.id in launch.scope.values:
                value = launch.scope.values[passed.node.id]
                if not isinstance(value, ast.Constant):
                    known.setdefault(ast.dump(value), name)
    return known


def _extents(node: ast.expr, launch: Launch, depth: int) -> tuple[list[ast.expr], str | None]:
    """The expressions of a grid, and what its function calls the constants; none for what is made in another way."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return ([] if any(isinstance(item, ast.Starred) for item in node.elts) else node.elts), None
    if isinstance(node, ast.Lambda):
        arguments = node.args.args
        return _extents(node.body, launch, depth + 1)[0], arguments[0].arg if arguments else None
    if isinstance(node, ast.Name) and node.id in launch.scope.values and depth < _DEEPEST:
        return _extents(launch.scope.values[node.id], launch, depth + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return [node], None
    return [], None


@dataclass(frozen=True, kw_only=True)
class _Translator:
    launch: Launch
    meta: str | None
    integers: set[str]
    taken: set[str]
    known: Mapping[str, str]
    grid: Grid

    def text(self, node: ast.expr) -> str:
        """An extent as an expression of kernels.yaml; an input where the language has no words for it."""
        text = ast.unparse(self._tree(node, 0))
        try:
            if parse_expression(text, Position(file="grid", line=1)).type == "int":
                return text
        except ManifestError:
            pass
        return self._input(node)

    def _tree(self, node: ast.expr, depth: int) -> ast.expr:
        name = self.known.get(ast.dump(node))
        if name is not None:
            return ast.Name(id=name)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == self.meta:
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if key in self.integers:
                return ast.Name(id=str(key))
        if isinstance(node, ast.BinOp) and isinstance(node.op, _PLAIN):
            return ast.BinOp(left=self._tree(node.left, depth), op=node.op, right=self._tree(node.right, depth))
        if isinstance(node, ast.Call) and not node.keywords:
            word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if word in RESERVED_NAMES and node.args:
                return ast.Call(
                    func=ast.Name(id=word), args=[self._tree(argument, depth) for argument in node.args], keywords=[]
                )
            if word == "int" and len(node.args) == 1:
                return self._tree(node.args[0], depth)
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        return ast.Name(id=self._input(node))

    def _name(self, node: ast.Name, depth: int) -> ast.expr:
        literal = scope_literal(self.launch.scope, node)
        if type(literal) is int and node.id not in self.launch.scope.parameters:
            return ast.Constant(value=literal)
        value = self.launch.scope.values.get(node.id)
        if value is None or depth >= _DEEPEST:
            return ast.Name(id=self._input(node))
        # A variable is followed where that ends in arguments and constants; else it is an input under its own name.
        before = list(self.grid.inputs)
        tree = self._tree(value, depth + 1)
        if self.grid.inputs == before:
            return tree
        self.grid.inputs[:] = before
        return ast.Name(id=self._input(node))

    def _input(self, node: ast.expr) -> str:
        name = re.sub(r"\W+", "_", ast.unparse(node)).strip("_").lower()[:40].rstrip("_") or "extent"
        if isinstance(node, ast.Name):
            name = node.id
        name = name if name[0].isalpha() else f"n_{name}"
        while name in self.taken or not _is_parameter(name):
            name += "_"
        if name not in self.grid.inputs:
            self.grid.inputs.append(name)
        return name


def _is_parameter(name: str) -> bool:
    try:
        check_parameter(name, Position(file="grid", line=1), "an input")
    except ManifestError:
        return False
    return name not in RESERVED_NAMES
