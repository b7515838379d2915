"""The numbers of a dtype as NumPy arrays of its bits, and as float64; tensors with strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

PLAIN: dict[str, Any] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "i32": np.int32,
    "i64": np.int64,
}
"""dtypes that NumPy has itself"""
BITS: dict[str, Any] = {**PLAIN, "bf16": np.uint16, "fp8e4nv": np.uint8}
"""dtype -> what an array of it holds"""


def _fp8e4nv() -> npt.NDArray[np.float64]:
    """The value of each byte: sign, 4 bits of exponent biased by 7, 3 of mantissa; no infinities, one NaN a sign.

    OCP, "8-bit Floating Point Specification", format E4M3.
    """
    bits = np.arange(256)
    exponent, mantissa = (bits >> 3) & 15, bits & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    size = np.where(bits & 127 == 127, np.nan, size)
    return np.where(bits >= 128, -size, size)


FP8E4NV = _fp8e4nv()


def encode(values: npt.NDArray[np.float64], dtype: str) -> npt.NDArray[Any]:
    """float64 -> the bits of a dtype, rounded to nearest even; fp8 saturates."""
    if dtype == "bf16":
        # Rounded to fp32 first: a value that then lies halfway is one in 2^15, and either neighbour does for an input.
        bits = values.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    if dtype == "fp8e4nv":
        sizes = FP8E4NV[:127]
        index = np.clip(np.searchsorted(sizes, np.abs(values)), 1, 126)
        down, up = np.abs(values) - sizes[index - 1], sizes[index] - np.abs(values)
        # Of two neighbours, the one with an even byte has an even mantissa.
        index = np.where((down < up) | ((down == up) & (index % 2 == 1)), index - 1, index)
        return np.where(values < 0, index + 128, index).astype(np.uint8)
    return values.astype(PLAIN[dtype])


def decode(bits: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """The bits of a dtype -> float64; integers stay as they are."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "fp8e4nv":
        values: npt.NDArray[np.float64] = FP8E4NV[bits]
        return values
    return bits if dtype.startswith("i") else bits.astype(np.float64)


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from a tensor's first to its last, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def view(memory: npt.NDArray[Any], shape: Sequence[int], strides: Sequence[int]) -> npt.NDArray[Any]:
    """The tensor that lies in a flat array; strides are in elements."""
    assert memory.size == extent(shape, strides)
    return np.lib.stride_tricks.as_strided(memory, shape, [stride * memory.itemsize for stride in strides])


def largest_error(got: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> float:
    """The largest difference, relative to the largest magnitude of what is wanted; infinite for a NaN."""
    if got.shape != wanted.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - wanted).max() / (np.abs(wanted).max() or 1.0))
