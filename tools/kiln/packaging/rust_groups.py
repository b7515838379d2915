"""Records of a group's variants -> what the templates of the Rust crate show of it: what all of them take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kiln.packaging import rust_text
from kiln.packaging.arguments import Member, SharedStruct
from kiln.packaging.groups import VariantGroup, groups_of
from kiln.packaging.record import Record
from kiln.packaging.rust_slices import SlicesView, view_slices
from kiln.packaging.rust_view import Field, VariantView, doc_of, grid_text_of, shapes_of, view_variant


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The arguments of a group as those of some of its variants."""

    base: str
    """the module that has their `Args`"""
    variants: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    """name, and an expression over `args`"""


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """Variants that compute the same thing."""

    name: str
    variants: tuple[VariantView, ...]
    fields: tuple[Field, ...]
    """of the arguments that all take"""
    conversions: tuple[Conversion, ...]
    """none where the variants take different arguments"""
    extents: tuple[tuple[str, str], ...]
    """what shapes are told apart by: the argument, and its field"""
    grid_text: str
    """in Markdown; of several kernels, each one's"""
    slices: SlicesView | None
    """None where no launch can be on slices"""


def view_groups(records: Sequence[Record]) -> tuple[GroupView, ...]:
    """All groups in order; `records` are all images of the library. Raises PackagingError as `view_structs` does."""
    return tuple(_group(group) for group in groups_of(records))


def _group(group: VariantGroup) -> GroupView:
    kernels = {struct.kernel.key: struct.kernel for struct in group.structs}.values()
    grids = dict.fromkeys(rust_text.code(grid_text_of(kernel)) for kernel in kernels)
    uniform = group.structs if group.is_uniform else ()
    return GroupView(
        name=group.name,
        variants=tuple(view_variant(struct, variant) for struct in group.structs for variant in struct.variants),
        fields=_common_fields(uniform) if uniform else (),
        conversions=tuple(_conversion(struct, uniform) for struct in uniform),
        extents=tuple((member.source, member.name) for member in group.extents) if uniform else (),
        grid_text=" or ".join(grids),
        slices=view_slices(uniform, shapes_of) if uniform else None,
    )


def _common_type(members: Sequence[Member]) -> str:
    """The type of an argument of a group; `*` where the variants have addresses of different things, and a word that
    has the bits where they have different ones."""
    types = {member.type for member in members}
    if len(types) == 1:
        return members[0].type
    return "*" if members[0].is_pointer else f"u{8 * members[0].size}"


def _common_fields(structs: Sequence[SharedStruct]) -> tuple[Field, ...]:
    fields = []
    for index, first in enumerate(structs[0].first.members):
        members = [struct.first.members[index] for struct in structs]
        type = _common_type(members)
        docs = {doc_of(member, struct.kernel) for member, struct in zip(members, structs, strict=True)}
        fields.append(
            Field(
                name=first.name,
                type=rust_text.rust_type(type, "crate::"),
                doc=f"{' or '.join(sorted(docs))}.",
                is_pointer=first.is_pointer,
                example="",
                offset=first.offset,
                size=first.size,
            )
        )
    return tuple(fields)


def _conversion(struct: SharedStruct, structs: Sequence[SharedStruct]) -> Conversion:
    fields = []
    for index, member in enumerate(struct.first.members):
        value = f"args.{member.name}"
        if _common_type([each.first.members[index] for each in structs]) != member.type:
            value = (
                f"{value}.cast()"
                if member.is_pointer
                else f"{rust_text.rust_type(member.type, 'crate::')}::from_bits({value})"
            )
        fields.append((member.name, value))
    return Conversion(base=struct.base, variants=tuple(struct.variants), fields=tuple(fields))
