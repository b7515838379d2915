"""CUDA C++ without its layout: the text that is hashed and compiled, and the way back from its lines to the author's.

A compiler of C++ sees no layout but through a few words: `__LINE__`, `assert`, a macro that turns its arguments into
text. A file that uses one of those keeps its lines and blanks. Any other is written down with one token on a line, so
that files which differ in layout alone are one text, and each line of that text is one place of the author's.

Source of the grammar: ISO C++, [lex.phases], [lex.pptoken].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kiln.closure.cuda_text import CHARACTER, LITERAL, RAW_STRING, SPLICE, STRING, without_literals

_WORD = r"[\w$\x80-\U0010ffff]+"
_PIECE = re.compile(
    rf"""
    ^[ \t\f\v]*\#(?:{STRING}|{SPLICE}|[^\n])*   # a directive, to the end of its last line
    |{RAW_STRING}(?:{_WORD})?
    |(?:u8|[uUL])?{STRING}(?:{_WORD})?
    |(?:u8|[uUL])?{CHARACTER}(?:{_WORD})?
    |\.?[0-9](?:[eEpP][+-]|'\w|[\w.])*
    |{_WORD}
    |<<<|>>>|<=>|<<=|>>=|->\*|\.\.\.|->|\.\*|\+\+|--|<<|>>|[<>=!+*/%&|^-]=|&&|\|\||::|\#\#
    |/\*                                                    # a comment that nothing closes
    |{SPLICE}
    |\S
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_UNCERTAIN = re.compile(r"<%|%>|<:(?!:)|:>|%:|\?\?[=/'()!<>-]")
"""digraphs and trigraphs"""
_BLANKS = re.compile(rf"(?P<literal>{LITERAL})|(?P<start>^)?[ \t\f\v]+", re.DOTALL | re.MULTILINE)
_DEFINE = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_$][\w$]*)(\()?((?:{SPLICE}|[^\n])*)", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|include_next|import)\b[^\n]*", re.MULTILINE)
_STRINGIFIES = re.compile(r"(?<!#)(?:##)*#(?!#)")
_NAMES = re.compile(r"[A-Za-z_$][\w$]*")
_PASTED = re.compile(r"[\w$]+(?:\s*##\s*[\w$]+)+")
_SHOWS = re.compile(r"(?!static_assert$|_Static_assert$)\w*assert\w*$", re.IGNORECASE)
_COLUMNS = "source_location"
_SHOWING = frozenset({"__LINE__", "__builtin_LINE", _COLUMNS, "__STRING", "_CCCL_TO_STRING"})
"""what compiler, C library and toolkit have that tells a line or the text of an argument, beside assert and its like"""
_LINE_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:line\b|\d)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a file; lines and columns count from 1."""

    line: int
    column: int | None
    """None where the line alone is known"""


@dataclass(frozen=True, kw_only=True)
class CompiledText:
    """One file as the compiler gets it. Pickles."""

    text: str
    """the author's, without comments; for messages"""
    keeps_layout: bool

    data: bytes
    """what the compiler gets"""

    def place(self, line: int) -> Place:
        """The place in the author's file of a line in `data`."""
        pieces = None if self.keeps_layout else _pieces(self.text)
        at = 1
        for piece, start in pieces or ():
            height = piece.count("\n") + 1
            if line < at + height or (pieces and start == pieces[-1][1]):
                inside = max(0, min(line - at, height - 1))
                before = self.text.rfind("\n", 0, start) + 1
                column = 1 if inside else start - before + 1
                return Place(line=self.text.count("\n", 0, start) + 1 + inside, column=column)
            at += height
        return Place(line=line, column=None)


def compiled_texts(texts: Iterable[str], *, as_written: bool = False) -> list[CompiledText]:
    """The files of one translation unit, each without comments: which keep their layout depends on all their macros.

    `as_written`, all keep it with each blank, so that lines and columns are the author's.
    """
    files = list(texts)
    if as_written:
        return [CompiledText(text=text, keeps_layout=True, data=_encoded(text)) for text in files]
    words = _showing(files)
    columns = any(_COLUMNS in names for text in files for names in (_words(text).used, *_words(text).macros.values()))
    made = []
    for text in files:
        data = None if _shows(text, words) else _one_token_a_line(text)
        if data is None:
            data = _encoded(text if columns else _one_blank(text))
            made.append(CompiledText(text=text, keeps_layout=True, data=data))
        else:
            made.append(CompiledText(text=text, keeps_layout=False, data=data))
    return made


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _showing(files: Iterable[str]) -> frozenset[str]:
    """The macros that make lines or the layout of their arguments part of the program, by way of other macros, too."""
    macros: dict[str, set[str]] = {}
    pastes: dict[str, set[tuple[str, str]]] = {}
    words = set(_SHOWING)
    for text in files:
        found = _words(text)
        words |= found.stringify
        for name, names in found.macros.items():
            macros.setdefault(name, set()).update(names)
            pastes.setdefault(name, set()).update(found.pastes[name])
    grown = True
    while grown:
        more = {
            name
            for name, used in macros.items()
            if name not in words
            and (used & words or any(map(_SHOWS.match, used)) or any(_makes(paste, words) for paste in pastes[name]))
        }
        words |= more
        grown = bool(more)
    return frozenset(words)


