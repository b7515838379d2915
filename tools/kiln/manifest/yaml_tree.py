"""Strict YAML: the bytes of a file -> a tree of nodes with positions, and a refusal of all that makes YAML surprising.

It reads the parser's events and keeps its own stack, so neither a deep nest nor an alias can make it recurse or grow.
What comes through is one document of plain maps, lists and scalars; `yaml_nodes` says what they look like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from kiln.errors import ManifestError, Position
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, List, Map, Node, Scalar, other_type

MAX_BYTES = 2**20
MAX_DEPTH = 32
"""lists and maps inside each other"""

Mark = Any
"""a parser's mark, of libyaml's or of PyYAML's class: `line` and `column`, counted from 0"""

Loader = Any
"""a class that `yaml.parse` takes"""

_LOADER: Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")

# Control characters; line breaks that YAML knows and editors do not count (NEL, LS, PS, a lone CR); marks that are
# not seen, or that make text look like what it is not (zero width no-break space, directional overrides); what
# Unicode calls no character.
_FORBIDDEN = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]|\r(?!\n)"
)
_DIRECTIVE = re.compile("^%", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_yaml(data: bytes, file: str, loader: Loader = _LOADER) -> Node:
    """The one document in `data`; `file` is its name in positions.

    Raises ManifestError, with line and column, for: bytes that are no UTF-8, a byte order mark, tabs and other
    control characters, more than 1 MiB, syntax errors, tags, anchors, aliases, merge keys, directives, keys that are
    no text or stand twice in one map, nests deeper than 32, no document, and a second one.
    """
    text = _decode(data, file)
    try:
        return _Builder(file).build(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        raise _reword(error, text, file) from None


def _decode(data: bytes, file: str) -> str:
    start = Position(file=file, line=1, column=1)
    if len(data) > MAX_BYTES:
        raise ManifestError(
            "the file is too large",
            where=start,
            expected=f"at most {MAX_BYTES} bytes",
            actual="more",
            remedy="move kernels to further files, and list those under `include`",
        )
    if data.startswith(_BYTE_ORDER_MARKS):
        raise ManifestError(
            "the file starts with a byte order mark",
            where=start,
            expected="UTF-8 without one",
            remedy="save it as UTF-8 without BOM",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise ManifestError(
            "the file is not UTF-8",
            where=_position_at(before, len(before), file),
            expected="UTF-8 without byte order mark",
            actual=f"the byte 0x{data[error.start]:02x}",
            remedy="save it as UTF-8",
        ) from None
    forbidden = _FORBIDDEN.search(text)
    if forbidden is not None:
        tab = forbidden[0] == "\t"
        raise ManifestError(
            "a tab is not accepted" if tab else f"the character U+{ord(forbidden[0]):04X} is not accepted",
            where=_position_at(text, forbidden.start(), file),
            expected="printable characters, spaces and line ends (LF or CR LF)",
            remedy="indent with spaces" if tab else "remove it",
        )
    directive = _DIRECTIVE.search(text)
    if directive is not None:
        raise ManifestError(
            "a YAML directive is not accepted",
            where=_position_at(text, directive.start(), file),
            expected="one plain document",
            remedy="remove the line",
        )
    return text


def _position_at(text: str, index: int, file: str) -> Position:
    line_start = text.rfind("\n", 0, index) + 1
    return Position(file=file, line=text.count("\n", 0, index) + 1, column=index - line_start + 1)


@dataclass(kw_only=True)
class _Open:
    """A list or map that has not ended yet."""

    position: Position
    is_map: bool
    items: list[Node] = field(default_factory=list)
    key: Scalar | None = None
    entries: list[Entry] = field(default_factory=list)
    seen: dict[str, Position] = field(default_factory=dict)

    def close(self) -> Node:
        if self.is_map:
            return Map(entries=tuple(self.entries), position=self.position)
        return List(items=tuple(self.items), position=self.position)


class _Builder:
    """Turns events into nodes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.open: list[_Open] = []
        self.root: Node | None = None

    def build(self, events: Iterator[yaml.Event]) -> Node:
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _second_document(self._position(event.start_mark))
            elif isinstance(event, yaml.NodeEvent):
                self._start_node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._add(self.open.pop().close())
        if self.root is None:
            raise ManifestError(
                "the file is empty",
                where=Position(file=self.file, line=1, column=1),
                expected="a map with the keys version, library, targets and kernels",
            )
        return self.root

    def _start_node(self, event: yaml.NodeEvent) -> None:
        position = self._position(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            raise _alias(position)
        if event.anchor is not None:
            raise _anchor(position)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.tag is not None:
            raise _tag(position)
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style in (None, "")
            start = _text_start(position, event, quotes=0 if plain else 1)
            scalar = Scalar(text=event.value, plain=plain, position=position, start=start)
            if _SURROGATE.search(scalar.text):
                raise _escape(position)
            self._add(scalar)
            return
        if len(self.open) >= MAX_DEPTH:
            raise _too_deep(position)
        if self.open and self.open[-1].is_map and self.open[-1].key is None:
            raise self._no_text_key(position, "a list or a map")
        self.open.append(_Open(position=position, is_map=isinstance(event, yaml.MappingStartEvent)))

    def _add(self, node: Node) -> None:
        """Put a finished node where it belongs: as the root, an item, a key or a value."""
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if not parent.is_map:
            parent.items.append(node)
        elif parent.key is not None:
            parent.entries.append(Entry(key=parent.key, value=node))
            parent.key = None
        else:
            assert isinstance(node, Scalar)
            parent.key = self._checked_key(node, parent.seen)

    def _checked_key(self, key: Scalar, seen: dict[str, Position]) -> Scalar:
        kind = other_type(key)
        if kind == "a merge key":
            raise ManifestError(
                "a merge key is not accepted",
                where=key.position,
                expected="keys that are written out",
                actual="<<",
                remedy="write the keys out, or put what all kernels share under `defaults`",
            )
        if kind is not None:
            raise self._no_text_key(key.position, kind if kind == "nothing" else f"{kind}: {show(key.text)}")
        if key.text in seen:
            first = seen[key.text]
            raise ManifestError(
                f"the key {show(key.text)} stands twice in one map",
                where=key.position,
                expected="each key once",
                actual=f"the first is at line {first.line}, column {first.column}",
                remedy="remove one of them",
            )
        seen[key.text] = key.position
        return key

    def _no_text_key(self, position: Position, actual: str) -> ManifestError:
        quote = None if actual in ("nothing", "a list or a map") else "quote it, if that is the name"
        return ManifestError("a key is not text", where=position, expected="text", actual=actual, remedy=quote)

    def _position(self, mark: Mark) -> Position:
        assert mark is not None  # both parsers mark every event; the type leaves it open
        return Position(file=self.file, line=mark.line + 1, column=mark.column + 1)


def _second_document(position: Position) -> ManifestError:
    return ManifestError(
        "a second document is not accepted",
        where=position,
        expected="one document in the file",
        remedy="remove it, or the `---`, `...` or stray line that ends the first one",
    )


def _too_deep(position: Position) -> ManifestError:
    return ManifestError(
        "lists and maps are nested too deeply",
        where=position,
        expected=f"at most {MAX_DEPTH} levels",
        remedy="remove the extra brackets",
    )


def _alias(position: Position) -> ManifestError:
    return ManifestError(
        "an alias (*name) is not accepted",
        where=position,
        expected="values that are written out",
        remedy='put a text that starts with * in quotes, as in "*fp16:16, i32"; write anything else out',
    )


def _anchor(position: Position) -> ManifestError:
    return ManifestError(
        "an anchor (&name) is not accepted",
        where=position,
        expected="values that are written out",
        remedy="remove the anchor; put what all kernels share under `defaults`",
    )


def _tag(position: Position) -> ManifestError:
    return ManifestError(
        "a tag (!name) is not accepted",
        where=position,
        expected="values whose type follows from their key",
        remedy="remove the tag; quote a text that starts with !",
    )


def _escape(position: Position) -> ManifestError:
    return ManifestError(
        "a wrong escape in a text in double quotes",
        where=position,
        expected=r"one of \\ \" \n \xHH \uHHHH, of a character that exists",
        remedy="correct it, or use single quotes, where a backslash stands for itself",
    )


# libyaml and PyYAML's own parser word the same mistake differently; both forms are listed. Each row: what their
# problem and context look like, ours, what to do, and whether the beginning of the construct is the better place.
_SYNTAX: tuple[tuple[re.Pattern[str], str, str, bool], ...] = (
    (
        re.compile("cannot start any token"),
        "a value cannot start with this character",
        "put the text in quotes",
        False,
    ),
    (
        re.compile("unexpected end of stream.*quoted scalar|quoted scalar.*unexpected end of stream"),
        "the quote that opens here is never closed",
        "close it; inside single quotes, write a quote twice",
        True,
    ),
    (
        re.compile(r"document (?:separator|indicator)"),
        "the quote that opens here is never closed",
        "close it before the line that starts with --- or ...",
        True,
    ),
    (
        re.compile("flow sequence"),
        "the list that opens here is not closed, or lacks a comma",
        "close it with ], and put , between its items; quote a text with brackets, commas or ': ' in it",
        True,
    ),
    (
        re.compile("flow mapping"),
        "the map that opens here is not closed, or lacks a comma",
        "close it with }, and put , between its entries; quote a text with braces, commas or ': ' in it",
        True,
    ),
    (
        re.compile("mapping values are not allowed"),
        "a colon makes a key of what stands before it, and no key can stand there",
        "correct the indentation, or quote a text that holds ': '",
        False,
    ),
    (
        re.compile("expected ':'"),
        "this line is neither a key with a value nor part of the text above",
        "write `key: value`, or correct the indentation",
        True,
    ),
    (
        re.compile("block mapping|block collection"),
        "this does not continue the map or list that it stands in",
        "correct the indentation; quote a text that starts with a bracket, a brace, a quote or one of * & ! | > % @ `",
        False,
    ),
    (
        re.compile("node content|block node|flow node"),
        "a value is missing here",
        "write the value, or remove the comma, colon or bracket",
        False,
    ),
    (
        re.compile("block scalar"),
        "a block of text starts with | or >, and nothing else may stand on that line",
        "put the text in quotes instead",
        True,
    ),
)


def _reword(error: yaml.MarkedYAMLError, text: str, file: str) -> ManifestError:
    """A parser's error as ours; the position does not depend on which parser found it."""
    raw = f"{error.problem} {error.context}"
    problem = error.problem_mark or error.context_mark
    begin = error.context_mark or problem

    def at(mark: Mark) -> Position:
        return Position(file=file, line=mark.line + 1, column=mark.column + 1) if mark else Position(file=file, line=1)

    if "nesting depth" in raw:  # libyaml's own limit: it reads ahead within a line, past the level that is refused here
        return _too_deep(at(problem))
    if "document start" in raw:
        return _second_document(at(problem))
    if "an alias" in raw:
        return _alias(at(begin))
    if "an anchor" in raw:
        return _anchor(at(begin))
    if "a tag" in raw:
        return _tag(at(begin))
    if "escape" in raw or "hexdecimal" in raw or "hexadecimal" in raw:
        return _escape(at(begin))
    for form, what, remedy, at_beginning in _SYNTAX:
        if form.search(raw):
            where = at(begin if at_beginning else problem)
            lines = text.split("\n")
            line = lines[where.line - 1] if where.line <= len(lines) else ""
            actual = show(line[where.column - 1 :].rstrip("\r"), 40)
            return ManifestError(f"not valid YAML: {what}", where=where, actual=actual, remedy=remedy)
    return ManifestError("not valid YAML", where=at(problem), remedy="correct the line")


def _text_start(position: Position, event: yaml.ScalarEvent, *, quotes: int) -> Position | None:
    """Where the text of a scalar at a position begins, behind that many quotes; see Scalar.start."""
    begin, end = event.start_mark, event.end_mark
    assert begin is not None and end is not None
    if begin.line != end.line or end.column - begin.column != len(event.value) + 2 * quotes:
        return None
    return replace(position, column=position.column + quotes) if quotes else position
