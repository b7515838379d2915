"""What a YAML file is to Kiln: scalars as they were written, lists and maps, each with its position."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kiln.errors import Position
from kiln.manifest.wording import show


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """A value that is no list and no map; what it means is decided where its type is known."""

    text: str
    plain: bool
    """written without quotes, and so open to being read as something else than text"""
    position: Position
    start: Position | None = None
    """of the text's first character, where the text stands in the file as it is: on one line, with no escapes"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    key: Scalar
    value: Node


@dataclass(frozen=True, kw_only=True)
class List:
    items: tuple[Node, ...]
    position: Position


@dataclass(frozen=True, kw_only=True)
class Map:
    """Keys are text, and no two are equal."""

    entries: tuple[Entry, ...]
    position: Position


Node = Scalar | List | Map

# YAML 1.1 (yaml.org/type) and YAML 1.2's core schema disagree on much of this, and readers follow one or the other.
# Whatever either takes for something else than text is not taken for text here. The single letters y and n, which
# YAML 1.1 lists as booleans and hardly any reader takes for ones, are text: n is a common name of a size.
_OTHER_TYPES = (
    ("nothing", re.compile(r"|~|null|Null|NULL")),
    (
        "a truth value",
        re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE"),
    ),
    (
        "a number",
        re.compile(
            r"[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+)"
            r"|[-+]?(?:[0-9][0-9_]*(?::[0-5]?[0-9])*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
    ),
    ("a date", re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?", re.DOTALL)),
    ("a merge key", re.compile(r"<<")),
    ("a default value", re.compile(r"=")),
)


def other_type(scalar: Scalar) -> str | None:
    """What some YAML reader takes a plain scalar for instead of text, such as `a number`; None for text."""
    if not scalar.plain:
        return None
    return next((name for name, form in _OTHER_TYPES if form.fullmatch(scalar.text)), None)


def describe(node: Node) -> str:
    """A node in words, for the `actual` of a message: `the text 'x'`, `a list of 3`, `a map`."""
    if isinstance(node, List):
        return f"a list of {len(node.items)}" if node.items else "an empty list"
    if isinstance(node, Map):
        keys = ", ".join(show(entry.key.text, 20) for entry in node.entries[:3])
        more = ", ..." if len(node.entries) > 3 else ""
        return f"a map with the keys {keys}{more}" if keys else "an empty map"
    kind = other_type(node) or "the text"
    return kind if kind == "nothing" else f"{kind.replace('a ', 'the ', 1)} {show(node.text)}"
