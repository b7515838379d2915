"""Records -> what the templates of the C package show of variants and groups: every name and expression as C has it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.manifest.constants import described, same
from kiln.manifest.expression import Expression
from kiln.manifest.model import Kernel, Variant
from kiln.manifest.names import fold
from kiln.manifest.pattern import fill
from kiln.packaging import c_names
from kiln.packaging.arguments import Member, SharedStruct, shared_structs
from kiln.packaging.c_text import c_comment, c_integer, c_type
from kiln.packaging.groups import VariantGroup, are_alike, groups_of, variants_of
from kiln.packaging.inventory import is_bundled
from kiln.packaging.record import Record

_WIDTH = 116


@dataclass(frozen=True, kw_only=True)
class MemberView:
    """One member of an argument struct; offset and size are bytes."""

    name: str
    type: str
    """as a signature has it: `*fp16`, `i32`; `*` alone where variants differ in what lies there"""
    declaration: str
    comment: str
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class ArgumentView:
    """One member of an argument struct, as the library tells of it at run time."""

    name: str
    type: str
    offset: int
    size: int
    promise: int
    is_pointer: bool
    is_input: bool


@dataclass(frozen=True, kw_only=True)
class VariantView:
    """One variant; conditions are C."""

    id: str
    symbol: str
    holds: str
    """the condition of its promises; empty when it has none"""
    promises: str
    """the same in words, with the constants that follow from them"""
    packed: Sequence[tuple[int, str]]
    """offset in the parameter buffer, member"""
    buffer_bytes: int
    symbols: Sequence[str]
    """of its images"""
    bundle: str | None
    """symbol of its fat binary; None: it has none"""
    arguments: Sequence[ArgumentView]
    broken: Sequence[tuple[int, str]]
    """place of an argument of which something is promised, and the condition that it holds"""
    texts: Mapping[str, str | None]
    """name, base, kernel, group, dtype, block and select"""


@dataclass(frozen=True, kw_only=True)
class StructView:
    """Variants that share an argument struct, since they differ by promises alone; texts are C."""

    base: str
    description: Sequence[str]
    members: Sequence[MemberView]
    args_bytes: int
    grid: Sequence[str]
    grid_wide: Sequence[str]
    """members of 64 bits without a sign that the grid uses: they may be no int64_t"""
    select: str
    select_wide: Sequence[str]
    variants: Sequence[VariantView]


@dataclass(frozen=True, kw_only=True)
class ExtentView:
    """An integer that grid, select or tensors of a group use; offset and size are bytes."""

    name: str
    offset: int
    size: int
    is_signed: bool


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """Variants that compute the same thing."""

    name: str
    symbol: str
    variants: Sequence[str]
    """their names, in order"""
    symbols: Sequence[str]
    """of the variants"""
    members: Sequence[MemberView]
    """of the argument struct that all take; of no use where they take different ones"""
    extents: Sequence[ExtentView]
    """what shapes are told apart by"""
    is_uniform: bool


@dataclass(frozen=True, kw_only=True)
class FrontView:
    """The groups of one kernel that differ by their dtype alone, and take the same argument struct."""

    name: str
    members: Sequence[MemberView]
    groups: Sequence[tuple[str, str]]
    """constant of a dtype, symbol of its group"""


def view_structs(library: str, records: Sequence[Record]) -> tuple[StructView, ...]:
    """All variants in order; `records` are all of their images.

    Raises PackagingError for images that `arguments.argument_struct` refuses, and when an expression names what has no
    integer value.
    """
    return tuple(_struct(library, shared) for shared in shared_structs(records))


def helper_prefix(library: str) -> str:
    """What the functions begin with that expressions call."""
    return f"{library}_expr_"


def view_groups(library: str, records: Sequence[Record]) -> tuple[GroupView, ...]:
    """All groups in order; `records` are all images of the library."""
    return tuple(_group(library, group) for group in groups_of(records))


def view_fronts(library: str, records: Sequence[Record]) -> tuple[FrontView, ...]:
    """The fronts of kernels over their dtypes, in order.

    A front is called like its groups without the dtype. There is none where a group's name does not say the dtype,
    where argument structs differ, and where something else has that name.
    """
    grouped = {group.name: group.structs for group in groups_of(records)}
    taken = {
        fold(name) for structs in grouped.values() for struct in structs for name in (struct.base, *struct.variants)
    }
    taken |= {fold(name) for name in grouped}
    found: dict[str, dict[str, Sequence[SharedStruct]]] = {}
    spoiled = set(taken)
    for structs in grouped.values():
        names = {_front_name(variant) for variant in variants_of(structs)}
        dtypes = {variant.dtype for variant in variants_of(structs)}
        if len(names) != 1 or len(dtypes) != 1:
            spoiled |= {fold(name) for name in names}
            continue
        name, dtype = *names, *dtypes
        groups = found.setdefault(name, {})
        if dtype in groups:
            spoiled.add(fold(name))
        groups[dtype] = structs
    fronts = []
    for name, groups in found.items():
        every = [struct for structs in groups.values() for struct in structs]
        if not name or fold(name) in spoiled or not are_alike(every):
            continue
        fronts.append(
            FrontView(
                name=name,
                members=_common_members(every),
                groups=[
                    (
                        f"{c_names.macro_prefix(library)}_DTYPE_{dtype.upper()}",
                        c_names.group_symbol(library, variants_of(structs)[0].group),
                    )
                    for dtype, structs in groups.items()
                ],
            )
        )
    return tuple(fronts)


def _front_name(variant: Variant) -> str:
    """The name of a variant's group without its dtype; empty where the name does not say it."""
    kernel = variant.kernel
    if kernel.rows or "{dtype}" not in kernel.group:
        return ""
    words = {"dtype": "", "block": variant.block}
    for axis, values in kernel.axes.items():
        words[axis] = next(word for word, value in values.items() if same(value, variant.axes[axis]))
    return re.sub("_+", "_", fill(kernel.group, words)).strip("_")


