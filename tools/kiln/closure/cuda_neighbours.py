"""Takes the bodies of other kernels out of the files of one: it cannot call them, so their edits are none of its own.

A kernel that is named nowhere else is left as its declaration. What else stands in a file stays: which functions,
operators and conversions a kernel comes to use is the compiler's knowledge.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from kiln.closure.cuda_text import SPLICE, closing, without_literals

_MARK = re.compile(r"\b__global__\b")
_HEAD_END = re.compile(r"[;{}]")
_NAME = re.compile(r"([A-Za-z_$][\w$]*)\s*$")
_NAMES = re.compile(r"[A-Za-z_$][\w$]*")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)", re.MULTILINE)
_SPECIFIER = re.compile(r"\b__\w+__\s*\((?:[^()]|\([^()]*\))*\)")
"""such as `__launch_bounds__(256)`"""
_DEFINE = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_$][\w$]*)((?:{SPLICE}|[^\n])*)", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b[^\n]*", re.MULTILINE)
_HARMLESS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif", "error"})
"""directives in a body that mean nothing to what stands behind it"""
_UNROLL = re.compile(r'^[ \t]*#[ \t]*pragma[ \t]+(?:no)?unroll\b|\b_Pragma\s*\(\s*"\s*(?:no)?unroll\b', re.MULTILINE)
_PRAGMA = re.compile(r"^[ \t]*#[ \t]*pragma\b|\b_Pragma\b", re.MULTILINE)
"""one that is not about a loop may go on behind the body: `pack`, say"""


@dataclass(frozen=True, kw_only=True)
class _Body:
    name: str
    start: int
    """of the opening brace"""
    end: int
    """behind the closing one"""
    names: frozenset[str]
    """those in it"""


def without_other_kernels(texts: Iterable[str], function: str) -> list[str]:
    """The files of one translation unit, without comments, less the bodies that the kernel `function` cannot need.

    `function` is written as in kernels.yaml, with namespace and template arguments. Lines keep their numbers.
    """
    files = [(text, *_read(text)) for text in texts]
    named = Counter(_NAMES.findall(function))
    for _, names, _ in files:
        named.update(names)
    # Each use of the counter counts, and a macro may hide one.
    if "__COUNTER__" in named:
        return [text for text, _, _ in files]
    lopsided = {name for text, _, _ in files for name in _lopsided(text)}
    return [
        _without(text, [body for body in bodies if named[body.name] == 1 and not lopsided & body.names])
        for text, _, bodies in files
    ]


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[Counter[str], tuple[_Body, ...]]:
    """The names in a file, and the bodies of its kernels. Kernels share headers, so that a text is asked for often."""
    code = without_literals(text)
    return Counter(_NAMES.findall(code)), tuple(_bodies(code, text))


@lru_cache(maxsize=4096)
def _lopsided(text: str) -> frozenset[str]:
    """The macros of a file with braces of one kind, so that those in a body do not tell where it ends."""
    return frozenset(found[1] for found in _DEFINE.finditer(without_literals(text)) if not _is_balanced(found[2]))


def _without(text: str, bodies: Iterable[_Body]) -> str:
    parts, end = [], 0
    for body in bodies:
        parts += [text[end : body.start], ";", "\n" * text.count("\n", body.start, body.end)]
        end = body.end
    return "".join([*parts, text[end:]])


def _bodies(code: str, text: str) -> Iterator[_Body]:
    """The bodies of kernels that begin and end where they seem to; `code` is the text without literals."""
    for mark in _MARK.finditer(code):
        head_end = _HEAD_END.search(code, mark.end())
        if head_end is None or head_end[0] != "{":
            continue
        line = code.rfind("\n", 0, mark.start()) + 1
        if _DIRECTIVE.search(code, line, head_end.start()) or code[:line].endswith("\\\n"):
            continue
        head = code[mark.end() : head_end.start()].rstrip()
        name = _NAME.search(head[: _opening(head)])
        end = closing(code, head_end.end(), "{", "}")
        if not head.endswith(")") or name is None or end is None or "(" in _SPECIFIER.sub("", head[: name.start()]):
            continue
        start, end = head_end.start(), end + 1
        body = code[start:end]
        if _is_plain(body) and len(_PRAGMA.findall(body)) == len(_UNROLL.findall(text[start:end])):
            yield _Body(name=name[1], start=start, end=end, names=frozenset(_NAMES.findall(body)))


def _opening(head: str) -> int:
    """Where the bracket opens that closes at the end of the text; 0 without one."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[at], 0)
        if depth == 0:
            return at
    return 0


def _is_plain(body: str) -> bool:
    """Whether nothing behind the body depends on it, and its braces are the same in each branch of a condition."""
    if not _HARMLESS.issuperset({*_DIRECTIVE.findall(body)} - {"pragma"}):
        return False
    open_conditions, start = 0, 1
    for mark in _CONDITION.finditer(body):
        if open_conditions and not _is_balanced(body[start : mark.start()]):
            return False
        open_conditions += {"i": 1, "e": 0}[mark[1][0]] - (mark[1] == "endif")
        start = mark.end()
        if open_conditions < 0 or (mark[1].startswith("el") and open_conditions == 0):
            return False
    return open_conditions == 0


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall("[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0
