"""Records, tables and the fixed runtime -> compiled objects, one for each thing that a program may link on its own.

A linker takes whole members out of an archive. So each image's record is an object of its own, beside the image's data:
naming one record links one image. They are separate translation units of one compiler call; a unit takes about 10 ms,
for it includes the fixed types alone and not the library's header.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kiln.errors import PackagingError
from kiln.manifest.constants import Value, described
from kiln.packaging import c_names
from kiln.packaging.arguments import image_parameters
from kiln.packaging.c_compile import compile_units
from kiln.packaging.c_package import runtime_source
from kiln.packaging.c_text import c_integer, c_string, c_type
from kiln.packaging.inventory import Inventory
from kiln.packaging.record import Record
from kiln.packaging.templates import environment


def make_records(records: Sequence[Record], library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile each image's record to `c_names.record_member` in `staging`, in one call of the compiler.

    Raises PackagingError when the compiler fails or what it made is not what was asked for.
    """
    units = {}
    for record in records:
        variant, target = record.image.variant.id, record.image.target
        symbol = c_names.image_symbol(library, variant, target)
        units[c_names.record_member(variant, target)] = (_record_source(record, library), symbol)
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


def _record_source(record: Record, library: str) -> str:
    variant, target = record.image.variant.id, record.image.target
    macro = c_names.macro_prefix(library)
    symbol = c_names.image_symbol(library, variant, target)
    parameters = _parameters(record)
    constants = [
        {"name": c_string(name), "text": c_string(described(value)), "value": _constant_value(value)}
        for name, value in record.constants.items()
    ]
    return (
        environment()
        .get_template("c/record.c.j2")
        .render(
            library=library,
            macro=macro,
            symbol=symbol,
            data=c_names.data_symbol(symbol),
            parameters=parameters,
            constants=constants,
            fields=_fields(record, library, len(parameters), len(constants)).items(),
        )
    )


def _fields(record: Record, library: str, parameters: int, constants: int) -> dict[str, str | int]:
    """The members of the image struct in order, as C initialisers."""
    image, facts = record.image, record.facts
    variant, kernel = image.variant, image.variant.kernel

    def flag(value: bool) -> str:
        return "true" if value else "false"

    def known(value: int | None) -> int:
        return -1 if value is None else value

    digest = bytes.fromhex(facts.sha256)
    return {
        "id": c_string(image.id),
        "kernel": c_string(kernel.key),
        "variant": c_string(variant.id),
        "group": c_string(variant.group),
        "dtype": c_string(variant.dtype),
        "block": c_string(variant.block),
        "target": c_string(image.target),
        "entry": c_string(facts.entry),
        "kind": f"{c_names.macro_prefix(library)}_KIND_{facts.kind.upper()}",
        "data": c_names.data_symbol(c_names.image_symbol(library, variant.id, image.target)),
        "size": facts.size,
        "sha256": f"{{ {', '.join(f'0x{byte:02x}' for byte in digest)} }}",
        "parameters": "parameters" if parameters else "NULL",
        "parameter_count": parameters,
        "parameter_bytes": facts.parameter_bytes,
        "constants": "constants" if constants else "NULL",
        "constant_count": constants,
        "threads": facts.threads,
        "warps": facts.warps,
        "warps_requested": int(variant.options.get("num_warps", facts.warps)),
        "warp_size": facts.warp_size,
        "cluster": f"{{ {', '.join(map(str, facts.cluster))} }}",
        "cooperative": flag(facts.cooperative),
        "pdl": flag(facts.pdl),
        "shared_static": facts.shared_static,
        "shared_dynamic": facts.shared_dynamic,
        "global_scratch_bytes": facts.global_scratch_bytes,
        "global_scratch_align": facts.global_scratch_align,
        "profile_scratch_bytes": facts.profile_scratch_bytes,
        "profile_scratch_align": facts.profile_scratch_align,
        "registers": known(facts.registers),
        "scalar_registers": known(facts.scalar_registers),
        "spills": known(facts.spills),
        "stack": known(facts.stack),
        "ptx_isa": c_string(facts.ptx_isa),
        "grid": f"{{ {', '.join(c_string(expression.text) for expression in kernel.grid)} }}",
        "select": c_string(kernel.select.text if kernel.select else None),
    }


def _parameters(record: Record) -> list[dict[str, Any]]:
    return [
        {
            "name": c_string(argument.name if argument else parameter.role),
            "type": c_string(c_type(argument.type) if argument else "void *"),
            "role": parameter.role.upper(),
            "offset": parameter.offset,
            "size": parameter.size,
            "promise": (argument and argument.promise) or 0,
        }
        for argument, parameter in image_parameters(record)
    ]


def _constant_value(value: Value) -> str:
    return c_integer(int(value) if isinstance(value, int) and -(2**63) <= value < 2**63 else 0)


def _table_source(inventory: Inventory, library: str, target: str) -> str:
    return (
        environment()
        .get_template("c/table.c.j2")
        .render(
            library=library,
            table=c_names.table_symbol(library, target),
            target=c_string(target),
            symbols=[c_names.image_symbol(library, *image) for image in inventory.images if image[1] == target],
        )
    )


def _registry_source(inventory: Inventory, library: str, target: str | None) -> str:
    """The registry of the whole library, or of one target's archive, which refers to other targets' images weakly."""
    listed = [
        {"symbol": c_names.image_symbol(library, *image), "weak": target not in (None, image[1])}
        for image in inventory.images
    ]
    return environment().get_template("c/registry.c.j2").render(library=library, images=listed)


def _catalog_source(inventory: Inventory, library: str, target: str | None) -> str:
    """The same for variants and groups."""
    variants, groups = inventory.variants_for(target), inventory.groups_for(target)
    listed = [
        {"symbol": c_names.variant_symbol(library, name), "weak": name not in variants} for name in inventory.variants
    ]
    listed_groups = [
        {"symbol": c_names.group_symbol(library, name), "weak": name not in groups} for name, _ in inventory.groups
    ]
    return environment().get_template("c/catalog.c.j2").render(library=library, variants=listed, groups=listed_groups)
