"""Text as Rust writes it: string literals, code in doc comments, types and numbers."""

from __future__ import annotations

import math
import unicodedata

from kiln.errors import PackagingError
from kiln.manifest.constants import Value, described
from kiln.manifest.dtypes import DTYPES

POINTER = "DevicePtr"
"""the crate's type of a device address"""


def _is_plain(character: str) -> bool:
    """Neither control, format (which the bidirectional overrides are), separator, surrogate nor unassigned."""
    return character == " " or unicodedata.category(character)[0] not in "CZ"


def _escaped(text: str) -> str:
    return "".join(c if _is_plain(c) else f"\\u{{{ord(c):x}}}" for c in text)


def literal(text: str) -> str:
    """A string literal that holds exactly `text`."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        raise PackagingError(
            "a text of the manifest is no Unicode, and Rust cannot hold it",
            actual=repr(text),
            remedy="write it in UTF-8",
        )
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_escaped(quoted)}"'


def code(text: str) -> str:
    """`text` as a code span of one line in a doc comment; what does not print is shown as its code point."""
    line = _escaped(" ".join(text.split()))
    if not line:
        return "(empty)"
    longest = max((len(run) for run in _runs(line, "`")), default=0)
    fence = "`" * (longest + 1)
    pad = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _runs(text: str, character: str) -> list[str]:
    return "".join(c if c == character else " " for c in text).split()


def rust_type(type: str) -> str:
    """`*fp16` -> `DevicePtr`, `i32` -> `i32`."""
    return POINTER if type.startswith("*") else DTYPES[type].rust


def number(value: int) -> str:
    """An integer literal, grouped by thousands."""
    return f"{value:_}"


def option(value: int | str | None) -> str:
    """An `Option` of a number or of a text."""
    if value is None:
        return "None"
    return f"Some({literal(value) if isinstance(value, str) else number(value)})"


def value(constant: Value) -> str:
    """A variant of the crate's `Value`, without the enum's name. An integer must fit 64 bits with a sign."""
    if isinstance(constant, bool):
        return f"Bool({str(constant).lower()})"
    if isinstance(constant, int):
        return f"Int({number(constant)})"
    if isinstance(constant, float):
        return f"Float({_float(constant)})"
    return f"Text({literal(described(constant))})"


def _float(constant: float) -> str:
    if math.isnan(constant):
        return "f64::NAN"
    if math.isinf(constant):
        return "f64::INFINITY" if constant > 0 else "f64::NEG_INFINITY"
    return repr(constant)
