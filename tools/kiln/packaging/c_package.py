"""Records -> the C package: its public header, and the fixed runtime sources under the library's prefix."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kiln.errors import PackagingError
from kiln.manifest.expression import Expression, c_helpers
from kiln.manifest.model import Manifest
from kiln.packaging import c_names
from kiln.packaging.c_arguments import Field, argument_struct, expression_names
from kiln.packaging.c_text import c_comment
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
    description: Sequence[str]
    members: Sequence[_Member]
    grid: Sequence[str]
    grid_wide: Sequence[str]
    """members of 64 bits without a sign that the grid uses: they may be no int64_t"""
    select: str
    select_wide: Sequence[str]
    symbols: Sequence[str]


def render_header(records: Sequence[Record], manifest: Manifest, staging: Path) -> None:
    """Write the public headers and the runtime's sources: the files of `c_names.header_files`, relative to `staging`.

    `records` stand in order of declaration. Raises PackagingError when there are none, and when the images of a
    variant do not agree on its arguments.
    """
    if not records:
        raise PackagingError("there are no images to package", where=manifest.position, remedy="declare a kernel")
    library = manifest.library
    by_variant: dict[str, list[Record]] = {}
    for record in records:
        by_variant.setdefault(record.image.variant.id, []).append(record)
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
            variants=[_variant(library, group) for group in by_variant.values()],
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


def _variant(library: str, records: Sequence[Record]) -> _VariantView:
    first = records[0]
    variant = first.image.variant
    fields = argument_struct(records)
    names = expression_names(fields, first)

    def code(expression: Expression) -> str:
        unknown = sorted(expression.names - names.keys())
        if unknown:
            raise PackagingError(
                f"an expression names {', '.join(unknown)}, which no caller passes as an integer and no constant holds",
                where=expression.position,
                expected=f"integers among {', '.join(names) or 'the arguments, of which there are none'}",
                actual=expression.text,
                remedy="name an integer argument, a launch input or an integer constant",
            )
        return expression.to_c(names, _helper_prefix(library))

    def wide(*expressions: Expression | None) -> list[str]:
        used = frozenset[str]().union(*(expression.names for expression in expressions if expression))
        return [field.name for field in fields if field.type == "u64" and field.source in used]

    kernel = variant.kernel
    return _VariantView(
        id=variant.id,
        description=_description(first),
        members=[_member(field, kernel.tensors) for field in fields],
        grid=[code(expression) for expression in kernel.grid],
        grid_wide=wide(*kernel.grid),
        select=code(kernel.select) if kernel.select else "true",
        select_wide=wide(kernel.select),
        symbols=[c_names.image_symbol(library, variant.id, record.image.target) for record in records],
    )


def _description(record: Record) -> list[str]:
    variant = record.image.variant
    kernel = variant.kernel
    constants = ", ".join(f"{name} = {value}" for name, value in record.interface.constants.items())
    axes = ", ".join(f"{name} = {value}" for name, value in record.interface.axes.items())
    lines = [
        f"{variant.id}: kernel {kernel.key}, group {variant.group}, dtype {variant.dtype}, block {variant.block}",
        f"Function: {kernel.function} of {kernel.source_name}",
        f"Signature: {variant.signature.text}",
        f"Constants: {constants or 'none'}",
        *([f"Axes: {axes}"] if axes else []),
        f"Grid: {', '.join(expression.text for expression in kernel.grid)}",
        f"Serves a call when: {kernel.select.text if kernel.select else 'always'}",
    ]
    return [part for line in lines for part in textwrap.wrap(c_comment(line), _WIDTH, subsequent_indent="    ")]


def _member(field: Field, tensors: Mapping[str, Sequence[Expression]]) -> _Member:
    remarks = ["launch input, not passed to the kernel" if field.is_input else field.type]
    if field.source in tensors:
        remarks.append(f"[{', '.join(extent.text for extent in tensors[field.source])}]")
    if field.promise == 1:
        remarks.append("must be 1, which is compiled in")
    elif field.promise is not None:
        remarks.append(f"{'address' if field.type.startswith('*') else 'value'} must be a multiple of {field.promise}")
    space = "" if field.c_type.endswith("*") else " "
    return _Member(
        name=field.name,
        declaration=f"{field.c_type}{space}{field.name}",
        comment=c_comment(", ".join(remarks)),
        offset=field.offset,
        size=field.size,
    )
