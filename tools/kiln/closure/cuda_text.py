"""What is read off the text of a CUDA C++ file: its includes, and the parameters of its kernels.

Nothing is preprocessed: an include counts in whatever branch it stands, and a kernel is found where it is spelled out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r'//(?:[^\n\\]|\\\n|\\.)*|/\*.*?(?:\*/|\Z)|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_INCLUDE = re.compile(r'^[ \t\ufeff]*#[ \t]*(?:include|include_next|import)[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.M)
_HAS_INCLUDE = re.compile(r'\b__has_include(?:_next)?\s*\(\s*(?:<([^>\n]+)>|"([^"\n]+)")\s*\)')
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$", re.ASCII)
_QUALIFIERS = {"const", "volatile", "struct", "class", "enum", "typename", "unsigned", "signed", "long", "short"}
_TYPES = {"int", "char", "float", "double", "bool", "void", "auto", "__restrict__", "__restrict", "restrict"}


@dataclass(frozen=True, kw_only=True)
class Include:
    """A file that an `#include` or a `__has_include` names."""

    path: str
    """as it is written"""
    is_quoted: bool
    """looked up beside the file first"""
    line: int


@dataclass(frozen=True, kw_only=True)
class KernelText:
    """A `__global__` function as it is written."""

    line: int
    is_definition: bool
    parameters: tuple[str, ...]
    """the text of each"""

    @property
    def names(self) -> tuple[str | None, ...]:
        """Of the parameters; None for one without."""
        return tuple(map(_name_of, self.parameters))


def without_comments(text: str) -> str:
    """The text with its comments blanked, less the blanks at the ends of lines; the rest stands at its place."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0]) if found[0].startswith("/") else found[0]

    return re.sub(r"[ \t\r]+$", "", _TOKEN.sub(blank, text), flags=re.MULTILINE)


def includes(text: str) -> tuple[Include, ...]:
    """What the text may include, in order. One that is named by a macro is left out."""
    lines = without_comments(text)
    code = lines.replace("\\\n", "  ")
    found = [*_INCLUDE.finditer(code), *_HAS_INCLUDE.finditer(code)]
    return tuple(
        Include(path=match[1] or match[2], is_quoted=match[1] is None, line=_line(lines, match.start()))
        for match in sorted(found, key=lambda match: match.start())
    )


def kernels_called(text: str, name: str) -> Iterator[KernelText]:
    """The `__global__` functions with that name, without its namespace, in order."""
    code = without_comments(text)
    called = re.compile(rf"\b{re.escape(name)}\s*(?:<[^;{{}}()]*>)?\s*\(")
    for mark in re.finditer(r"\b__global__\b", code):
        end = re.compile(r"[;{}]").search(code, mark.end())
        head = called.search(code, mark.end(), end.end() if end else len(code))
        if head is None:
            continue
        close = _closing(code, head.end())
        if close is None:
            continue
        inside = code[head.end() : close]
        items = [] if inside.strip() in ("", "void") else [" ".join(item.split()) for item in _split(inside)]
        yield KernelText(
            line=_line(code, head.start()),
            is_definition=code[close + 1 :].lstrip()[:1] == "{",
            parameters=tuple(items),
        )


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _closing(code: str, start: int) -> int | None:
    depth = 1
    for at in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return None


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no brackets."""
    parts, start, depth = [], 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, "<": 1, ")": -1, "]": -1, "}": -1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _name_of(parameter: str) -> str | None:
    """The last word of a declaration, where a type stands in front of it."""
    found = _NAME.search(parameter.partition("=")[0].rstrip())
    if found is None or found[1] in _TYPES or found[1] in _QUALIFIERS:
        return None
    before = parameter[: found.start()].strip()
    words = [
        word for word in re.findall(r"\w+|[^\w\s]", before) if word not in ("const", "volatile", "__grid_constant__")
    ]
    return found[1] if words and before[-1:] != ":" and "..." not in before else None
