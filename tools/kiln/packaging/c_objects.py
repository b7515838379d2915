"""Records, tables and the fixed runtime -> compiled objects, one for each thing that a program may link on its own.

A linker takes whole members out of an archive. So each image's record is an object of its own, beside the image's data:
naming one record links one image. They are separate files of one compiler call; a record takes about 2 ms, a unit of C
10, for it includes the fixed types alone and not the library's header.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kiln.binaries.facts import Role
from kiln.binaries.host_object import property_note
from kiln.errors import PackagingError
from kiln.manifest import constants
from kiln.packaging import c_names
from kiln.packaging.arguments import image_parameters
from kiln.packaging.c_blocks import CONSTANT, IMAGE, LAYOUTS, PARAMETER, Outside, Row, Rows, Value, block
from kiln.packaging.c_compile import compile_units
from kiln.packaging.c_package import runtime_source
from kiln.packaging.c_text import c_string, c_type
from kiln.packaging.inventory import Inventory
from kiln.packaging.record import Record
from kiln.packaging.templates import environment
from kiln.toolchain.hosts import HOSTS, Host
from kiln.toolchain.targets import Kind

_KINDS: dict[Kind, int] = {"cubin": 1, "ptx": 2, "hsaco": 3}
"""as enum kiln_kind has them"""

_ROLES: dict[Role, int] = {"user": 1, "global_scratch": 2, "profile_scratch": 3}
"""as enum kiln_role has them"""


def make_records(records: Sequence[Record], library: str, host: str, cc: Path, staging: Path) -> None:
    """Assemble each image's record to `c_names.record_member` in `staging`, in one call of the compiler.

    Raises PackagingError when the compiler fails or what it made is not what was asked for.
    """
    units = {}
    for record in records:
        variant, target = record.image.variant.id, record.image.target
        symbol = c_names.image_symbol(library, variant, target)
        units[c_names.record_member(variant, target)] = (_record_source(record, library, HOSTS[host]), symbol)
    compile_units(units, library, host, cc, staging)


def make_tables(inventory: Inventory, library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile what depends on names only: a table a target, registries and catalogs, and the fixed runtime.

    What is written are the members `c_names.table_members`. Raises PackagingError when there are no images, when the
    compiler fails, or what it made is not what was asked for.
    """
    if not inventory.images:
        raise PackagingError("there are no images to package", where=library, remedy="declare a kernel")
    units = {}
    for target in (None, *inventory.targets):
        units[c_names.registry_member(target)] = (_registry_source(inventory, library, target), f"{library}_registry")
        units[c_names.catalog_member(target)] = (_catalog_source(inventory, library, target), f"{library}_catalog")
    for target in inventory.targets:
        symbol = c_names.table_symbol(library, target)
        units[c_names.table_member(target)] = (_table_source(inventory, library, target), symbol)
    for member, symbol in c_names.runtime_members(library).items():
        units[member] = (runtime_source(f"src/{c_names.source_of(member)}", library), symbol)
    compile_units(units, library, host, cc, staging)


def _record_source(record: Record, library: str, host: Host) -> str:
    symbol = c_names.image_symbol(library, record.image.variant.id, record.image.target)
    return (
        environment()
        .get_template("c/record.s.j2")
        .render(
            hidden=[c_names.data_symbol(symbol), c_names.anchor_symbol(library)],
            lines=block(symbol, c_names.own_symbol(symbol), IMAGE, _values(record, library, symbol)),
            property_note=", ".join(map(str, property_note(host))),
        )
    )


