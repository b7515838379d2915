"""Records -> the C package: its public header, and the fixed runtime sources under the library's prefix."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kiln.errors import PackagingError
from kiln.manifest.constants import described
from kiln.manifest.expression import Expression, c_helpers
from kiln.manifest.model import Manifest
from kiln.packaging import c_names
from kiln.packaging.arguments import Member, SharedStruct, shared_structs
from kiln.packaging.c_text import c_comment, c_integer, c_type
from kiln.packaging.record import Record
from kiln.packaging.templates import environment

_RUNTIME = Path(__file__).parent / "runtime" / "c"
_WIDTH = 116


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One member of an argument struct, as the header shows it."""

    name: str
    declaration: str
    comment: str
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class _VariantView:
    """What the header says of one variant; texts are C."""

    id: str
    holds: str
    """the condition of its promises; empty when it has none"""
    promises: str
    """the same in words, with the constants that follow from them"""
    packed: Sequence[tuple[int, str]]
    """offset in the parameter buffer, member"""
    buffer_bytes: int
    symbols: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class _StructView:
    """What the header says of variants that share an argument struct; texts are C."""

    base: str
    description: Sequence[str]
    members: Sequence[_Member]
    grid: Sequence[str]
    grid_wide: Sequence[str]
    """members of 64 bits without a sign that the grid uses: they may be no int64_t"""
    select: str
    select_wide: Sequence[str]
    variants: Sequence[_VariantView]


def render_header(records: Sequence[Record], manifest: Manifest, staging: Path) -> None:
    """Write the public headers and the runtime's sources: the files of `c_names.header_files`, relative to `staging`.

    `records` stand in order of declaration. Raises PackagingError when there are none, and when the images of a
    variant do not agree on its arguments.
    """
    if not records:
        raise PackagingError("there are no images to package", where=manifest.position, remedy="declare a kernel")
    library = manifest.library
    built = {record.image.target for record in records}
    targets = [target for target in manifest.targets if target in built]
    header = (
        environment()
        .get_template("c/library.h.j2")
        .render(
            library=library,
            macro=c_names.macro_prefix(library),
            helpers=c_helpers(_helper_prefix(library)),
            tables=[c_names.table_symbol(library, target) for target in targets],
            structs=[_struct(library, shared) for shared in shared_structs(records)],
        )
    )
    _write(staging / c_names.library_header(library), header)
    for name, fixed in c_names.runtime_files(library).items():
        _write(staging / name, runtime_source(fixed, library))


@cache
def runtime_source(name: str, library: str) -> str:
    """A fixed source of the runtime, by its path below runtime/c, under the library's prefix.

    The sources are complete C for a library named kiln. Each `kiln_`, `KILN_` and `kiln/` becomes the library's own, so
    that what a debugger shows is what a compiler read, and two libraries live in one program.
    """
    text = (_RUNTIME / name).read_text("utf-8")
    text = text.replace("kiln_", f"{library}_").replace("KILN_", f"{c_names.macro_prefix(library)}_")
    return text.replace("<kiln/", f"<{library}/")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _helper_prefix(library: str) -> str:
    return f"{library}_expr_"


def _struct(library: str, shared: SharedStruct) -> _StructView:
    kernel, arguments = shared.kernel, shared.first
    values = {
        **{item.source: f"(int64_t)args->{item.name}" for item in arguments.members if item.is_integer},
        **{name: c_integer(value) for name, value in arguments.constants.items()},
    }

    def code(expression: Expression, key: str) -> str:
        arguments.check_names(expression, key, kernel)
        return expression.to_c(values, _helper_prefix(library))

    return _StructView(
        base=shared.base,
        description=_description(shared),
        members=[_member(item, shared) for item in arguments.members],
        grid=[code(expression, "grid") for expression in kernel.grid],
        grid_wide=[item.name for item in arguments.wide(kernel.grid)],
        select=code(kernel.select, "select") if kernel.select else "true",
        select_wide=[item.name for item in arguments.wide([kernel.select])],
        variants=[_variant(library, shared, variant) for variant in shared.variants],
    )


def _variant(library: str, shared: SharedStruct, variant: str) -> _VariantView:
    struct = shared.variants[variant]
    own = ", ".join(f"{name} = {described(value)}" for name, value in shared.own_constants(variant).items())
    return _VariantView(
        id=variant,
        holds=" && ".join(_holds(item) for item in struct.promised),
        promises=c_comment(", ".join(filter(None, [struct.promised_text, own and f"with {own}"]))),
        packed=[(item.parameter.offset, item.name) for item in struct.members if item.parameter],
        # C has no empty arrays.
        buffer_bytes=max(struct.buffer_bytes, 1),
        symbols=[c_names.image_symbol(library, variant, record.image.target) for record in shared.records[variant]],
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


def _member(member: Member, shared: SharedStruct) -> _Member:
    tensors = shared.kernel.tensors
    remarks = ["launch input, not passed to the kernel" if member.is_input else member.type]
    if member.source in tensors:
        remarks.append(f"[{', '.join(extent.text for extent in tensors[member.source])}]")
    word = c_type(member.type)
    return _Member(
        name=member.name,
        declaration=f"{word}{'' if word.endswith('*') else ' '}{member.name}",
        comment=c_comment(", ".join([*remarks, *shared.remarks(member.source)])),
        offset=member.offset,
        size=member.size,
    )
