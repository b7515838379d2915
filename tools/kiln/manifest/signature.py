"""Triton's signature syntax without the constants: `*fp16:16, i32, i32:1, (*fp16, i32)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kiln.errors import ManifestError, Position
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE, is_integer, suggest_dtype
from kiln.manifest.wording import show

MAX_PARAMETER_BYTES = 4096
"""The parameter space of a kernel that every supported architecture and driver has: NVIDIA, "CUDA C++ Programming
Guide", `__global__` function parameters. Larger ones need newer drivers."""

_ITEM = re.compile(r"(?P<stars>\**)(?P<dtype>[A-Za-z0-9_]+)(?P<colon>\s*:\s*(?P<promise>[^\s:]*))?")

_C_POINTER = re.compile(r"(?P<dtype>[A-Za-z0-9_]+)\s*\*(?P<promise>\s*:\s*[0-9]+)?")
"""as C writes it, with the star behind the type"""


_DESCRIPTOR = re.compile(r"(?:tensordesc|tensordesc_im2col)\s*<.*|nvTmaDesc|\*?CUtensorMap", re.DOTALL)
"""what Triton, and the driver's headers, call a tensor descriptor that the host makes"""

_CONSTANT = re.compile(r"[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?|[Tt]rue|[Ff]alse|constexpr|'[^']*'|\"[^\"]*\"")
_NULL = frozenset({"None", "none", "null", "nullptr", "NULL"})

_MAX_DEPTH = 8
"""tuples in tuples"""


@dataclass(frozen=True, kw_only=True)
class SignatureItem:
    """One argument of a signature, in order; the members of a tuple are arguments of their own."""

    type: str
    """`*fp16` for a pointer, `i32` for a scalar"""
    promise: int | None
    """16: address or value is divisible by 16; 1: value is 1 and folded out of the parameters; None: no promise"""
    path: tuple[int, ...]
    """as Triton has it: the place among the function's arguments, then that in each tuple around the item"""

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def dtype(self) -> str:
        """`fp16` of `*fp16`"""
        return self.type.lstrip("*")

    @property
    def size(self) -> int:
        """Bytes, and alignment, of the parameter; 0 for one that is folded."""
        if self.promise == 1:
            return 0
        return POINTER_SIZE if self.is_pointer else DTYPES[self.type].size


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The types and promises of a kernel's arguments, read."""

    text: str
    position: Position
    parts: tuple[str, ...]
    """the text of each item, one for each argument of the function: `i32`, `(*fp16, i32:16)`"""
    items: tuple[SignatureItem, ...]
    """the arguments that a caller passes, tuples flattened"""

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameters at their natural alignment, without those that the compiler adds."""
        end = 0
        for item in self.items:
            if item.size:
                end = -(-end // item.size) * item.size + item.size
        return end


def parse_signature(text: str, position: Position, places: Sequence[Position] = ()) -> Signature:
    """Read a signature; an empty one is a kernel without arguments.

    Raises ManifestError that gives the number of the item at fault, counted from 1, at its place, if `places` has one
    for each item, or else at `position`.
    """
    parts = tuple(part.strip() for part in _split(text)) if text.strip() else ()
    if len(places) != len(parts):
        places = [position] * len(parts)
    items = tuple(item for index, part in enumerate(parts) for item in _parse_part(part, (index,), places[index]))
    signature = Signature(text=text, position=position, parts=parts, items=items)
    if signature.parameter_bytes > MAX_PARAMETER_BYTES:
        raise ManifestError(
            f"the signature's {len(items)} arguments do not fit a kernel's parameters",
            where=position,
            expected=f"at most {MAX_PARAMETER_BYTES} bytes",
            actual=f"{signature.parameter_bytes} bytes",
            remedy="pass some of them in device memory, behind one pointer",
        )
    return signature


def item_offsets(text: str) -> list[int]:
    """Where each item of a signature, or of a pattern of one, begins in the text, in characters from 0."""
    offsets, start = [], 0
    for part in _split(text) if text.strip() else ():
        offsets.append(start + len(part) - len(part.lstrip()))
        start += len(part) + 1
    return offsets


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no brackets. A closing bracket too many closes nothing."""
    parts, start, depth = [], 0, 0
    for index, character in enumerate(text):
        if character in "([<":
            depth += 1
        elif character in ")]>":
            depth = max(depth - 1, 0)
        elif character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _parse_part(text: str, path: tuple[int, ...], position: Position) -> Iterator[SignatureItem]:
    """The items of one part: of a type itself, of a tuple its members."""
    if not text.startswith("("):
        yield _parse_item(text, path, position)
        return
    if not text.endswith(")") or _split(text[1:-1] + ",")[-1]:
        colon = re.fullmatch(r"(\(.*\))\s*:\s*(\w*)", text, re.DOTALL)
        remedy = "give each member its own promise, as in (i32:16, i32)" if colon else "close each parenthesis once"
        raise _refusal(text, path, position, "is no tuple of types", "a tuple such as (*fp16, i32:16)", remedy)
    if len(path) > _MAX_DEPTH:
        expected = f"at most {_MAX_DEPTH} tuples, one in the other"
        raise _refusal(text, path, position, "is nested too deeply", expected, "pass the members as arguments")
    members = _split(text[1:-1])
    if len(members) > 1 and not members[-1].strip():
        # As Python writes a tuple of one.
        members.pop()
    if not "".join(members).strip():
        remedy = "leave it out, and set the parameter to [] under `constants`"
        raise _refusal(text, path, position, "is an empty tuple", "members between the parentheses", remedy)
    for index, member in enumerate(members):
        yield from _parse_part(member.strip(), (*path, index), position)


