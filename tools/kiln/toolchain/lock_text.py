"""The text of kiln.lock as nodes with their places, so that what is wrong in it is told as in kernels.yaml.

It is strict JSON (RFC 8259): what Python's reader takes beyond that is refused, and so are keys that stand twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kiln.errors import LockError, Position
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, List, Map, Node, Scalar

REMEDY = "restore the file as it was committed; or remove it, and run `doit lock` on each machine that makes releases"

_MERGE = ("<<<<<<< ", "=======", ">>>>>>> ")
"""how git marks what it could not merge"""
_DEEPEST = 20
_TOKEN = re.compile(r'[ \t\r\n]*(?:("(?:[^"\\]|\\.)*")|([\[\]{}:,])|([^\s\[\]{}:,"]+))')


def read_text(data: bytes, file: str) -> Node:
    """What a file holds, which messages call `file`. Raises LockError for what is no JSON, at its line."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _damaged("it is no text in UTF-8", Position(file=file, line=line), f"byte {error.start}") from None
    for number, words in enumerate(text.splitlines(), 1):
        if words.startswith(_MERGE):
            raise LockError(
                "the file has the marks of a merge",
                where=Position(file=file, line=number),
                expected="one text of the two",
                actual=show(words),
                remedy="take either of the two, and run `doit lock` on each machine that makes releases",
            )
    try:
        json.loads(text, parse_constant=_no_constant, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        place = Position(file=file, line=error.lineno, column=error.colno)
        rest = text[error.pos :].split("\n", 1)[0]
        actual = f"{error.msg}, at {show(rest, 40)}" if rest else f"{error.msg}, at the end"
        raise _damaged("the file is no JSON", place, actual) from None
    except ValueError as error:
        raise _damaged("the file is no JSON", Position(file=file, line=1), str(error)) from None
    except RecursionError:
        raise _damaged("the file is no lock", Position(file=file, line=1), "brackets within brackets") from None
    return _Reader(text=text, file=file, tokens=_TOKEN.finditer(text)).value(0)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _damaged(what: str, where: Position, actual: str) -> LockError:
    return LockError(what, where=where, expected="what `doit lock` writes", actual=actual, remedy=REMEDY)


@dataclass(kw_only=True)
class _Reader:
    """Goes once through a text that is known to be JSON."""

    text: str
    file: str
    tokens: Iterator[re.Match[str]]
    line: int = 1
    start: int = field(default=0)
    """of that line"""

    def value(self, depth: int) -> Node:
        return self._value(*self._next(), depth)

    def _value(self, token: str, position: Position, depth: int) -> Node:
        if depth > _DEEPEST:
            raise _damaged("the file is no lock", position, "brackets within brackets")
        if token == "{":
            return self._map(position, depth)
        if token == "[":
            return self._list(position, depth)
        if token.startswith('"'):
            return Scalar(text=json.loads(token), plain=False, position=position)
        return Scalar(text=token, plain=True, position=position)

    def _map(self, position: Position, depth: int) -> Map:
        entries: dict[str, Entry] = {}
        token, place = self._next()
        while token != "}":
            if token == ",":
                token, place = self._next()
            key = Scalar(text=json.loads(token), plain=False, position=place)
            if key.text in entries:
                raise LockError(
                    f"the key {show(key.text)} stands twice",
                    where=place,
                    expected="each key once",
                    actual=f"the first is at line {entries[key.text].key.position.line}",
                    remedy="take out one of them, and run `doit lock` on each machine that makes releases",
                )
            self._next()
            entries[key.text] = Entry(key=key, value=self.value(depth + 1))
            token, place = self._next()
        return Map(entries=tuple(entries.values()), position=position)

    def _list(self, position: Position, depth: int) -> List:
        items: list[Node] = []
        token, place = self._next()
        while token != "]":
            if token == ",":
                token, place = self._next()
            items.append(self._value(token, place, depth + 1))
            token, place = self._next()
        return List(items=tuple(items), position=position)

    def _next(self) -> tuple[str, Position]:
        match = next(self.tokens)
        begin = match.start(match.lastindex or 0)
        lines = self.text.count("\n", self.start, begin)
        if lines:
            self.line += lines
            self.start = self.text.rindex("\n", 0, begin) + 1
        return match[match.lastindex or 0], Position(file=self.file, line=self.line, column=begin - self.start + 1)
