"""Which targets have which dtypes: Triton compiles no kernel that names another one, even behind a pointer."""

from __future__ import annotations

from collections.abc import Iterable

from kiln.errors import ManifestError
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.model import Variant
from kiln.toolchain.targets import TARGETS, Target

_AMD: tuple[str, ...] = ("fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16")
_NVIDIA = ("fp8e4b15", "fp8e5")
_NVIDIA_89 = ("fp8e4nv", *_NVIDIA)
"""Measured with Triton 3.9: each as scalar and as pointer, for every family of targets."""


def missing_dtypes(target: Target) -> tuple[str, ...]:
    """The dtypes that no kernel for the target can name, in the order of `DTYPES`."""
    known = _AMD
    if target.vendor == "nvidia":
        known = _NVIDIA_89 if isinstance(target.arch, int) and target.arch >= 89 else _NVIDIA
    return tuple(name for name in DTYPES if name.startswith("fp8") and name not in known)


def check_dtypes(variants: Iterable[Variant]) -> None:
    """Refuse a variant whose signature has a dtype that one of its targets lacks; its targets are known ones.

    Raises ManifestError at the signature.
    """
    for variant in variants:
        if variant.kernel.cuda is not None or "fp8" not in variant.signature.text:
            continue
        for item in variant.signature.items:
            lacking = [name for name in variant.targets if item.dtype in missing_dtypes(TARGETS[name])]
            if not lacking:
                continue
            fit = [name for name in variant.targets if name not in lacking]
            missing = missing_dtypes(TARGETS[lacking[0]])
            has = [name for name in DTYPES if name.startswith("fp8") and name not in missing]
            raise ManifestError(
                f"{variant.id} cannot be built for {lacking[0]}, which has no {item.dtype}",
                where=variant.signature.position,
                expected=f"of the dtypes of 8 bits, {' or '.join(has)} for {lacking[0]}",
                actual=item.type,
                remedy=f"give the kernel `targets: [{', '.join(fit)}]`" if fit else "use another dtype or target",
            )