def _values(record: Record, library: str, symbol: str) -> dict[str, Value]:
    """The members of an image's record, in order."""
    image, facts = record.image, record.facts
    variant, kernel = image.variant, image.variant.kernel
    parameters, compiled_in = _parameters(record), _constants(record)

    def known(value: int | None) -> int:
        return -1 if value is None else value

    return {
        "global_scratch_bytes": facts.global_scratch_bytes,
        "profile_scratch_bytes": facts.profile_scratch_bytes,
        "threads": facts.threads,
        "shared_static": facts.shared_static,
        "shared_dynamic": facts.shared_dynamic,
        "parameter_bytes": facts.parameter_bytes,
        "cluster": facts.cluster,
        "kind": _KINDS[facts.kind],
        "cooperative": facts.cooperative,
        "pdl": facts.pdl,
        "anchor_at": Outside(c_names.anchor_symbol(library)),
        "parameter_count": len(parameters.rows),
        "parameters_at": parameters,
        "data_at": Outside(c_names.data_symbol(symbol)),
        "size": facts.size,
        "sha256": list(bytes.fromhex(facts.sha256)),
        "global_scratch_align": facts.global_scratch_align,
        "profile_scratch_align": facts.profile_scratch_align,
        "warps": facts.warps,
        "warps_requested": int(variant.options.get("num_warps", facts.warps)),
        "warp_size": facts.warp_size,
        "registers": known(facts.registers),
        "scalar_registers": known(facts.scalar_registers),
        "spills": known(facts.spills),
        "stack": known(facts.stack),
        "constant_count": len(compiled_in.rows),
        "constants_at": compiled_in,
        "id_at": image.id,
        "kernel_at": kernel.key,
        "variant_at": variant.id,
        "group_at": variant.group,
        "dtype_at": variant.dtype,
        "block_at": variant.block,
        "target_at": image.target,
        "entry_at": facts.entry,
        "ptx_isa_at": facts.ptx_isa,
        "grid_at": [expression.text for expression in kernel.grid],
        "select_at": kernel.select.text if kernel.select else None,
    }


def _parameters(record: Record) -> Rows:
    return Rows(
        PARAMETER,
        [
            {
                "name_at": argument.name if argument else parameter.role,
                "type_at": c_type(argument.type) if argument else "void *",
                "role": _ROLES[parameter.role],
                "offset": parameter.offset,
                "size": parameter.size,
                "promise": (argument and argument.promise) or 0,
            }
            for argument, parameter in image_parameters(record)
        ],
    )


def _constants(record: Record) -> Rows:
    rows: list[Row] = [
        {"value": _constant_value(value), "name_at": name, "text_at": constants.described(value)}
        for name, value in record.constants.items()
    ]
    return Rows(CONSTANT, rows)


def _constant_value(value: constants.Value) -> int:
    return int(value) if isinstance(value, int) and -(2**63) <= value < 2**63 else 0


def _table_source(inventory: Inventory, library: str, target: str) -> str:
    return (
        environment()
        .get_template("c/table.c.j2")
        .render(
            library=library,
            macro=c_names.macro_prefix(library),
            table=c_names.table_symbol(library, target),
            target=c_string(target),
            symbols=[
                c_names.own_symbol(c_names.image_symbol(library, *image))
                for image in inventory.images
                if image[1] == target
            ],
        )
    )


def _registry_source(inventory: Inventory, library: str, target: str | None) -> str:
    """The registry of the whole library, or of one target's archive, which refers to other targets' images weakly."""
    listed = [
        {"symbol": c_names.own_symbol(c_names.image_symbol(library, *image)), "weak": target not in (None, image[1])}
        for image in inventory.images
    ]
    return (
        environment()
        .get_template("c/registry.c.j2")
        .render(library=library, macro=c_names.macro_prefix(library), images=listed, layouts=LAYOUTS)
    )


def _catalog_source(inventory: Inventory, library: str, target: str | None) -> str:
    """The same for variants and groups."""
    variants, groups = inventory.variants_for(target), inventory.groups_for(target)
    listed = [
        {"symbol": c_names.own_symbol(c_names.variant_symbol(library, name)), "weak": name not in variants}
        for name in inventory.variants
    ]
    listed_groups = [
        {"symbol": c_names.own_symbol(c_names.group_symbol(library, name)), "weak": name not in groups}
        for name, _ in inventory.groups
    ]
    return (
        environment()
        .get_template("c/catalog.c.j2")
        .render(library=library, macro=c_names.macro_prefix(library), variants=listed, groups=listed_groups)
    )
