"""Records -> the objects that launches link: one for each variant and each group, for every archive that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.manifest.expression import c_helpers
from kiln.packaging import c_names
from kiln.packaging.c_blocks import ARGUMENT, EXTENT, GROUP, VARIANT, Layout, Outside, Row, Rows, Value, block
from kiln.packaging.c_compile import compile_units
from kiln.packaging.c_view import GroupView, StructView, VariantView, helper_prefix, view_groups, view_structs
from kiln.packaging.inventory import Inventory, inventory_of
from kiln.packaging.record import Record
from kiln.packaging.templates import environment
from kiln.packaging.weak_references import weakened


def make_variants(records: Sequence[Record], library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile the variants and groups of all `records` to `c_names.launch_members` in `staging`.

    Each is compiled once, for the archive of the whole library. In the archive of a target, what was not built for that
    is referred to weakly: such a copy is another file. Raises PackagingError when the compiler fails or what it made is
    not what was asked for, and as `c_view.view_structs` does.
    """
    inventory = inventory_of(record.image for record in records)
    groups = view_groups(library, records)
    units = {}
    for struct in view_structs(library, records):
        for variant in struct.variants:
            member = c_names.variant_member(variant.id, None)
            units[member] = (_variant_source(library, struct, variant), variant.symbol)
    for group in groups:
        units[c_names.group_member(group.name, None)] = (_group_source(library, group), group.symbol)
    with TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        compile_units(units, library, host, cc, folder)
        for target in inventory.targets:
            _write_copies(inventory, library, target, folder, staging)
        for member in units:
            (folder / member).replace(staging / member)


def _write_copies(inventory: Inventory, library: str, target: str, compiled: Path, staging: Path) -> None:
    """The copies of one target's archive."""
    variants = inventory.variants_for(target)
    for variant in variants:
        others = [built for built in inventory.targets_of(variant) if built != target]
        data = (compiled / c_names.variant_member(variant, None)).read_bytes()
        bundle = c_names.data_symbol(c_names.bundle_symbol(library, variant))
        copy = weakened(data, [*(_own_image(library, variant, other) for other in others), bundle])
        (staging / c_names.variant_member(variant, target)).write_bytes(copy)
    for group, members in inventory.groups:
        missing = set(members).difference(variants)
        data = (compiled / c_names.group_member(group, None)).read_bytes()
        copy = weakened(data, [c_names.own_symbol(c_names.variant_symbol(library, name)) for name in missing])
        (staging / c_names.group_member(group, target)).write_bytes(copy)


def _variant_source(library: str, struct: StructView, variant: VariantView) -> str:
    return (
        environment()
        .get_template("c/variant.c.j2")
        .render(
            library=library,
            macro=c_names.macro_prefix(library),
            struct=struct,
            variant=variant,
            images=[c_names.own_symbol(symbol) for symbol in variant.symbols],
            helpers=c_helpers(helper_prefix(library)),
            lines=_block(variant.symbol, VARIANT, _variant_values(library, struct, variant)),
        )
    )


def _group_source(library: str, group: GroupView) -> str:
    return (
        environment()
        .get_template("c/group.c.j2")
        .render(
            library=library,
            macro=c_names.macro_prefix(library),
            variants=[c_names.own_symbol(symbol) for symbol in group.symbols],
            lines=_block(group.symbol, GROUP, _group_values(library, group)),
        )
    )


def _own_image(library: str, variant: str, target: str) -> str:
    return c_names.own_symbol(c_names.image_symbol(library, variant, target))


def _block(symbol: str, layout: Layout, values: Mapping[str, Value]) -> list[str]:
    return block(symbol, c_names.own_symbol(symbol), layout, values)


def _variant_values(library: str, struct: StructView, variant: VariantView) -> dict[str, Value]:
    """The members of a variant's record, in order; what is outside has the names that the template gives it."""
    rows: list[Row] = [
        {
            "name_at": item.name,
            "type_at": item.type,
            "offset": item.offset,
            "size": item.size,
            "promise": item.promise,
            "is_pointer": item.is_pointer,
            "is_input": item.is_input,
        }
        for item in variant.arguments
    ]
    return {
        "anchor_at": Outside(c_names.anchor_symbol(library)),
        **{f"{name}_at": Outside(name) for name in ("cache", "images", "grid", "selects", "broken", "pack")},
        "bundle_at": Outside("bundle") if variant.bundle is not None else None,
        "args_bytes": struct.args_bytes,
        "buffer_bytes": variant.buffer_bytes,
        "image_count": len(variant.symbols),
        "argument_count": len(rows),
        "arguments_at": Rows(ARGUMENT, rows),
        **{f"{name}_at": text for name, text in variant.texts.items()},
    }


def _group_values(library: str, group: GroupView) -> dict[str, Value]:
    """The same of a group's."""
    rows: list[Row] = [
        {"name_at": extent.name, "offset": extent.offset, "size": extent.size, "is_signed": extent.is_signed}
        for extent in group.extents
    ]
    return {
        "anchor_at": Outside(c_names.anchor_symbol(library)),
        **{f"{name}_at": Outside(name) for name in ("variants", "tuned")},
        "variant_count": len(group.symbols),
        "extent_count": len(rows),
        "extents_at": Rows(EXTENT, rows),
        "name_at": group.name,
        "is_uniform": group.is_uniform,
    }
