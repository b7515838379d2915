"""The targets that Kiln builds for, derived from one table of what a block may take on each kind of GPU.

Of the letters behind a number, `a` is code for one architecture exactly, `f` code for its family (NVIDIA, "CUDA
Compiler Driver NVCC", chapter "GPU Compilation"). Triton compiles from sm_90 on with `a` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kiln.errors import ManifestError, Position, did_you_mean

Vendor = Literal["nvidia", "amd"]
Kind = Literal["cubin", "ptx", "hsaco"]
"""the three kinds of image"""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one block may take on one kind of GPU: a row of the table. Shared memory is in bytes."""

    arch: int | str
    """90 for compute capability 9.0, or gfx942"""
    warp_size: int
    max_threads: int
    max_registers: int | None
    """of 32 bits, for the block as a whole; None where registers do not limit a block as one pool (AMD)"""
    max_thread_registers: int
    """of 32 bits, for one thread; on AMD vector registers, with accumulation registers where both are one file"""
    max_static_shared: int
    """of what the image itself declares"""
    max_shared: int
    """static and dynamic together; on NVIDIA above `max_static_shared` after the launcher has opted in"""
    portable_cluster: int
    """blocks of a cluster that every GPU of this kind can launch; 1: there are no clusters"""
    max_cluster: int
    """blocks of a cluster with the attribute for sizes that are not portable"""
    min_ptx: int | None
    """the oldest PTX ISA that knows it, as major x 10 + minor; None for AMD"""
    source: str
    """the documents that say so"""


_GUIDE = "NVIDIA, CUDA Programming Guide, appendix Compute Capabilities, tables 30 and 31"
_CCCL = "NVIDIA, CUDA Core Compute Libraries, cuda/__device/arch_traits.h, which gives it the numbers of 8.6"
_HOPPER = f"{_GUIDE}; clusters: Hopper Tuning Guide"
_BLACKWELL = f"{_GUIDE}; clusters: Blackwell Tuning Guide"
_AMDGPU = "LLVM, User Guide for AMDGPU Backend, and the limit that its compiler enforces for local memory"
_AMD = f"AMD, ROCm documentation, AMD GPU specifications; {_AMDGPU}"


def _nvidia(capability: int, shared: int, clusters: tuple[int, int], min_ptx: int, source: str) -> Limits:
    """`shared` is in KiB. What all of NVIDIA's have in common stands in the guide's tables without a difference."""
    return Limits(
        arch=capability,
        warp_size=32,
        max_threads=1024,
        max_registers=65536,
        max_thread_registers=255,
        max_static_shared=48 * 1024,
        max_shared=shared * 1024,
        portable_cluster=clusters[0],
        max_cluster=clusters[1],
        min_ptx=min_ptx,
        source=source,
    )


def _amd(arch: str, warp_size: int, lds: int, thread_registers: int, source: str) -> Limits:
    """`lds` is in KiB: what a work-group can take, which on RDNA is half of what two compute units share."""
    return Limits(
        arch=arch,
        warp_size=warp_size,
        max_threads=1024,
        max_registers=None,
        max_thread_registers=thread_registers,
        max_static_shared=lds * 1024,
        max_shared=lds * 1024,
        portable_cluster=1,
        max_cluster=1,
        min_ptx=None,
        source=source,
    )


_NO_CLUSTERS = (1, 1)

