"""Kept statements -> Python source that has each of them at its original lines, and blank lines between."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Mapping, Sequence

from kiln.closure.module import SourceModule, Unit


def render(
    module: SourceModule,
    kept: Mapping[int, ast.stmt | Sequence[str]],
    blanked: Mapping[int, Sequence[ast.expr]] | None = None,
) -> str:
    """The slice of `module`; `kept` maps a unit's index to its statement, or to import statements to write for it.

    `blanked` maps it to the annotations of the statement that are not to be there.

    Original lines keep their numbers, so that a traceback, a diagnostic and debug information name the place in the
    user's file. A condition that was decided is written `if True:`, which keeps the indentation of what stands in it.
    """
    page = _Page(module)
    for index in sorted(kept):
        page.put(module.units[index], kept[index])
        page.blank((blanked or {}).get(index, ()), module.units[index].node)
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
        elif hasattr(content, "body") or (content is unit.node and self.prefix(unit.node) is not None):
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

    def blank(self, annotations: Sequence[ast.expr], node: ast.stmt) -> None:
        """Put spaces in the place of annotations, with the `:` or `->` before each and the parentheses around it."""
        if not annotations:
            return
        first = node.lineno - 1
        text = iter([f"{line}\n" for line in self.module.lines[first : node.end_lineno]])
        tokens = [
            token
            for token in tokenize.generate_tokens(lambda: next(text, ""))
            if token.type not in (tokenize.NL, tokenize.COMMENT)
        ]
        starts = {(token.start[0] + first, token.start[1]): number for number, token in enumerate(tokens)}
        ends = {(token.end[0] + first, token.end[1]): number for number, token in enumerate(tokens)}
        for annotation in annotations:
            left = starts[self.place(annotation.lineno, annotation.col_offset)]
            right = ends[self.place(annotation.end_lineno or 0, annotation.end_col_offset or 0)]
            while tokens[left - 1].string == "(" and tokens[right + 1].string == ")":
                left, right = left - 1, right + 1
            self.space(tokens[left - 1].start, tokens[right].end, first)

    def space(self, begin: tuple[int, int], end: tuple[int, int], first: int) -> None:
        """Spaces from one place to another; lines are counted from `first`. A backslash keeps the lines together."""
        for row in range(begin[0], end[0] + 1):
            line = self.lines[first + row - 1]
            kept = line[: begin[1]] if row == begin[0] else ""
            if row < end[0]:
                self.lines[first + row - 1] = f"{kept}\\"
            else:
                self.lines[first + row - 1] = kept + " " * (end[1] - len(kept)) + line[end[1] :]

    def place(self, line: int, offset: int) -> tuple[int, int]:
        """Line and column in characters; ast counts columns in bytes of UTF-8."""
        return line, len(self.module.lines[line - 1].encode()[:offset].decode())

    def write(self, line: int, indent: str, text: str) -> None:
        present = self.lines[line - 1]
        self.lines[line - 1] = f"{present}; {text}" if present else f"{indent}{text}"
