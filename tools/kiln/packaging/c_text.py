"""Text of the manifest as literals, types and comments of C: whatever it holds, what is around it keeps its meaning."""

from __future__ import annotations

import re

from kiln.manifest.dtypes import DTYPES


def c_string(text: str | None) -> str:
    """A C string literal of the text's UTF-8 bytes; NULL for None.

    Bytes that are no printable ASCII are octal escapes, which end after three digits, unlike hexadecimal ones. `?` is
    escaped, for `??/` is a backslash to a C99 compiler.
    """
    if text is None:
        return "NULL"
    special = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
    return '"' + "".join(special.get(b, chr(b) if 0x20 <= b < 0x7F else f"\\{b:03o}") for b in text.encode()) + '"'


def assembly_string(text: str) -> str:
    """The same bytes as a string of GNU assemblers, which know fewer escapes."""
    special = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(special.get(b, chr(b) if 0x20 <= b < 0x7F else f"\\{b:03o}") for b in text.encode()) + '"'


def c_comment(text: str) -> str:
    """The text on one line of a C comment: it neither ends the comment, nor opens one, nor reorders what is shown."""
    plain = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
    return re.sub(r"(?<=\*)(?=/)|(?<=/)(?=\*)|(?<=\?)(?=\?)", " ", plain)


def c_integer(value: int) -> str:
    """An int64_t constant expression. Raises OverflowError when the value is not one."""
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} is no 64-bit integer")
    if value == -(2**63):
        # C has no negative literals, and 9223372036854775808 alone is too large for the type.
        return "(-INT64_C(9223372036854775807) - 1)"
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"


def c_type(type: str) -> str:
    """`*fp16` -> `void *`, `i32` -> `int32_t`."""
    return "void *" if type.startswith("*") else DTYPES[type].c
