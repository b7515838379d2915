"""Triton's signature syntax without the constants: `*fp16:16, i32, i32:1`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kiln.errors import ManifestError, Position
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE, suggest_dtype
from kiln.manifest.wording import show

MAX_PARAMETER_BYTES = 4096
"""The parameter space of a kernel that every supported architecture and driver has: NVIDIA, "CUDA C++ Programming
Guide", `__global__` function parameters. Larger ones need newer drivers."""

_ITEM = re.compile(r"(?P<stars>\**)(?P<dtype>[A-Za-z0-9_]+)(?P<colon>\s*:\s*(?P<promise>[^\s:]*))?")

_C_POINTER = re.compile(r"(?P<dtype>[A-Za-z0-9_]+)\s*\*(?P<promise>\s*:\s*[0-9]+)?")
"""as C writes it, with the star behind the type"""


@dataclass(frozen=True, kw_only=True)
class SignatureItem:
    """One argument of a signature, in order."""

    type: str
    """`*fp16` for a pointer, `i32` for a scalar"""
    promise: int | None
    """16: address or value is divisible by 16; 1: value is 1 and folded out of the parameters; None: no promise"""

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def dtype(self) -> str:
        """`fp16` of `*fp16`"""
        return self.type.lstrip("*")

    @property
    def is_integer(self) -> bool:
        """Whether it is a scalar that expressions can compute with; i1 is a truth value."""
        return self.type[0] in "iu" and self.type != "i1"

    @property
    def size(self) -> int:
        """Bytes, and alignment, of the parameter; 0 for one that is folded."""
        if self.promise == 1:
            return 0
        return POINTER_SIZE if self.is_pointer else DTYPES[self.type].size


@dataclass(frozen=True, kw_only=True)
class Signature:
    text: str
    position: Position
    items: tuple[SignatureItem, ...]

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameters at their natural alignment, without those that the compiler adds."""
        end = 0
        for item in self.items:
            if item.size:
                end = -(-end // item.size) * item.size + item.size
        return end


def parse_signature(text: str, position: Position) -> Signature:
    """Read a signature; an empty one is a kernel without arguments.

    Raises ManifestError at `position` that gives the number of the item at fault, counted from 1.
    """
    parts = text.split(",") if text.strip() else []
    items = tuple(_parse_item(part.strip(), number, position) for number, part in enumerate(parts, 1))
    signature = Signature(text=text, position=position, items=items)
    if signature.parameter_bytes > MAX_PARAMETER_BYTES:
        raise ManifestError(
            f"the signature's {len(items)} arguments do not fit a kernel's parameters",
            where=position,
            expected=f"at most {MAX_PARAMETER_BYTES} bytes",
            actual=f"{signature.parameter_bytes} bytes",
            remedy="pass some of them in device memory, behind one pointer",
        )
    return signature


def _parse_item(text: str, number: int, position: Position) -> SignatureItem:
    def refusal(why: str, expected: str, remedy: str | None = None) -> ManifestError:
        what = f"item {number} of the signature, {show(text)}, {why}"
        return ManifestError(what, where=position, expected=expected, actual=show(text), remedy=remedy)

    if not text:
        raise refusal("is empty", "a type between two commas", "remove the comma, or write the missing type")
    match = _ITEM.fullmatch(text)
    if match is None:
        swapped = _C_POINTER.fullmatch(text)
        remedy = "separate items with commas"
        if swapped is not None and swapped["dtype"] in DTYPES:
            remedy = f"write *{swapped['dtype']}{''.join((swapped['promise'] or '').split())}"
        raise refusal("is not one type", "a type such as i32, *fp16 or *fp16:16", remedy)
    stars, dtype = match["stars"], match["dtype"]
    if dtype not in DTYPES:
        known = ", ".join(DTYPES)
        if dtype.isdigit():
            raise refusal("is a constant", f"one of {known}", "leave constants out: a block is the constant BLOCK_SIZE")
        raise refusal(f"has the unknown dtype {show(dtype)}", f"one of {known}", suggest_dtype(dtype))
    if len(stars) > 1:
        raise refusal("is a pointer to a pointer", f"*{dtype} or *i64", "pass an array of addresses as *i64")
    item = SignatureItem(type=stars + dtype, promise=None)
    if match["colon"] is None:
        return item
    if match["promise"] == "16" and (item.is_pointer or item.is_integer):
        return SignatureItem(type=item.type, promise=16)
    if match["promise"] == "1" and item.is_integer:
        return SignatureItem(type=item.type, promise=1)
    if item.is_pointer:
        expected = ":16 (the address is divisible by 16) or no promise"
    elif item.is_integer:
        expected = ":16 (the value is divisible by 16), :1 (the value is 1) or no promise"
    else:
        expected = f"no promise: {dtype} is no integer and no pointer"
    raise refusal(f"makes a promise that {stars + dtype} cannot", expected, "correct or remove what follows the colon")
