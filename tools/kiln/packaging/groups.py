"""The variants of each group, and what those share that take the same arguments. Each language renders it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kiln.manifest.dtypes import DTYPES
from kiln.manifest.model import Variant
from kiln.packaging.arguments import Member, SharedStruct, shared_structs
from kiln.packaging.record import Record


@dataclass(frozen=True, kw_only=True)
class VariantGroup:
    """Variants that compute the same thing, by the argument structs that they take."""

    name: str
    structs: Sequence[SharedStruct]

    @property
    def variants(self) -> list[Variant]:
        """All of them, in order of declaration."""
        return variants_of(self.structs)

    @property
    def is_uniform(self) -> bool:
        """Whether all take the same arguments."""
        return are_alike(self.structs)

    @property
    def extents(self) -> list[Member]:
        """The integers by which shapes are told apart; of no use where the variants take different arguments."""
        return extents_of(self.structs)


def groups_of(records: Sequence[Record]) -> tuple[VariantGroup, ...]:
    """All groups in order; `records` are all images of the library. Raises PackagingError as `shared_structs` does."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.image.variant.group, []).append(record)
    return tuple(VariantGroup(name=name, structs=shared_structs(own)) for name, own in groups.items())


def variants_of(structs: Sequence[SharedStruct]) -> list[Variant]:
    """The variants of some structs, in order."""
    return [images[0].image.variant for struct in structs for images in struct.records.values()]


def are_alike(structs: Sequence[SharedStruct]) -> bool:
    """Whether all have the same members: names, types but for what pointers point at, and order; and so offsets."""
    first, *others = ([(member.name, _passed_as(member)) for member in struct.first.members] for struct in structs)
    return all(other == first for other in others)


def _passed_as(member: Member) -> str:
    """What C passes it as: an fp16 and a bf16 are both 16 bits."""
    return "void *" if member.is_pointer else DTYPES[member.type].c


def extents_of(structs: Sequence[SharedStruct]) -> list[Member]:
    """What any of some structs that are alike uses in grid, select or tensors, in their order."""
    used: set[str] = set()
    for kernel in (struct.kernel for struct in structs):
        shapes = [extent for shape in kernel.tensors.values() for extent in shape]
        for expression in (*kernel.grid, *shapes, *filter(None, [kernel.select])):
            used |= expression.names
    return [member for member in structs[0].first.members if member.is_integer and member.source in used]
