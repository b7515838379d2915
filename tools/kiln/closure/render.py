"""Kept statements -> Python source that has each of them at its original lines, and blank lines between."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from kiln.closure.module import SourceModule, Unit


def render(module: SourceModule, kept: Mapping[int, ast.stmt | Sequence[str]]) -> str:
    """The slice of `module`; `kept` maps a unit's index to its statement, or to import statements to write for it.

    Original lines keep their numbers, so that a traceback, a diagnostic and debug information name the place in the
    user's file. A condition that was decided is written `if True:`, which keeps the indentation of what stands in it.
    """
    page = _Page(module)
    for index in sorted(kept):
        page.put(module.units[index], kept[index])
    return "\n".join(page.lines).rstrip("\n") + "\n"


class _Page:
    def __init__(self, module: SourceModule) -> None:
        self.module = module
        self.lines = [""] * len(module.lines)

    def put(self, unit: Unit, content: ast.stmt | Sequence[str]) -> None:
        indent = self.open_blocks(unit.node, unit.inside)
        if not isinstance(content, ast.stmt):
            for text in content:
                self.write(unit.node.lineno, indent, text)
        elif isinstance(content, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for decorator in content.decorator_list:
                self.write(decorator.lineno, indent, f"@{ast.unparse(decorator)}")
            self.copy(content)
        elif content is unit.node and self.prefix(unit.node) is not None:
            self.copy(content)
        else:
            # It shares its line with others, or is not as it was: both are short, and have no lines of their own.
            self.write(content.lineno, indent, ast.unparse(content))

    def open_blocks(self, node: ast.stmt, inside: tuple[ast.stmt, ...]) -> str:
        """The indentation of `node`'s block; the `if True:` lines that it needs are written."""
        if not inside:
            return ""
        outer = self.open_blocks(inside[-1], inside[:-1])
        block = next(body for body in (inside[-1].body, inside[-1].orelse) if node in body)  # type: ignore[attr-defined]
        indent = self.prefix(block[0])
        if indent is None or indent == outer:
            # `if True: x = 1` in one line, or an `elif`, which is an `if` of the same depth in an `else`.
            return outer
        self.lines[inside[-1].lineno - 1] = f"{outer}if True:"
        return indent

    def prefix(self, node: ast.stmt) -> str | None:
        """The white space before a statement, or None when something else stands before it in its line."""
        before = self.module.lines[node.lineno - 1].encode()[: node.col_offset].decode()
        return before if not before.strip() else None

    def copy(self, node: ast.stmt) -> None:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        self.lines[first : last + 1] = self.module.lines[first : last + 1]
        self.lines[last] = self.lines[last].encode()[: node.end_col_offset].decode()

    def write(self, line: int, indent: str, text: str) -> None:
        present = self.lines[line - 1]
        self.lines[line - 1] = f"{present}; {text}" if present else f"{indent}{text}"
