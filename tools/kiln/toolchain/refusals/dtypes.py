"""An fp8 dtype in a signature or a constant, for a target whose compiler does not know it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kiln.errors import ManifestError, Position
from kiln.manifest.constants import DTypeConstant, Value
from kiln.manifest.model import Variant
from kiln.toolchain.fp8 import fp8_dtypes
from kiln.toolchain.targets import TARGETS, narrowed


def check_dtypes(variants: Iterable[Variant]) -> None:
    """Refuse a variant whose signature or constants have a dtype that one of its targets lacks; its targets are known.

    CUDA C++ has its fp8 dtypes on every target. Raises ManifestError at the signature, or at the constant.
    """
    for variant in variants:
        if variant.kernel.cuda is not None:
            continue
        for dtype, said, where in _named(variant):
            lacking = [name for name in variant.targets if dtype not in fp8_dtypes(TARGETS[name])]
            if not lacking:
                continue
            fit = [name for name in variant.targets if name not in lacking]
            has = " or ".join(fp8_dtypes(TARGETS[lacking[0]]))
            raise ManifestError(
                f"{variant.id} cannot be built for {lacking[0]}, which has no {dtype}",
                where=where,
                expected=f"a dtype that {lacking[0]} has: of the fp8 dtypes, {has}",
                actual=said,
                remedy=narrowed(fit) if fit else "use another dtype or target",
            )


def _named(variant: Variant) -> Iterator[tuple[str, str, Position]]:
    """The fp8 dtypes that a variant names, each as it stands there, and where."""
    for item in variant.signature.items:
        if item.dtype.startswith("fp8"):
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
    """Those in a constant, which may be a tuple."""
    if isinstance(value, tuple):
        for member in value:
            yield from _dtypes(member)
    elif isinstance(value, DTypeConstant) and value.name.startswith("fp8"):
        yield value.name
