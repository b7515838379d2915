"""A manifest for some of its targets: what a build makes that wants no other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from kiln.errors import ManifestError, did_you_mean
from kiln.manifest.expand import expand_images
from kiln.manifest.model import Manifest, OnnxRuntime


def narrowed(manifest: Manifest, targets: Sequence[str], where: str) -> Manifest:
    """The manifest as if its other targets were taken out of kernels.yaml, with all kernels that have none left.

    `where` is what names the targets, for messages. Raises ManifestError for none, and for one that is not its own.
    """
    for name in targets:
        if name not in manifest.targets:
            raise ManifestError(
                f"{manifest.position.file} does not have the target {name!r}" if name else "a target without a name",
                where=where,
                expected=f"names of {', '.join(manifest.targets)}, with commas between them",
                actual=",".join(targets) or "nothing",
                remedy=did_you_mean(name, manifest.targets) or "correct the names, or `targets` in the file",
            )
    chosen = tuple(name for name in manifest.targets if name in targets)
    kernels = {
        kernel.key: replace(kernel, targets=tuple(name for name in kernel.targets if name in chosen))
        for kernel in manifest.kernels
    }
    variants = [
        replace(
            variant,
            kernel=kernels[variant.kernel.key],
            targets=tuple(name for name in variant.targets if name in chosen),
        )
        for variant in manifest.variants
    ]
    left = tuple(variant for variant in variants if variant.targets)
    remaining = tuple(kernel for kernel in kernels.values() if kernel.targets)
    return replace(
        manifest,
        targets=chosen,
        kernels=remaining,
        variants=left,
        images=expand_images(left),
        release_sizes={name: size for name, size in manifest.release_sizes.items() if name in chosen},
        onnxruntime=_onnxruntime(manifest.onnxruntime, chosen, {kernel.key for kernel in remaining}),
    )


def _onnxruntime(declared: OnnxRuntime | None, chosen: Sequence[str], kernels: Collection[str]) -> OnnxRuntime | None:
    if declared is None or not (declared.is_bundled or declared.target in chosen):
        return None
    if declared.kernels is None or not declared.is_bundled:
        # A kernel that is listed is built for the one target.
        return declared
    return replace(declared, kernels=tuple(key for key in declared.kernels if key in kernels))
