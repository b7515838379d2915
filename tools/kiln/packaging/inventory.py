"""What a library holds, by name alone: what is known before anything is built, and what archives are made by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kiln.manifest.model import Image


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Names, all in order of declaration."""

    images: tuple[tuple[str, str], ...]
    """(variant, target)"""
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """group -> its variants"""

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
    for image in images:
        names[image.variant.id, image.target] = None
        groups.setdefault(image.variant.group, {})[image.variant.id] = None
    return Inventory(
        images=tuple(names),
        groups=tuple((group, tuple(variants)) for group, variants in groups.items()),
    )
