"""The one small expression language of kernels.yaml: evaluated in Python, written out as C and Rust from one tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kiln.errors import Position


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A checked expression over named integers, such as `n_cols <= BLOCK_SIZE`."""

    text: str
    position: Position
    names: frozenset[str]

    def evaluate(self, values: Mapping[str, int]) -> int | bool: ...

    def to_c(self, names: Mapping[str, str]) -> str: ...

    def to_rust(self, names: Mapping[str, str]) -> str: ...
