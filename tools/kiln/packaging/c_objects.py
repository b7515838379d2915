"""Records, tables and the fixed runtime -> compiled objects, one for each thing that a program may link on its own.

A linker takes whole members out of an archive. So each image's record is an object of its own, beside the image's data:
naming one record links one image. They are separate translation units of one compiler call; a unit takes about 10 ms,
for it includes the fixed types alone and not the library's header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kiln.binaries.host_object import check_compiled_object
from kiln.errors import PackagingError
from kiln.manifest.constants import Value, described
from kiln.packaging import c_names
from kiln.packaging.arguments import image_parameters
from kiln.packaging.c_package import runtime_source
from kiln.packaging.c_text import c_integer, c_string, c_type
from kiln.packaging.host_tool import check_made, run_tool
from kiln.packaging.record import Record
from kiln.packaging.templates import environment
from kiln.stages import timed
from kiln.toolchain.hosts import HOSTS, Host

_FLAGS = ("-std=c99", "-O2", "-fPIC", "-g0")
"""Position-independent, for archives end up in shared libraries; without debug information, which holds paths."""


def make_records(records: Sequence[Record], library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile each image's record to `c_names.record_member` in `staging`, in one call of the compiler.

    Raises PackagingError when the compiler fails or what it made is not what was asked for.
    """
    units = {}
    for record in records:
        variant, target = record.image.variant.id, record.image.target
        symbol = c_names.image_symbol(library, variant, target)
        units[c_names.record_member(variant, target)] = (_record_source(record, library), symbol)
    with timed("cc"):
        _compile(units, library, host, cc, staging)


def make_tables(images: Sequence[tuple[str, str]], library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile what depends on names only: a table a target, the registries, and the fixed runtime.

    `images` are (variant, target) in order of declaration; what is written are the members `c_names.table_members`.
    Raises PackagingError when there are no images, when the compiler fails, or what it made is not what was asked for.
    """
    if not images:
        raise PackagingError("there are no images to package", where=library, remedy="declare a kernel")
    targets = dict.fromkeys(target for _, target in images)
    registry = f"{library}_registry"
    units = {c_names.registry_member(None): (_registry_source(images, library, None), registry)}
    for target in targets:
        symbol = c_names.table_symbol(library, target)
        units[c_names.table_member(target)] = (_table_source(images, library, target), symbol)
        units[c_names.registry_member(target)] = (_registry_source(images, library, target), registry)
    for member, symbol in c_names.runtime_members(library).items():
        units[member] = (runtime_source(f"src/{c_names.source_of(member)}", library), symbol)
    with timed("cc"):
        _compile(units, library, host, cc, staging)


def _compile(units: Mapping[str, tuple[str, str]], library: str, host: str, cc: Path, staging: Path) -> None:
    """Compile `units`, object name -> (C source, a symbol that it must define), into `staging`."""
    with TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        for name, fixed in c_names.runtime_files(library).items():
            if name.endswith(".h"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(runtime_source(fixed, library), "utf-8")
        for name, (source, _) in units.items():
            (folder / c_names.source_of(name)).write_text(source, "utf-8")
        # A list in a file: thousands of names do not fit a command line.
        (folder / "units").write_text("\n".join(c_names.source_of(name) for name in units), "utf-8")
        # Relative names only: the compiler writes a unit's name into its object.
        words = HOSTS[host]
        run_tool(
            cc,
            [*_FLAGS, words.protection_flag, "-I", "include", "-I", "src", "-c", "@units"],
            folder=folder,
            purpose=f"compile the tables of {library} for {host}",
            remedies=_remedies(words),
        )
        for name, (_, symbol) in units.items():
            check_made(
                folder / name,
                partial(check_compiled_object, defines=symbol, host=words),
                tool=cc,
                where=cc,
                remedy="see that the disk has space, and that CC is a C compiler such as gcc",
            )
        for name in units:
            (folder / name).replace(staging / name)


def _remedies(host: Host) -> dict[str, str]:
    """What to do about some words of a compiler: about a flag that it does not know, and headers that are not there."""
    package = host.package("libc6-dev")
    headers = f"install the headers of the C library for {host.triplet} (Debian, Ubuntu: apt-get install {package})"
    return {
        host.protection_flag: f"point CC to a recent gcc or clang for {host.triplet}, or unset CC; or correct `host` "
        "in kernels.yaml",
        "stdint.h: No such file": headers,
        "search for stdint.h": headers,
        "string.h: No such file": headers,
    }


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


def _table_source(images: Sequence[tuple[str, str]], library: str, target: str) -> str:
    return (
        environment()
        .get_template("c/table.c.j2")
        .render(
            library=library,
            table=c_names.table_symbol(library, target),
            target=c_string(target),
            symbols=[c_names.image_symbol(library, *image) for image in images if image[1] == target],
        )
    )


def _registry_source(images: Sequence[tuple[str, str]], library: str, target: str | None) -> str:
    """The registry of the whole library, or of one target's archive, which refers to other targets' images weakly."""
    listed = [
        {"symbol": c_names.image_symbol(library, *image), "weak": target not in (None, image[1])} for image in images
    ]
    return environment().get_template("c/registry.c.j2").render(library=library, images=listed)
