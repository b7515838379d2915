"""What is read off the text of a CUDA C++ file: its includes, and the parameters of its kernels.

Nothing is preprocessed: an include counts in whatever branch it stands, and a kernel is found where it is spelled out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SPLICE = r"\\[ \t]*\n"
"""what joins two lines; gcc, which stands in front of nvcc, minds no blanks in it"""
_ESCAPED = rf"{SPLICE}|\\(?![ \t]*\n)."
STRING = rf'"(?:{_ESCAPED}|[^"\\\n])*"'
CHARACTER = rf"'(?:{_ESCAPED}|[^'\\\n])*'"
RAW_STRING = r'(?<![\w$])(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
LITERAL = rf"{RAW_STRING}|{STRING}|{CHARACTER}|\b\d(?:'\w|[\w.])*"
"""literals and, for the marks between their digits, numbers; in all of them `.` is any character"""
_TOKEN = re.compile(rf"//(?:{SPLICE}|[^\n])*|/\*.*?\*(?:{SPLICE})*/|{LITERAL}|[\"'](?:{SPLICE}|[^\n])*", re.DOTALL)
"""comments, literals, and quotes that nothing closes, as in the words of an `#error`: those hide a comment, too"""
_LINE_END = re.compile(rf"(?P<literal>{_TOKEN.pattern})|[ \t\r]+$", re.DOTALL | re.MULTILINE)
_DIRECTIVE = re.compile(r"\s*(?:/\*.*?\*/\s*)*#", re.DOTALL)
_INCLUDE = re.compile(r'^[ \t\ufeff]*#[ \t]*(?:include|include_next|import)[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")', re.M)
_BY_MACRO = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]+([A-Za-z_]\w*)[ \t]*$", re.M)
_PATH_MACRO = re.compile(r'^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+(?:<([^>\n]+)>|"([^"\n]+)")[ \t]*$', re.M)
_HAS_INCLUDE = re.compile(r'\b__has_include(?:_next)?\s*\(\s*(?:<([^>\n]+)>|"([^"\n]+)")\s*\)')
_NAMESPACE = re.compile(r"(?<!inline )\bnamespace\s+([\w:]*)\s*\{")
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
    template: str
    """template <typename T, int N>; empty for none"""
    scope: str
    """the namespaces that it is seen to stand in: ns::inner::"""

    @property
    def names(self) -> tuple[str | None, ...]:
        """Of the parameters; None for one without."""
        return tuple(map(_name_of, self.parameters))


def with_plain_line_ends(text: str) -> str:
    """The text with the line ends of other systems made `\\n`, as gcc does, in raw strings too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_comments(text: str) -> str:
    """The text with its comments blanked, less the blanks at the ends of lines; the rest stands at its place.

    Lines that a comment joins into one directive stay one, by a backslash at the end of each.
    """
    joined: set[int] = set()

    def blank(found: re.Match[str]) -> str:
        if not found[0].startswith("/"):
            return found[0]
        if "\n" in found[0] and _in_directive(text, found.start(), joined):
            joined.update(found.start() + mark.start() for mark in re.finditer("\n", found[0]))
            return re.sub(r"[^\n]?\n", "\\\\\n", re.sub(r"[^\n]", " ", found[0]))
        return re.sub(r"[^\n]", " ", found[0])

    return _LINE_END.sub(lambda found: found["literal"] or "", _TOKEN.sub(blank, text))


def _in_directive(text: str, at: int, joined: set[int]) -> bool:
    """Whether a place of the text belongs to a directive; `joined` are newlines in comments of one."""
    start = at
    while True:
        start = text.rfind("\n", 0, start)
        if start < 0 or not (start in joined or text[max(0, start - 80) : start].rstrip(" \t\r").endswith("\\")):
            return _DIRECTIVE.match(text, start + 1, at) is not None


def without_literals(text: str) -> str:
    """A text without comments with its strings and characters blanked; the rest stands at its place."""
    return _TOKEN.sub(lambda found: found[0] if found[0][0].isdigit() else re.sub(r"[^\n]", " ", found[0]), text)


def includes(text: str) -> tuple[Include, ...]:
    """What the text may include, in order, also by a macro that it defines itself; any other macro is left out."""
    lines = without_comments(text)
    code = lines.replace("\\\n", "  ")
    found = [(match.start(), match[1], match[2]) for form in (_INCLUDE, _HAS_INCLUDE) for match in form.finditer(code)]
    macros = set(_BY_MACRO.findall(code))
    found += [(match.start(), match[2], match[3]) for match in _PATH_MACRO.finditer(code) if match[1] in macros]
    return tuple(
        Include(path=path or quoted, is_quoted=path is None, line=_line(lines, start))
        for start, path, quoted in sorted(found, key=lambda each: each[0])
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
        close = closing(code, head.end(), "(", ")")
        if close is None:
            continue
        inside = code[head.end() : close]
        items = [] if inside.strip() in ("", "void") else [" ".join(item.split()) for item in _split(inside)]
        yield KernelText(
            line=_line(code, head.start()),
            is_definition=code[close + 1 :].lstrip()[:1] == "{",
            parameters=tuple(items),
            template=_template(code[: mark.start()]),
            scope=_scope(code, mark.start()),
        )


def _template(before: str) -> str:
    """The parameters of the template that a declaration stands behind; the last ones, for a member of one."""
    start = max(before.rfind(mark) for mark in (";", "{", "}")) + 1
    found = re.search(r"\btemplate\s*<.*>", before[start:], re.DOTALL)
    return " ".join(found[0].split()) if found else ""


def _scope(code: str, at: int) -> str:
    names = []
    for found in _NAMESPACE.finditer(without_literals(code[:at])):
        end = closing(code, found.end(), "{", "}")
        if found[1] and (end is None or end > at):
            names.append(f"{found[1]}::")
    return "".join(names)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def closing(code: str, start: int, opening: str, end: str) -> int | None:
    """Where the bracket closes that opened in front of `start`; None where it does not."""
    depth = 1
    for found in re.compile(f"[{re.escape(opening + end)}]").finditer(code, start):
        depth += 1 if found[0] == opening else -1
        if depth == 0:
            return found.start()
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
