"""The targets that Kiln builds for, their limits, and the words of kernels.yaml for them.

Sources of the limits: NVIDIA, "CUDA C++ Programming Guide", table "Technical Specifications per Compute Capability"
(threads per block, registers per block, maximum shared memory per block with opt-in); AMD, the instruction set
architecture guides of CDNA 2, 3, 4 and RDNA 3, 4 (LDS size, wave size, work-group size).

Of the letters behind a number, `a` is code for one architecture exactly, `f` code for its family (NVIDIA, "CUDA
Compiler Driver NVCC", chapter "GPU Compilation"). Triton compiles from sm_90 on with `a` only.
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
    triton: bool
    """whether Triton compiles for it; nvcc compiles for all of NVIDIA's"""
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
        triton=suffix == ("a" if capability >= 90 else "") and capability not in _NOT_TRITON,
        ptx_version=None,
    )


def _ptx(capability: int, max_shared: int, suffix: str = "") -> Target:
    return Target(
        name=f"compute_{capability}{suffix}",
        vendor="nvidia",
        kind="ptx",
        arch=capability,
        warp_size=32,
        max_threads=1024,
        max_shared=max_shared,
        max_registers=65536,
        triton=capability < 90,
        ptx_version=80 if capability < 90 else None,
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
        triton=True,
        ptx_version=None,
    )


_KIB = 1024

_NOT_TRITON = (110,)
"""Triton 3.9 knows it neither by this number nor by its older one, 101, on which it aborts."""

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        _cubin(75, 64 * _KIB),
        _cubin(80, 163 * _KIB),
        _cubin(86, 99 * _KIB),
        _cubin(87, 163 * _KIB),
        _cubin(89, 99 * _KIB),
        *(_cubin(90, 227 * _KIB, suffix) for suffix in ("", "a")),
        *(_cubin(number, 227 * _KIB, suffix) for number in (100, 103, 110) for suffix in ("", "a", "f")),
        *(_cubin(number, 99 * _KIB, suffix) for number in (120, 121) for suffix in ("", "a", "f")),
        _ptx(75, 64 * _KIB),
        _ptx(80, 163 * _KIB),
        _ptx(86, 99 * _KIB),
        _ptx(87, 163 * _KIB),
        _ptx(89, 99 * _KIB),
        *(_ptx(90, 227 * _KIB, suffix) for suffix in ("", "a")),
        *(_ptx(number, 227 * _KIB, suffix) for number in (100, 103, 110) for suffix in ("", "a", "f")),
        *(_ptx(number, 99 * _KIB, suffix) for number in (120, 121) for suffix in ("", "a", "f")),
        _hsaco("gfx90a", 64, 64 * _KIB),
        _hsaco("gfx942", 64, 64 * _KIB),
        _hsaco("gfx950", 64, 160 * _KIB),
        _hsaco("gfx1100", 32, 64 * _KIB),
        _hsaco("gfx1201", 32, 64 * _KIB),
    )
}

_NOT_BUILDABLE = {
    "gfx1030": "Triton 3.9 refuses it",
    "sm_101": "Triton 3.9 aborts on it, and nvcc calls it sm_110",
}


def find(name: str, position: Position) -> Target:
    """The target of that name. Raises ManifestError at `position` with what to write instead."""
    if name in TARGETS:
        return TARGETS[name]
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
