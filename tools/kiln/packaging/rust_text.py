"""Text as Rust writes it: string literals, code in doc comments, types and numbers."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping

from kiln.errors import PackagingError
from kiln.manifest.constants import Value, described
from kiln.manifest.dtypes import DTYPES

SCRATCH = "DevicePtr<c_void>"
"""the crate's type of a hidden parameter: the address of scratch memory"""

# What Rust has no word for; the crate's own types hold the bits.
_BITS: Mapping[str, str] = {
    "fp16": "F16",
    "bf16": "BF16",
    "fp8e4nv": "F8E4NV",
    "fp8e4b8": "F8E4B8",
    "fp8e4b15": "F8E4B15",
    "fp8e5": "F8E5",
    "fp8e5b16": "F8E5B16",
}


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


def toml(text: str) -> str:
    """A basic string of TOML that holds exactly `text`: JSON's, whose pairs of surrogates TOML does not know."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


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


def rust_type(type: str, crate: str = "") -> str:
    """`*fp16` -> `DevicePtr<F16>`, `fp16` -> `F16`, `i32` -> `i32`; `*` alone is the address of anything.

    `crate` stands before names of the crate's own, such as `crate::`.
    """
    if type == "*":
        return f"{crate}DevicePtr<core::ffi::c_void>"
    if type.startswith("*"):
        return f"{crate}DevicePtr<{rust_type(type[1:], crate)}>"
    return f"{crate}{_BITS[type]}" if is_bits(type) else DTYPES[type].rust


def is_bits(type: str) -> bool:
    """Whether a scalar is one of the crate's own types, which hold bits."""
    return type in _BITS


def built(target: str) -> str:
    """The condition that a target's images are in a build."""
    return f'all(feature = {literal(target)}, not(feature = "disabled"))'


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
