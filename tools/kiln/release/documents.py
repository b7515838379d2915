"""What the documents of a release have in common: the files that they list, and JSON that is written and read one way.

A document is read as data of strangers: whatever is wrong with it is told with the place in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any

from kiln.errors import ReleaseError
from kiln.release.names import Level


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file of a release, as documents list it."""

    path: str
    """in the release"""
    level: Level
    sha256: str
    size: int
    """bytes"""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Python package of others that took part."""

    name: str
    version: str

    @property
    def purl(self) -> str:
        """What it is called among the packages of all languages."""
        return f"pkg:pypi/{self.name}@{self.version}"


Shape = type | UnionType | Sequence["Shape"] | Mapping[str, "Shape"]
"""What a value of a document is to be: a type; a list of one shape; or a table, whose key `*` stands for all others,
and whose keys that end with `?` may be left out"""


def write_json(value: object) -> str:
    """Plain data as a file. The order of keys is that of the data; a number that JSON does not know is an error."""
    return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def read_json(text: str, shape: Shape, document: str) -> Any:
    """What `write_json` wrote, of the given shape. Raises ReleaseError for anything else; `document` is its file."""
    try:
        value = json.loads(text, object_pairs_hook=_table, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ReleaseError(
            f"{document} is no JSON: {error.msg}",
            where=f"{document}:{error.lineno}:{error.colno}",
            remedy="take the release anew from where it was published",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _wrong(document, "", str(error)) from error
    _check(value, shape, document, "")
    return value


def schema_of(value: Mapping[str, Any], known: int, document: str) -> None:
    """Raise ReleaseError unless a document has the schema that this Kiln reads."""
    if value["schema"] != known:
        raise ReleaseError(
            f"{document} has another schema than this Kiln reads",
            where=f"{document}: schema",
            expected=str(known),
            actual=str(value["schema"]),
            remedy="use the Kiln that made the release; buildinfo.json names it",
        )


def _table(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!a} stands there twice")
        found[key] = value
    return found


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_WORDS = {str: "a text", int: "an integer", bool: "true or false", dict: "a table", list: "a list", NoneType: "null"}


def _check(value: Any, shape: Shape, document: str, at: str) -> None:
    if isinstance(shape, type | UnionType):
        # A bool is an int to Python alone.
        if not isinstance(value, shape) or (isinstance(value, bool) and shape is int):
            kinds = shape.__args__ if isinstance(shape, UnionType) else (shape,)
            wanted = " or ".join(_WORDS.get(kind, kind.__name__) for kind in kinds)
            raise _wrong(document, at, f"{wanted} is to stand there", value)
    elif isinstance(shape, Mapping):
        if not isinstance(value, dict):
            raise _wrong(document, at, "a table is to stand there", value)
        every = shape.get("*")
        known = {key.removesuffix("?"): kind for key, kind in shape.items() if key != "*"}
        needed = {key for key in shape if key != "*" and not key.endswith("?")}
        for key in needed - value.keys():
            raise _wrong(document, at, f"the key {key!a} is missing")
        for key, member in value.items():
            kind = known.get(key, every)
            if kind is None:
                raise _wrong(document, at, f"there is no key {key!a} in this schema")
            _check(member, kind, document, f"{at}.{key}" if at else key)
    else:
        if not isinstance(value, list):
            raise _wrong(document, at, "a list is to stand there", value)
        for index, member in enumerate(value):
            _check(member, shape[0], document, f"{at}[{index}]")


def _wrong(document: str, at: str, what: str, value: object = None) -> ReleaseError:
    shown = ascii(value)
    return ReleaseError(
        f"{document} is not as Kiln writes it: {what}",
        where=f"{document}: {at}" if at else document,
        actual=None if value is None else shown if len(shown) <= 80 else f"{shown[:80]}...",
        remedy="take the release anew from where it was published",
    )
