"""The targets that Kiln builds for, their limits, and the words of kernels.yaml for them.

Sources of the limits: NVIDIA, "CUDA C++ Programming Guide", table "Technical Specifications per Compute Capability"
(threads per block, registers per block, maximum shared memory per block with opt-in); AMD, the instruction set
architecture guides of CDNA 2, 3, 4 and RDNA 3, 4 (LDS size, wave size, work-group size).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kiln.errors import ManifestError, Position, did_you_mean

Vendor = Literal["nvidia", "amd"]
Kind = Literal["cubin", "ptx", "hsaco"]
"""the three kinds of image"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What code is built for. Shared memory is in bytes; registers are 32-bit ones and belong to one block."""

    name: str
    vendor: Vendor
    kind: Kind
    arch: int | str
    """what Triton's GPUTarget takes: 90, or gfx942"""
    warp_size: int
    max_threads: int
    max_shared: int
    max_registers: int | None
    """None where registers do not limit a block as one pool (AMD)"""
    ptx_version: int | None
    """for PTX only: the ISA that is pinned unless the manifest's options say another; 80 is ISA 8.0, which drivers from
    525 (CUDA 12.0) accept"""


def _cubin(capability: int, max_shared: int, suffix: str = "") -> Target:
    return Target(
        name=f"sm_{capability}{suffix}",
        vendor="nvidia",
        kind="cubin",
        arch=capability,
        warp_size=32,
        max_threads=1024,
        max_shared=max_shared,
        max_registers=65536,
        ptx_version=None,
    )


def _ptx(capability: int, max_shared: int) -> Target:
    return Target(
        name=f"compute_{capability}",
        vendor="nvidia",
        kind="ptx",
        arch=capability,
        warp_size=32,
        max_threads=1024,
        max_shared=max_shared,
        max_registers=65536,
        ptx_version=80,
    )


def _hsaco(arch: str, warp_size: int, max_shared: int) -> Target:
    return Target(
        name=arch,
        vendor="amd",
        kind="hsaco",
        arch=arch,
        warp_size=warp_size,
        max_threads=1024,
        max_shared=max_shared,
        max_registers=None,
        ptx_version=None,
    )


_KIB = 1024

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _cubin(75, 64 * _KIB),
        _cubin(80, 163 * _KIB),
        _cubin(86, 99 * _KIB),
        _cubin(87, 163 * _KIB),
        _cubin(89, 99 * _KIB),
        _cubin(90, 227 * _KIB, "a"),
        _cubin(100, 227 * _KIB, "a"),
        _cubin(103, 227 * _KIB, "a"),
        _cubin(120, 99 * _KIB, "a"),
        _cubin(121, 99 * _KIB, "a"),
        _ptx(75, 64 * _KIB),
        _ptx(80, 163 * _KIB),
        _ptx(86, 99 * _KIB),
        _ptx(89, 99 * _KIB),
        _hsaco("gfx90a", 64, 64 * _KIB),
        _hsaco("gfx942", 64, 64 * _KIB),
        _hsaco("gfx950", 64, 160 * _KIB),
        _hsaco("gfx1100", 32, 64 * _KIB),
        _hsaco("gfx1201", 32, 64 * _KIB),
    )
}

_NOT_BUILDABLE = {
    "gfx1030": "Triton 3.9 refuses it",
    "sm_101": "Triton 3.9 aborts on it",
}


def find(name: str, position: Position) -> Target:
    """The target of that name. Raises ManifestError at `position` with what to write instead."""
    if name in TARGETS:
        return TARGETS[name]
    if f"{name}a" in TARGETS:
        raise ManifestError(
            f"target {name!r} cannot be built",
            where=position,
            expected=f"{name}a: from sm_90 on Triton compiles for one architecture exactly, never portably",
            actual=name,
            remedy=f"write {name}a; for other GPUs of that generation add a PTX target, such as compute_80",
        )
    if name in _NOT_BUILDABLE:
        raise ManifestError(
            f"target {name!r} cannot be built: {_NOT_BUILDABLE[name]}",
            where=position,
            expected=f"one of {', '.join(TARGETS)}",
            actual=name,
            remedy="remove it from targets",
        )
    raise ManifestError(
        f"unknown target {name!r}",
        where=position,
        expected=f"one of {', '.join(TARGETS)}",
        actual=name,
        remedy=did_you_mean(name, TARGETS) or "use one of those",
    )
