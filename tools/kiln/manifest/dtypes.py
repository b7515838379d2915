"""The dtypes that kernels are declared with, in the words of Triton's signatures, and what others call them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kiln.errors import did_you_mean


@dataclass(frozen=True, kw_only=True)
class DType:
    """One scalar type as a kernel parameter.

    `size` and alignment are bytes and equal: a PTX or HSA parameter is naturally aligned, and i1 is passed as one
    byte. Types that C has no word for (fp16, bf16, fp8) are passed as their bits. fp32 is `float`, not the `double`
    that Triton's own C template declares.
    """

    name: str
    language: str
    """what triton.language calls it"""
    size: int
    c: str
    rust: str


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType(name="i1", language="int1", size=1, c="bool", rust="bool"),
        DType(name="i8", language="int8", size=1, c="int8_t", rust="i8"),
        DType(name="i16", language="int16", size=2, c="int16_t", rust="i16"),
        DType(name="i32", language="int32", size=4, c="int32_t", rust="i32"),
        DType(name="i64", language="int64", size=8, c="int64_t", rust="i64"),
        DType(name="u8", language="uint8", size=1, c="uint8_t", rust="u8"),
        DType(name="u16", language="uint16", size=2, c="uint16_t", rust="u16"),
        DType(name="u32", language="uint32", size=4, c="uint32_t", rust="u32"),
        DType(name="u64", language="uint64", size=8, c="uint64_t", rust="u64"),
        DType(name="fp16", language="float16", size=2, c="uint16_t", rust="u16"),
        DType(name="bf16", language="bfloat16", size=2, c="uint16_t", rust="u16"),
        DType(name="fp32", language="float32", size=4, c="float", rust="f32"),
        DType(name="fp64", language="float64", size=8, c="double", rust="f64"),
        DType(name="fp8e4nv", language="float8e4nv", size=1, c="uint8_t", rust="u8"),
        DType(name="fp8e4b8", language="float8e4b8", size=1, c="uint8_t", rust="u8"),
        DType(name="fp8e4b15", language="float8e4b15", size=1, c="uint8_t", rust="u8"),
        DType(name="fp8e5", language="float8e5", size=1, c="uint8_t", rust="u8"),
        DType(name="fp8e5b16", language="float8e5b16", size=1, c="uint8_t", rust="u8"),
    )
}

# The words of C, Rust, NumPy, PyTorch and `triton.language`, in lower case. fp8e4nv is what the others call e4m3fn.
_ALIASES = {
    **{dtype.language: dtype.name for dtype in DTYPES.values()},
    **dict.fromkeys(("half", "f16"), "fp16"),
    "bfloat": "bf16",
    **dict.fromkeys(("float", "f32", "single"), "fp32"),
    **dict.fromkeys(("f64", "double"), "fp64"),
    **dict.fromkeys(("e4m3", "e4m3fn", "float8_e4m3fn"), "fp8e4nv"),
    **dict.fromkeys(("e5m2", "float8_e5m2"), "fp8e5"),
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    **dict.fromkeys(("bool", "u1"), "i1"),
}


# C's and Rust's words for integers, of a machine with pointers of 64 bits: no kernel is declared with them.
_INTEGERS = {
    **{dtype.c: dtype.name for dtype in DTYPES.values() if dtype.rust == dtype.name},
    **dict.fromkeys(("char", "signed char"), "i8"),
    **dict.fromkeys(("unsigned char", "uchar", "byte"), "u8"),
    "short": "i16",
    **dict.fromkeys(("unsigned short", "ushort"), "u16"),
    "int": "i32",
    **dict.fromkeys(("unsigned", "unsigned int", "uint"), "u32"),
    **dict.fromkeys(("long", "long long", "isize", "ssize_t", "ptrdiff_t"), "i64"),
    **dict.fromkeys(("unsigned long", "unsigned long long", "ulong", "usize", "size_t"), "u64"),
}


def dtype_called(word: str) -> str | None:
    """fp16 for float16, half and fp16 itself; None for what is no word for a dtype."""
    meant = _ALIASES.get(word.lower(), word.lower())
    return meant if meant in DTYPES else None


def suggest_dtype(word: str, choices: Collection[str] = tuple(DTYPES)) -> str | None:
    """`did you mean 'fp16'?` for another word for one of `choices`, or for a slip; None when nothing is close."""
    lower = word.lower()
    meant = _ALIASES.get(lower) or _INTEGERS.get(lower, lower)
    return f"did you mean {meant!r}?" if meant in choices else did_you_mean(word, choices)


def is_integer(type: str) -> bool:
    """Whether expressions can compute with an argument of a type: i1 is a truth value, and a pointer is no number."""
    return type[0] in "iu" and type != "i1"


POINTER_SIZE = 8
"""Bytes of a device pointer, on every target that Kiln builds for."""