def _parse_item(text: str, path: tuple[int, ...], position: Position) -> SignatureItem:
    def refusal(why: str, expected: str, remedy: str | None = None) -> ManifestError:
        return _refusal(text, path, position, why, expected, remedy)

    if not text:
        raise refusal("is empty", "a type between two commas", "remove the comma, or write the missing type")
    known = f"one of {', '.join(DTYPES)}"
    if _DESCRIPTOR.fullmatch(text):
        raise refusal(
            "is a tensor descriptor that the host makes, and Kiln does not fill those (CUtensorMap) yet",
            "a pointer, with shape and strides as integers",
            "pass pointer, shape and strides, and make the descriptor in the kernel: tl.make_tensor_descriptor(...)",
        )
    if _CONSTANT.fullmatch(text):
        remedy = "leave constants out: set them under `constants` or in a block; one that is an integer is BLOCK_SIZE"
        if len(path) > 1:
            remedy = (
                "a tuple's members are arguments: write a type, and i32:1 for what is 1; or make all of the tuple a "
            )
            remedy += "constant"
        raise refusal("is a constant", known, remedy)
    if text in _NULL:
        remedy = "leave it out, and set the parameter to null under `constants`"
        raise refusal("is a constant", known, remedy if len(path) == 1 else "pass the tuple's members as arguments")
    match = _ITEM.fullmatch(text)
    if match is None:
        swapped = _C_POINTER.fullmatch(text)
        remedy = "separate items with commas"
        if swapped is not None and swapped["dtype"] in DTYPES:
            remedy = f"write *{swapped['dtype']}{''.join((swapped['promise'] or '').split())}"
        raise refusal("is not one type", "a type such as i32, *fp16 or *fp16:16", remedy)
    stars, dtype = match["stars"], match["dtype"]
    if dtype not in DTYPES:
        if stars and dtype[1:] in DTYPES and dtype[0] == "k":
            raise refusal("is a pointer to constants", f"*{dtype[1:]}", f"write *{dtype[1:]}, which passes the same")
        raise refusal(f"has the unknown dtype {show(dtype)}", known, suggest_dtype(dtype))
    if len(stars) > 1:
        raise refusal("is a pointer to a pointer", f"*{dtype} or *i64", "pass an array of addresses as *i64")
    item = SignatureItem(type=stars + dtype, promise=None, path=path)
    if match["colon"] is None:
        return item
    if match["promise"].isascii() and match["promise"] in ("1", "16"):
        promise = int(match["promise"])
        if can_promise(item.type, promise):
            return replace(item, promise=promise)
    raise refusal(
        f"makes a promise that {item.type} cannot",
        promises_of(item.type),
        "correct or remove what follows the colon",
    )


def can_promise(type: str, promise: int) -> bool:
    """Whether an argument of a type may promise 16 or 1."""
    return is_integer(type) or (type.startswith("*") and promise == 16)


def promises_of(type: str) -> str:
    """The promises that an argument of a type can make, in words."""
    if type.startswith("*"):
        return ":16 (the address is divisible by 16) or no promise"
    if can_promise(type, 1):
        return ":16 (the value is divisible by 16), :1 (the value is 1) or no promise"
    return f"no promise: {type} is no integer and no pointer"


def _refusal(
    text: str, path: tuple[int, ...], position: Position, why: str, expected: str, remedy: str | None
) -> ManifestError:
    first, *inner = path
    place = "".join(f"member {index + 1} of " for index in reversed(inner)) + f"item {first + 1} of the signature"
    what = f"{place}, {show(text)}, {why}"
    return ManifestError(what, where=position, expected=expected, actual=show(text), remedy=remedy)
