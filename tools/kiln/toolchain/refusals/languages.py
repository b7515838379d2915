"""Which targets a kernel can be built for depends on its language: Triton knows AMD, nvcc more of NVIDIA."""

from __future__ import annotations

from collections.abc import Iterable

from kiln.errors import ManifestError
from kiln.manifest.model import Kernel, Manifest
from kiln.toolchain.targets import TARGETS, Target


def check_languages(manifest: Manifest) -> None:
    """Refuse a target that a kernel's compiler does not serve; all are known ones. Raises ManifestError there."""
    for kernel in manifest.kernels:
        for name in kernel.targets:
            target = TARGETS[name]
            if not serves(kernel, target):
                raise _refusal(manifest, kernel, target)


def serves(kernel: Kernel, target: Target) -> bool:
    """Whether the compiler of the kernel's language builds for the target."""
    return target.triton if kernel.cuda is None else target.vendor == "nvidia"


def _refusal(manifest: Manifest, kernel: Kernel, target: Target) -> ManifestError:
    fit = [name for name in kernel.targets if serves(kernel, TARGETS[name])]
    exact = TARGETS.get(f"{target.name.rstrip('af')}a")
    if kernel.cuda is not None:
        language, why = "in CUDA C++", "nvcc compiles for GPUs of NVIDIA only"
    elif target.kind == "ptx":
        language, why = "in Triton", "PTX that Triton writes from sm_90 on is for one architecture exactly"
    elif exact is not None and exact.triton:
        language, why = "in Triton", "from sm_90 on Triton compiles for one architecture exactly"
    else:
        language, why = "in Triton", "Triton does not compile for it"
    if kernel.cuda is None and exact is not None and exact.triton and target.kind == "cubin":
        remedy = f"write {exact.name} for it; for other GPUs of that generation add a PTX target, such as compute_80"
    elif fit and not any(target.name in each.targets and serves(each, target) for each in manifest.kernels):
        remedy = f"remove {target.name} from `targets`: no other kernel is built for it"
    elif fit:
        remedy = f"give the kernel `targets: [{', '.join(fit)}]`"
    else:
        remedy = (
            f"give the kernel other targets: {_some(name for name, each in TARGETS.items() if serves(kernel, each))}"
        )
    return ManifestError(
        f"the kernel {kernel.key} is {language} and cannot be built for {target.name}: {why}",
        where=kernel.positions.get("targets") or manifest.target_positions.get(target.name) or kernel.position,
        expected=f"targets that the compiler of {kernel.source_name} builds for",
        actual=target.name,
        remedy=remedy,
    )


def _some(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:6])
