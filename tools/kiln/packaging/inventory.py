"""What a library holds, by name alone: what is known before anything is built, and what archives are made by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kiln.manifest.model import FATBIN, Image, Manifest
from kiln.toolchain.targets import TARGETS


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Names, all in order of declaration."""

    images: tuple[tuple[str, str], ...]
    """(variant, target)"""
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """group -> its variants"""
    bundles: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """variant -> the targets of the images in its fat binary, of those that have one"""

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(variant for variant, _ in self.images))

    @property
    def targets(self) -> tuple[str, ...]:
        """In the order in which images have them."""
        return tuple(dict.fromkeys(target for _, target in self.images))

    def targets_of(self, variant: str) -> tuple[str, ...]:
        """What a variant is built for."""
        return tuple(target for built, target in self.images if built == variant)

    @property
    def embedded(self) -> frozenset[tuple[str, str]]:
        """(variant, target) of the images whose bytes the fat binaries have as they are: a PTX loses its comments."""
        bundles = dict(self.bundles).items()
        return frozenset(
            (variant, target) for variant, targets in bundles for target in targets if TARGETS[target].kind == "cubin"
        )

    def variants_for(self, target: str | None) -> tuple[str, ...]:
        """The variants that are built for a target; all for None."""
        return tuple(dict.fromkeys(variant for variant, built in self.images if target in (None, built)))

    def groups_for(self, target: str | None) -> tuple[str, ...]:
        """The groups of which some variant is built for a target; all for None."""
        built = set(self.variants_for(target))
        return tuple(group for group, variants in self.groups if built.intersection(variants))


def inventory_of(images: Iterable[Image]) -> Inventory:
    """The names of some images, which stand in order of declaration."""
    names: dict[tuple[str, str], None] = {}
    groups: dict[str, dict[str, None]] = {}
    bundles: dict[str, list[str]] = {}
    for image in images:
        names[image.variant.id, image.target] = None
        groups.setdefault(image.variant.group, {})[image.variant.id] = None
        if is_bundled(image):
            bundles.setdefault(image.variant.id, []).append(image.target)
    return Inventory(
        images=tuple(names),
        groups=tuple((group, tuple(variants)) for group, variants in groups.items()),
        bundles=tuple((variant, tuple(targets)) for variant, targets in bundles.items()),
    )


def is_bundled(image: Image) -> bool:
    """Whether the image goes into its variant's fat binary: then it is one for NVIDIA."""
    return image.variant.kernel.bundle == FATBIN and TARGETS[image.target].vendor == "nvidia"


def has_bundles(manifest: Manifest) -> bool:
    """Whether some variant has a fat binary."""
    return any(is_bundled(image) for image in manifest.images)


def serves_onnxruntime(manifest: Manifest) -> bool:
    """Whether something is made for ONNX Runtime: of fat binaries, where there are any."""
    declared = manifest.onnxruntime
    return declared is not None and (not declared.is_bundled or has_bundles(manifest))
