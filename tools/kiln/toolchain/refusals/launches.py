"""What a launch of a variant takes, held against what its targets have: refused before anything is built.

What only a compiler can tell (registers, what a kernel shares by its own code) is checked in its image instead. The
`threads` of CUDA C++ need no check here: every target has the 1024 that kernels.yaml takes at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kiln.errors import ManifestError, Position
from kiln.manifest.model import Variant
from kiln.toolchain.targets import TARGETS, Target, narrowed


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Something that a variant asks for, and that a target may not have."""

    what: str
    """continues the sentence `softmax_fp16_2048 cannot be built for sm_80: ...`"""
    where: Position
    expected: str
    actual: str
    remedy: str
    """what to ask for instead; that the kernel may keep its other targets is said besides"""


Check = Callable[[Variant, Target], Demand | None]
"""What the variant asks for and the target does not have, or None."""


def check_launches(variants: Iterable[Variant]) -> None:
    """Refuse a variant that one of its targets cannot launch; its targets are known ones.

    Raises ManifestError where what it asks for is declared, and says which of its targets could have it.
    """
    for variant in variants:
        for check in _checks(variant):
            demands = {name: check(variant, TARGETS[name]) for name in variant.targets}
            for name, demand in demands.items():
                if demand is not None:
                    fit = [other for other, none in demands.items() if none is None]
                    raise ManifestError(
                        f"{variant.id} cannot be built for {name}: {demand.what}",
                        where=demand.where,
                        expected=demand.expected,
                        actual=demand.actual,
                        remedy=f"{demand.remedy}; or {narrowed(fit)}" if fit else demand.remedy,
                    )


def _checks(variant: Variant) -> Iterator[Check]:
    """Those that the variant can fail, for most ask for nothing."""
    if variant.kernel.cuda is None:
        yield _threads
    if variant.options.get("num_ctas", 1) != 1:
        yield _cluster
    if variant.options.get("launch_pdl", 0):
        yield _pdl
    if "ptx_version" in variant.options:
        yield _ptx_version
    if variant.shared:
        yield _shared


def _threads(variant: Variant, target: Target) -> Demand | None:
    warps = variant.options["num_warps"]
    threads = warps * target.warp_size
    if threads <= target.limits.max_threads:
        return None
    most = target.limits.max_threads // target.warp_size
    return Demand(
        what=f"a block would have {threads} threads",
        where=variant.option_position("num_warps"),
        expected=f"at most {target.limits.max_threads} threads in a block on {target.name}",
        actual=f"{_asked(variant, 'num_warps')}, with {target.warp_size} threads a warp",
        remedy=f"lower num_warps to {most} or less",
    )


def _cluster(variant: Variant, target: Target) -> Demand | None:
    blocks, most = variant.options["num_ctas"], target.limits.max_cluster
    if blocks > most:
        return Demand(
            what="it has no clusters; GPUs of NVIDIA have them from 9.0 on"
            if most == 1
            else f"it has no clusters of {blocks} blocks",
            where=variant.option_position("num_ctas"),
            expected="num_ctas: 1" if most == 1 else f"num_ctas of at most {most} on {target.name}",
            actual=_asked(variant, "num_ctas"),
            remedy="leave num_ctas out" if most == 1 else f"lower num_ctas to {most}",
        )
    if variant.kernel.cuda is None and blocks & (blocks - 1):
        return Demand(
            what=f"Triton makes no clusters of {blocks} blocks",
            where=variant.option_position("num_ctas"),
            expected="a power of two for num_ctas",
            actual=_asked(variant, "num_ctas"),
            remedy="use 2, 4, 8 or 16",
        )
    return None


def _pdl(variant: Variant, target: Target) -> Demand | None:
    if target.vendor == "nvidia" and isinstance(target.arch, int) and target.arch >= 90:
        return None
    return Demand(
        what="it has no programmatic dependent launch; GPUs of NVIDIA have it from 9.0 on",
        where=variant.option_position("launch_pdl"),
        expected="launch_pdl: false",
        actual=_asked(variant, "launch_pdl"),
        remedy="leave launch_pdl out",
    )


def _ptx_version(variant: Variant, target: Target) -> Demand | None:
    asked, oldest = variant.options["ptx_version"], target.limits.min_ptx
    if target.kind != "ptx" or oldest is None or asked >= oldest:
        return None
    return Demand(
        what=f"PTX ISA {asked // 10}.{asked % 10} does not know it yet",
        where=variant.option_position("ptx_version"),
        expected=f"ptx_version of at least {oldest} for {target.name}",
        actual=_asked(variant, "ptx_version"),
        remedy=f"raise it to {oldest}",
    )


def _shared(variant: Variant, target: Target) -> Demand | None:
    if variant.shared is None or variant.shared <= target.limits.max_shared:
        return None
    return Demand(
        what=f"a block would have {variant.shared} bytes of dynamic shared memory",
        where=variant.kernel.positions["shared"],
        expected=f"at most {target.limits.max_shared} bytes on {target.name}",
        actual=f"shared: {variant.shared}",
        remedy="use smaller blocks, or share less",
    )


def _asked(variant: Variant, option: str) -> str:
    """An option as kernels.yaml has it, and where it comes from, if not from the kernel, whose place is told then."""
    said = f"{option}: {str(variant.options[option]).lower()}"
    own = option in variant.block_entry.options or f"options.{option}" in variant.kernel.positions
    return said if own else f"{said}, from `defaults`"
