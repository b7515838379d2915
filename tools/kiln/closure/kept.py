"""What a cut needs, and what it has kept of each file so far."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kiln.closure.module import SourceModule, Unit
from kiln.closure.render import Trim
from kiln.closure.resolve import bound_by
from kiln.errors import Position


@dataclass(frozen=True, kw_only=True)
class Want:
    """A name of a module that the closure needs, and how it came to need it."""

    module: SourceModule
    name: str
    attributes: tuple[str, ...] = ()
    at: Position
    """where it is read"""
    certain: bool = True
    via: tuple[str, ...] = ()
    """the definitions that lead to it, the kernel first"""
    trail: tuple[tuple[SourceModule, Unit], ...] = ()
    """the statements that lead to it, the kernel's first"""
    changed: str | None = None
    """what the kernel needs and the statement may change that leads to it, where it is needed for no more than that"""

    made: str | None = None
    """of a function: the variable of it that is needed, in place of the function itself"""

    def path(self) -> str:
        return ".".join((self.name, *self.attributes))


@dataclass(kw_only=True)
class Kept:
    """What the closure has of one file. It grows while names are followed, so it is not frozen."""

    module: SourceModule
    statements: dict[int, ast.stmt] = field(default_factory=dict)
    imports: dict[int, dict[str, ImportedName]] = field(default_factory=dict)
    blanked: dict[int, tuple[ast.expr, ...]] = field(default_factory=dict)
    """annotations that the slice leaves out, by statement"""
    trims: dict[int, tuple[Trim, ...]] = field(default_factory=dict)
    """what else it leaves out of a statement, or has otherwise"""

    def content(self) -> dict[int, ast.stmt | list[str]]:
        content: dict[int, ast.stmt | list[str]] = {**self.statements}
        for unit in self.module.futures:
            content[unit.index] = unit.node
        for index, names in self.imports.items():
            node = self.module.units[index].node
            assert isinstance(node, (ast.Import, ast.ImportFrom))
            order = [bound_by(alias) for alias in node.names] + sorted(names)
            content[index] = [names[name].text() for name in dict.fromkeys(order) if name in names]
        return content


@dataclass(frozen=True, kw_only=True)
class ImportedName:
    """One name of an import statement as the slice has it."""

    statement: str
    below: set[str] = field(default_factory=set)
    """synthetic modules that are reached through the name, and so must be imported with it; more as they are found"""

    def text(self) -> str:
        modules = ", ".join(sorted(self.below))
        return f"import {modules}; {self.statement}" if modules else self.statement
