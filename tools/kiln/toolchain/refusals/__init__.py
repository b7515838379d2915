"""Refuses what a manifest asks for and its targets, or the installed Triton, cannot have: before anything is built."""

from __future__ import annotations

from kiln.manifest.model import Manifest
from kiln.toolchain.refusals.budgets import check_budgets
from kiln.toolchain.refusals.bundles import check_bundles
from kiln.toolchain.refusals.dtypes import check_dtypes
from kiln.toolchain.refusals.languages import check_languages
from kiln.toolchain.refusals.launches import check_launches
from kiln.toolchain.refusals.releases import check_release
from kiln.toolchain.targets import find
from kiln.toolchain.tools import installed_triton


def check(manifest: Manifest) -> None:
    """Hold a manifest, or the part of it that was loaded, against what there is.

    Raises ManifestError for the first thing that it cannot have, where it asks for that; ToolchainError where the
    Triton that is installed is none that Kiln builds with.
    """
    for name in manifest.targets:
        find(name, manifest.target_positions[name])
    check_languages(manifest)
    check_dtypes(manifest.variants)
    check_launches(manifest.variants)
    check_budgets(manifest)
    check_bundles(manifest)
    triton = installed_triton()
    # Without one nothing can be built, but a list can be had.
    if triton is not None and any(kernel.cuda is None for kernel in manifest.kernels):
        check_release(manifest, triton.version, triton.release)