def _common_members(structs: Sequence[SharedStruct]) -> list[MemberView]:
    """The members of a struct that stands for some that are alike; comments say what is the same in all."""
    members = []
    for index, member in enumerate(structs[0].first.members):
        types = {struct.first.members[index].type for struct in structs}
        shapes = {_shape(struct.first.members[index], struct.kernel) for struct in structs}
        kind = member.type if len(types) == 1 else "device address" if member.is_pointer else member.type
        is_input = all(struct.first.members[index].is_input for struct in structs)
        remarks = ["launch input, not passed to the kernel" if is_input else kind]
        remarks += [shape for shape in shapes if shape and len(shapes) == 1]
        members.append(_view(member, remarks, member.type if len(types) == 1 or not member.is_pointer else "*"))
    return members


def _group(library: str, group: VariantGroup) -> GroupView:
    variants = [variant.id for variant in group.variants]
    return GroupView(
        name=group.name,
        symbol=c_names.group_symbol(library, group.name),
        variants=variants,
        symbols=[c_names.variant_symbol(library, variant) for variant in variants],
        members=_common_members(group.structs) if group.is_uniform else [],
        extents=[_extent(member) for member in group.extents] if group.is_uniform else [],
        is_uniform=group.is_uniform,
    )


def _extent(member: Member) -> ExtentView:
    return ExtentView(
        name=member.source,
        offset=member.offset,
        size=member.size,
        is_signed=member.type.startswith("i"),
    )


def _struct(library: str, shared: SharedStruct) -> StructView:
    kernel, arguments = shared.kernel, shared.first
    values = {
        **{item.source: f"(int64_t)args->{item.name}" for item in arguments.members if item.is_integer},
        **{name: c_integer(value) for name, value in arguments.constants.items()},
    }

    def code(expression: Expression, key: str) -> str:
        arguments.check_names(expression, key, kernel)
        return expression.to_c(values, helper_prefix(library))

    return StructView(
        base=shared.base,
        description=_description(shared),
        members=[_member(item, shared) for item in arguments.members],
        # C has no empty structs.
        args_bytes=max(arguments.size, 1),
        grid=[code(expression, "grid") for expression in kernel.grid],
        grid_wide=[item.name for item in arguments.wide(kernel.grid)],
        select=f"{helper_prefix(library)}holds({code(kernel.select, 'select')})" if kernel.select else "true",
        select_wide=[item.name for item in arguments.wide([kernel.select])],
        variants=[_variant(library, shared, variant) for variant in shared.variants],
    )


