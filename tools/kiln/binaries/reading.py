"""Reading: what an image says of itself, in the same words for cubin, PTX and hsaco."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Span:
    """Where a parameter lies in the parameter buffer, in bytes."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One kernel, as its image describes it. What a kind of image does not say is None. Sizes are bytes."""

    arch: str
    """sm_90a, compute_80 or gfx942, suffix and target features included"""
    entry: str
    parameters: tuple[Span, ...]
    """in order, those of the compiler included"""
    parameter_bytes: int
    threads: int | None = None
    """threads of a block, where the image demands a number"""
    max_threads: int | None = None
    """the most threads of a block, where the image gives a bound"""
    warp_size: int | None = None
    cluster: tuple[int, int, int] | None = None
    shared_static: int
    """what counts against the target's limit, without what the system keeps for itself"""
    registers: int | None = None
    scalar_registers: int | None = None
    spills: int | None = None
    """a thread"""
    stack: int | None = None
    ptx_isa: str | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    """versions that the image names; they may have fewer parts than the tool's own"""
