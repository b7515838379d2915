"""What the installed release of Triton cannot build, and another release can."""

from __future__ import annotations

from kiln.errors import ManifestError
from kiln.manifest.model import Manifest
from kiln.toolchain.targets import TARGETS
from kiln.toolchain.triton_releases import RELEASES, Release


def check_release(manifest: Manifest, version: str, release: Release) -> None:
    """Refuse what the installed Triton, `release`, cannot build, and others can. The targets are Triton's own.

    Raises ManifestError at the target, or at the option.
    """
    for kernel in manifest.kernels:
        for name in kernel.targets:
            if kernel.cuda is None and name in release.lacks:
                raise ManifestError(
                    f"the kernel {kernel.key} cannot be built for {name}: Triton {version}, which is installed, does "
                    "not know it",
                    where=kernel.positions.get("targets") or manifest.target_positions.get(name) or kernel.position,
                    expected=f"a target that Triton {version} builds for",
                    actual=name,
                    remedy=f"install {_with(name)}, or take {name} out of `targets`",
                )
    for variant in manifest.variants:
        asked = variant.options.get("ptx_version")
        if variant.kernel.cuda is not None or asked is None or asked <= release.newest_ptx:
            continue
        for name in variant.targets:
            if TARGETS[name].kind == "ptx":
                raise ManifestError(
                    f"{variant.id} cannot be built for {name}: the ptxas of Triton {version}, which is installed, "
                    f"knows no PTX ISA {asked // 10}.{asked % 10}",
                    where=variant.option_position("ptx_version"),
                    expected=f"ptx_version of at most {release.newest_ptx} with that Triton",
                    actual=f"ptx_version: {asked}",
                    remedy=f"lower it to {release.newest_ptx} or less, or leave it out: older PTX runs on more drivers",
                )


def _with(target: str) -> str:
    """The releases that have a target, as a person reads them."""
    fit = [f"{major}.{minor}" for (major, minor), release in RELEASES.items() if target not in release.lacks]
    return f"Triton {fit[0]}" if len(fit) == 1 else f"Triton {', '.join(fit[:-1])} or {fit[-1]}"