LIMITS: dict[int | str, Limits] = {
    limits.arch: limits
    for limits in (
        #       capability, shared memory in KiB, clusters, oldest PTX ISA (NVIDIA, "Parallel Thread Execution ISA",
        #       .target directive; Triton's LLVM refuses older ones by the same numbers)
        _nvidia(75, 64, _NO_CLUSTERS, 63, _GUIDE),
        _nvidia(80, 163, _NO_CLUSTERS, 70, _GUIDE),
        _nvidia(86, 99, _NO_CLUSTERS, 71, _GUIDE),
        _nvidia(87, 163, _NO_CLUSTERS, 74, _GUIDE),
        _nvidia(88, 99, _NO_CLUSTERS, 90, _CCCL),
        _nvidia(89, 99, _NO_CLUSTERS, 78, _GUIDE),
        _nvidia(90, 227, (8, 16), 78, _HOPPER),
        _nvidia(100, 227, (8, 16), 86, _BLACKWELL),
        _nvidia(103, 227, (8, 8), 88, _GUIDE),
        _nvidia(110, 227, (8, 8), 90, _GUIDE),
        _nvidia(120, 99, (8, 8), 87, _GUIDE),
        _nvidia(121, 99, (8, 8), 88, _GUIDE),
        #    arch, wave size, LDS in KiB, vector registers of a thread
        _amd("gfx906", 64, 64, 256, _AMDGPU),
        _amd("gfx908", 64, 64, 256, _AMDGPU),
        _amd("gfx90a", 64, 64, 512, _AMD),
        _amd("gfx942", 64, 64, 512, _AMD),
        _amd("gfx950", 64, 160, 512, _AMD),
        _amd("gfx1030", 32, 64, 256, _AMDGPU),
        _amd("gfx1100", 32, 64, 256, _AMDGPU),
        _amd("gfx1101", 32, 64, 256, _AMDGPU),
        _amd("gfx1102", 32, 64, 256, _AMDGPU),
        _amd("gfx1103", 32, 64, 256, _AMDGPU),
        _amd("gfx1150", 32, 64, 256, _AMDGPU),
        _amd("gfx1151", 32, 64, 256, _AMDGPU),
        _amd("gfx1152", 32, 64, 256, _AMDGPU),
        _amd("gfx1153", 32, 64, 256, _AMDGPU),
        _amd("gfx1200", 32, 64, 256, _AMDGPU),
        _amd("gfx1201", 32, 64, 256, _AMDGPU),
        _amd("gfx1250", 32, 320, 1024, _AMDGPU),
    )
}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What code is built for."""

    name: str
    vendor: Vendor
    kind: Kind
    limits: Limits
    triton: bool
    """whether Triton compiles for it; nvcc compiles for all of NVIDIA's"""
    ptx_version: int | None
    """for PTX only: the ISA that is pinned unless the manifest's options say another; 80 is ISA 8.0, which drivers from
    525 (CUDA 12.0) accept"""

    @property
    def arch(self) -> int | str:
        """What Triton's GPUTarget takes: 90, or gfx942."""
        return self.limits.arch

    @property
    def warp_size(self) -> int:
        return self.limits.warp_size


_NOT_TRITON = (88,)
"""Capabilities that Triton does not compile for: its LLVM asks for PTX 9.0 there, and the ptxas that it takes for them
reads 8.8 at most."""

_FAMILIES = 100
"""the first capability whose code can be for a family"""


def _letters(capability: int) -> tuple[str, ...]:
    return ("",) if capability < 90 else ("", "a") if capability < _FAMILIES else ("", "a", "f")


def _cubin(limits: Limits, capability: int, letter: str) -> Target:
    exact = "a" if capability >= 90 else ""
    return Target(
        name=f"sm_{capability}{letter}",
        vendor="nvidia",
        kind="cubin",
        limits=limits,
        triton=letter == exact and capability not in _NOT_TRITON,
        ptx_version=None,
    )


def _ptx(limits: Limits, capability: int, letter: str) -> Target:
    by_triton = capability < 90 and capability not in _NOT_TRITON
    return Target(
        name=f"compute_{capability}{letter}",
        vendor="nvidia",
        kind="ptx",
        limits=limits,
        triton=by_triton,
        ptx_version=80 if by_triton else None,
    )


def _hsaco(limits: Limits, arch: str) -> Target:
    return Target(name=arch, vendor="amd", kind="hsaco", limits=limits, triton=True, ptx_version=None)


_ALL = [
    *(_cubin(row, arch, letter) for arch, row in LIMITS.items() if isinstance(arch, int) for letter in _letters(arch)),
    *(_ptx(row, arch, letter) for arch, row in LIMITS.items() if isinstance(arch, int) for letter in _letters(arch)),
    *(_hsaco(row, arch) for arch, row in LIMITS.items() if isinstance(arch, str)),
]

TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
"""by name: cubins, then PTX, then hsacos, each in the order of the table"""

_RENUMBERED = {
    "sm_101": "its number is 110 now: write sm_110a, or sm_110 for kernels in CUDA C++",
    "compute_101": "its number is 110 now: write compute_110",
}
"""former names, and what to do"""


def find(name: str, position: Position) -> Target:
    """The target of that name. Raises ManifestError at `position` with what to write instead."""
    if name in TARGETS:
        return TARGETS[name]
    raise ManifestError(
        f"unknown target {name!r}",
        where=position,
        expected="a target that `kiln targets-docs` lists",
        actual=name,
        remedy=_RENUMBERED.get(name) or _closest(name),
    )


def _closest(name: str) -> str:
    """What to write; no guess for a name of a GPU, such as h100: sm_100 looks like it and is another one."""
    if not name.lower().startswith(("sm", "compute", "gfx")):
        return "write its architecture: an H100 is sm_90a, an MI300X is gfx942"
    return did_you_mean(name, TARGETS) or "use one of those"


def narrowed(fit: Iterable[str]) -> str:
    """What to do where only some of a kernel's targets can have what it asks for."""
    return (
        f"give the kernel `targets: [{', '.join(fit)}]` or, where only some of its variants ask for this, make those a "
        "kernel of their own with these targets"
    )
