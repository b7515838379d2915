"""Which targets have which fp8 dtypes: Triton compiles no kernel that names another one, even behind a pointer."""

from __future__ import annotations

from kiln.manifest.dtypes import DTYPES
from kiln.toolchain.targets import Target

_AMD: tuple[str, ...] = ("fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16")
_NVIDIA = ("fp8e4b15", "fp8e5")
_NVIDIA_89 = ("fp8e4nv", *_NVIDIA)
"""Measured: each as scalar, as pointer and as what a constant casts to, for every number and gfx; Triton's own lists,
of each release that is supported, are compared in the tests. On sm_75 values of fp8e5 can be read, and ptxas refuses
code that makes some."""


def fp8_dtypes(target: Target) -> tuple[str, ...]:
    """Those that a kernel in Triton can name for the target, in the order of `DTYPES`."""
    known = _AMD
    if target.vendor == "nvidia":
        known = _NVIDIA_89 if isinstance(target.arch, int) and target.arch >= 89 else _NVIDIA
    return tuple(name for name in DTYPES if name in known)
