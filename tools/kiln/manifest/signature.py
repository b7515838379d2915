"""Triton's signature syntax without the constants: `*fp16:16, i32, i32:1`."""

from __future__ import annotations

from dataclasses import dataclass

from kiln.errors import Position


@dataclass(frozen=True, kw_only=True)
class SignatureItem:
    """One argument of a signature, in order."""

    type: str
    """`*fp16` for a pointer, `i32` for a scalar"""
    promise: int | None
    """16: address or value is divisible by 16; 1: value is 1 and folded out of the parameters; None: nothing promised"""

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def dtype(self) -> str:
        """`fp16` of `*fp16`"""
        return self.type.lstrip("*")


@dataclass(frozen=True, kw_only=True)
class Signature:
    text: str
    position: Position
    items: tuple[SignatureItem, ...]
