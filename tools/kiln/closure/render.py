"""Kept statements -> Python source that has each of them at its original lines, and blank lines between."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.closure.module import SourceModule, Unit


@dataclass(frozen=True, kw_only=True)
class Trim:
    """A piece inside of a kept statement that the slice has otherwise: a statement, a decorator, or an expression."""

    node: ast.AST
    text: str | None
    """what stands in its place; None for nothing, where a statement or a decorator goes"""


def render(
    module: SourceModule,
    kept: Mapping[int, ast.stmt | Sequence[str]],
    blanked: Mapping[int, Sequence[ast.expr]] | None = None,
    trims: Mapping[int, Sequence[Trim]] | None = None,
) -> str:
    """The slice of `module`; `kept` maps a unit's index to its statement, or to import statements to write for it.

    `blanked` maps it to the annotations of the statement that are not to be there, `trims` to what else is otherwise.

    Original lines keep their numbers, so that a traceback, a diagnostic and debug information name the place in the
    user's file. A condition that was decided is written `if True:`, which keeps the indentation of what stands in it.
    """
    page = _Page(module)
    for index in sorted(kept):
        page.put(module.units[index], kept[index])
        page.blank((blanked or {}).get(index, ()), module.units[index].node)
        page.trim((trims or {}).get(index, ()))
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
        block = next(block for block in _blocks(inside[-1]) if node in block)
        indent = self.prefix(block[0])
        if indent is None or indent == outer:
            # `if True: x = 1` in one line, or an `elif`, which is an `if` of the same depth in an `else`.
            return outer
        # Of a `try` more than one block may be kept; the line before the first statement in `else` is free.
        is_first = isinstance(inside[-1], ast.If) or block is inside[-1].body  # type: ignore[attr-defined]  # an `if` or a `try`
        line = inside[-1].lineno if is_first else _begin(block[0])[0] - 1
        self.lines[line - 1] = f"{outer}if True:"
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

    def trim(self, trims: Sequence[Trim]) -> None:
        """Replace pieces, the last one first: what stands before a piece keeps its columns."""
        for trim in sorted(trims, key=lambda trim: _begin(trim.node), reverse=True):
            line, offset = _begin(trim.node)
            begin = self.place(line, offset)
            end = self.place(getattr(trim.node, "end_lineno", line), getattr(trim.node, "end_col_offset", offset))
            before, after = self.lines[begin[0] - 1][: begin[1]], self.lines[end[0] - 1][end[1] :]
            # A decorator stands behind its `@`; a comment behind a piece goes with it.
            is_alone = before.strip() in ("", "@") and (not after.strip() or after.lstrip().startswith("#"))
            if is_alone:
                self.lines[begin[0] - 1 : end[0]] = [""] * (end[0] - begin[0] + 1)
                self.lines[begin[0] - 1] = f"{before}{trim.text}" if trim.text is not None else ""
            else:
                self.space(begin, end, 0)
                text = "pass" if trim.text is None else trim.text
                # A text that is longer than the piece pushes the rest of the line on.
                width = end[1] - begin[1] - len(text) if after.strip() else 0
                tail = " " * width + after if begin[0] == end[0] else "\\"
                self.lines[begin[0] - 1] = f"{before}{text}{tail}"

    def space(self, begin: tuple[int, int], end: tuple[int, int], first: int) -> None:
        """Spaces from one place to another; lines are counted from `first`. A backslash keeps the lines together."""
        text = self.lines[first + begin[0] - 1]
        indent = text[: len(text) - len(text.lstrip())]
        for row in range(begin[0], end[0] + 1):
            line = self.lines[first + row - 1]
            # Triton takes off the indentation that all lines of a function share.
            kept = line[: begin[1]] if row == begin[0] else indent
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


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of an `if` or a `try`."""
    if isinstance(node, ast.Try):
        return [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]
    assert isinstance(node, ast.If)
    return [node.body, node.orelse]


def _begin(node: ast.AST) -> tuple[int, int]:
    """Line and column, in bytes, where a node begins; a definition begins with its first decorator."""
    first = min([*getattr(node, "decorator_list", ()), node], key=lambda part: part.lineno)
    return first.lineno, first.col_offset
