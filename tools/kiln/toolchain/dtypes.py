"""Which targets have which dtypes: Triton compiles no kernel that names another one, even behind a pointer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kiln.errors import ManifestError, Position
from kiln.manifest.constants import DTypeConstant, Value
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.model import Variant
from kiln.toolchain.targets import TARGETS, Target, narrowed

_AMD: tuple[str, ...] = ("fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16")
_NVIDIA = ("fp8e4b15", "fp8e5")
_NVIDIA_89 = ("fp8e4nv", *_NVIDIA)
"""Measured with Triton 3.9: each as scalar, as pointer and as what a constant casts to, for every number and gfx. On
sm_75 values of fp8e5 can be read, and ptxas refuses code that makes some."""


def missing_dtypes(target: Target) -> tuple[str, ...]:
    """The dtypes that no kernel for the target can name, in the order of `DTYPES`."""
    known = _AMD
    if target.vendor == "nvidia":
        known = _NVIDIA_89 if isinstance(target.arch, int) and target.arch >= 89 else _NVIDIA
    return tuple(name for name in DTYPES if name.startswith("fp8") and name not in known)


def check_dtypes(variants: Iterable[Variant]) -> None:
    """Refuse a variant whose signature or constants have a dtype that one of its targets lacks; its targets are known.

    CUDA C++ has its dtypes of 8 bits on every target. Raises ManifestError at the signature, or at the constant.
    """
    for variant in variants:
        if variant.kernel.cuda is not None:
            continue
        for dtype, said, where in _named(variant):
            lacking = [name for name in variant.targets if dtype in missing_dtypes(TARGETS[name])]
            if not lacking:
                continue
            fit = [name for name in variant.targets if name not in lacking]
            missing = missing_dtypes(TARGETS[lacking[0]])
            has = [name for name in DTYPES if name.startswith("fp8") and name not in missing]
            raise ManifestError(
                f"{variant.id} cannot be built for {lacking[0]}, which has no {dtype}",
                where=where,
                expected=f"of the dtypes of 8 bits, {' or '.join(has)} for {lacking[0]}",
                actual=said,
                remedy=narrowed(fit) if fit else "use another dtype or target",
            )


def _named(variant: Variant) -> Iterator[tuple[str, str, Position]]:
    """The dtypes of 8 bits that a variant names, each as it stands there, and where."""
    if "fp8" in variant.signature.text:
        for item in variant.signature.items:
            yield item.dtype, item.type, variant.signature.position
    for name, value in {**variant.axes, **variant.constants}.items():
        for dtype in _dtypes(value):
            yield dtype, f"{name} is {dtype}", _place(variant, name)


def _place(variant: Variant, name: str) -> Position:
    """Where a variant gets the value of a constant from."""
    kernel = variant.kernel
    places = (f"axes.{name}", f"constants.{name}")
    own = next((kernel.positions[place] for place in places if place in kernel.positions), None)
    return own or variant.block_entry.positions.get(name, kernel.position)


def _dtypes(value: Value) -> Iterator[str]:
    """Those of 8 bits in a constant, which may be a tuple."""
    if isinstance(value, tuple):
        for member in value:
            yield from _dtypes(member)
    elif isinstance(value, DTypeConstant) and value.name.startswith("fp8"):
        yield value.name