def _variant(library: str, shared: SharedStruct, name: str) -> VariantView:
    struct, variant = shared.variants[name], shared.records[name][0].image.variant
    kernel = variant.kernel
    own = ", ".join(f"{name} = {described(value)}" for name, value in shared.own_constants(name).items())
    return VariantView(
        id=name,
        symbol=c_names.variant_symbol(library, name),
        holds=" && ".join(_holds(item) for item in struct.promised),
        promises=c_comment(", ".join(filter(None, [struct.promised_text, own and f"with {own}"]))),
        packed=[(item.parameter.offset, item.name) for item in struct.members if item.parameter],
        # C has no empty arrays.
        buffer_bytes=max(struct.buffer_bytes, 1),
        symbols=[c_names.image_symbol(library, name, record.image.target) for record in shared.records[name]],
        bundle=c_names.data_symbol(c_names.bundle_symbol(library, name))
        if any(is_bundled(record.image) for record in shared.records[name])
        else None,
        arguments=[
            ArgumentView(
                name=item.source,
                type=item.type,
                offset=item.offset,
                size=item.size,
                promise=item.promise or 0,
                is_pointer=item.is_pointer,
                is_input=item.is_input,
            )
            for item in struct.members
        ],
        broken=[(place, _holds(item)) for place, item in enumerate(struct.members) if item.promise is not None],
        texts={
            "name": variant.id,
            "base": variant.base,
            "kernel": kernel.key,
            "group": variant.group,
            "dtype": variant.dtype,
            "block": variant.block,
            "select": kernel.select.text if kernel.select else None,
        },
    )


def _holds(member: Member) -> str:
    """The condition that the member's promise holds."""
    if member.promise == 1:
        return f"args->{member.name} == 1"
    return f"{'(uintptr_t)' if member.is_pointer else ''}args->{member.name} % {member.promise} == 0"


def _description(shared: SharedStruct) -> list[str]:
    record = shared.first_record
    variant = record.image.variant
    kernel = variant.kernel
    constants = ", ".join(f"{name} = {described(value)}" for name, value in shared.constants.items())
    axes = ", ".join(f"{name} = {described(value)}" for name, value in record.interface.axes.items())
    block = f", block {variant.block}" if variant.block else ""
    lines = [
        f"{shared.base}: kernel {kernel.key}, group {variant.group}, dtype {variant.dtype}{block}",
        f"Function: {kernel.function} of {kernel.source_name}",
        f"Signature: {variant.signature.text}",
        f"Constants: {constants or 'none'}",
        *([f"Axes: {axes}"] if axes else []),
        f"Grid: {', '.join(expression.text for expression in kernel.grid)}",
        f"Serves a call when: {kernel.select.text if kernel.select else 'always'}",
    ]
    return [part for line in lines for part in textwrap.wrap(c_comment(line), _WIDTH, subsequent_indent="    ")]


def _member(member: Member, shared: SharedStruct) -> MemberView:
    shape = _shape(member, shared.kernel)
    kind = "launch input, not passed to the kernel" if member.is_input else member.type
    return _view(member, [kind, *([shape] if shape else []), *shared.remarks(member.source)], member.type)


def _shape(member: Member, kernel: Kernel) -> str:
    """`[n_rows, n_cols]` of the tensor behind a pointer; empty where that is not declared."""
    shape = kernel.tensors.get(member.source)
    return f"[{', '.join(extent.text for extent in shape)}]" if shape is not None else ""


def _view(member: Member, remarks: Sequence[str], type: str) -> MemberView:
    word = c_type(member.type)
    return MemberView(
        name=member.name,
        type=type,
        declaration=f"{word}{'' if word.endswith('*') else ' '}{member.name}",
        comment=c_comment(", ".join(remarks)),
        offset=member.offset,
        size=member.size,
    )
