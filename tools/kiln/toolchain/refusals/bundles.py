"""Fat binaries that nothing can be put into, or that nothing can make."""

from __future__ import annotations

from collections.abc import Sequence

from kiln.errors import ManifestError, Position, ToolchainError
from kiln.manifest.model import FATBIN, Manifest
from kiln.toolchain.nvcc import find_fatbinary
from kiln.toolchain.targets import TARGETS


def check_bundles(manifest: Manifest) -> None:
    """Refuse `bundle: fatbin` where nothing is built for NVIDIA; all targets are known ones.

    For the library as a whole, one kernel with such a target is enough. Raises ManifestError at the key, and
    ToolchainError where the program is missing that makes fat binaries.
    """
    bundled = [kernel for kernel in manifest.kernels if kernel.bundle == FATBIN]
    if manifest.bundle_position is not None and bundled and not _nvidia(manifest.targets):
        raise _none("the library", manifest.bundle_position, manifest.targets)
    for kernel in bundled:
        if "bundle" in kernel.positions and not _nvidia(kernel.targets):
            raise _none(f"the kernel {kernel.key}", kernel.positions["bundle"], kernel.targets)
    declared = manifest.onnxruntime
    if declared is not None and declared.is_bundled:
        for kernel in bundled:
            if kernel.key in (declared.kernels or ()) and not _nvidia(kernel.targets):
                raise _none(f"the kernel {kernel.key}, for ONNX Runtime,", declared.position, kernel.targets)
    made = next((kernel for kernel in bundled if _nvidia(kernel.targets)), None)
    if made is not None:
        try:
            find_fatbinary()
        except ToolchainError as error:
            raise error.filled(where=made.positions.get("bundle", manifest.bundle_position)) from error


def _nvidia(targets: Sequence[str]) -> list[str]:
    return [name for name in targets if TARGETS[name].vendor == "nvidia"]


def _none(who: str, where: Position, targets: Sequence[str]) -> ManifestError:
    return ManifestError(
        f"{who} has fat binaries, and nothing to put into one",
        where=where,
        expected="a target of NVIDIA, such as sm_80 or compute_80: images for AMD stay separate",
        actual=f"targets {', '.join(targets)}",
        remedy="write `bundle: separate`, or leave it out",
    )