def _makes(paste: tuple[str, str], words: set[str]) -> bool:
    """Whether the name that a macro pastes together can be one of the words; of arguments alone, one of the files'."""
    start, end = paste
    return any(word.startswith(start) and word.endswith(end) for word in (words if start or end else words - _SHOWING))


@dataclass(frozen=True, kw_only=True)
class _Words:
    macros: Mapping[str, frozenset[str]]
    """what each is made of"""
    pastes: Mapping[str, frozenset[tuple[str, str]]]
    """how the names start and end that each makes with `##`, as far as it says that itself"""
    stringify: frozenset[str]
    """macros that turn an argument into text"""
    used: frozenset[str]
    """the names outside of what macros are made of, which counts where a macro is used"""


@lru_cache(maxsize=4096)
def _words(text: str) -> _Words:
    """Kernels share headers, so that a text is asked for often."""
    code = without_literals(text)
    macros: dict[str, frozenset[str]] = {}
    pastes: dict[str, frozenset[tuple[str, str]]] = {}
    stringify = set()
    for found in _DEFINE.finditer(code):
        if found[2] and _STRINGIFIES.search(found[3]):
            stringify.add(found[1])
        macros[found[1]] = macros.get(found[1], frozenset()).union(_NAMES.findall(found[3]))
        pastes[found[1]] = pastes.get(found[1], frozenset()).union(_pastes(found[3], is_function=bool(found[2])))
    used = _NAMES.findall(_INCLUDE.sub("", _DEFINE.sub("", code)))
    return _Words(macros=macros, pastes=pastes, stringify=frozenset(stringify), used=frozenset(used))


def _pastes(macro: str, *, is_function: bool) -> Iterator[tuple[str, str]]:
    """The fixed starts and ends of names that a macro pastes, from what stands behind its name and opening bracket."""
    parameters = set(_NAMES.findall(macro.partition(")")[0])) if is_function else set()
    for found in _PASTED.finditer(macro):
        first, *_, last = re.split(r"\s*##\s*", found[0])
        yield ("" if first in parameters else first, "" if last in parameters else last)


def _shows(text: str, words: frozenset[str]) -> bool:
    """Whether the program can see the layout of a file, or may."""
    used = _words(text).used
    if used & words or any(map(_SHOWS.match, used)):
        return True
    return bool(_UNCERTAIN.search(text) or _LINE_DIRECTIVE.search(text))


@lru_cache(maxsize=4096)
def _one_token_a_line(text: str) -> bytes | None:
    """None where it is not certain what the tokens are."""
    pieces = _pieces(text)
    return None if pieces is None else "".join(f"{piece}\n" for piece, _ in pieces).encode("utf-8", "surrogateescape")


def _pieces(text: str) -> list[tuple[str, int]] | None:
    """Tokens and directives with the offset of each; None where it is not certain that tokens end where they seem to.

    Two operators without a blank between them are split as compilers split them: the longest one first.
    """
    pieces: list[tuple[str, int]] = []
    for found in _PIECE.finditer(text):
        piece, start = found[0], found.start()
        if piece == "/*":
            return None
        if piece[0] == "\\":
            glued = (
                found.end() < len(text) and not text[found.end()].isspace() and not text[start - 1 : start].isspace()
            )
            if len(piece) == 1 or glued:
                return None
            continue
        if piece.lstrip()[0] == "#" and not piece.startswith("##"):
            if 'R"' in piece:
                return None
            start += len(piece) - len(piece.lstrip())
            piece = _directive(piece)
        pieces.append((piece, start))
    return pieces


def _directive(text: str) -> str:
    """A directive on one line. Blanks in it count, as they do in what a macro stands for; how many of them does not."""
    line = _one_blank(re.sub(SPLICE, "", text)).strip()
    return re.sub(r"^# ", "#", line)


def _one_blank(text: str) -> str:
    """The text with one blank for several in a line, and none at its start."""
    return _BLANKS.sub(lambda found: found["literal"] or ("" if found["start"] is not None else " "), text)
