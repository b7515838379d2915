"""Records of one target, or of fat binaries -> header and archive for ONNX Runtime's loader of Triton kernels.

The archive holds one object with all images, since the loader finds them by dlsym: whatever is not linked whole is of
no use to it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kiln.errors import PackagingError
from kiln.manifest.model import FATBIN, OnnxRuntime
from kiln.packaging.archive import make_archive
from kiln.packaging.arguments import image_parameters
from kiln.packaging.c_compile import assemble_data
from kiln.packaging.c_text import c_comment, c_string, c_type
from kiln.packaging.objcopy import ALIGNMENT
from kiln.packaging.onnxruntime_format import (
    ARCHIVE,
    HEADER,
    INT,
    MEMBER,
    Content,
    common_obstacle,
    end_symbol,
    start_symbol,
)
from kiln.packaging.record import Record
from kiln.packaging.templates import environment
from kiln.stages import timed

_WIDTH = 116


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one row of the header is made of."""

    record: Record
    """the image; of a fat binary, the first in it, with which the others agree in all that a row says"""
    path: Path
    """the file with its bytes"""
    kind: Content


def fitting(records: Sequence[Record], declared: OnnxRuntime, bundles: Mapping[str, Path]) -> list[Row]:
    """Those of one target's records, or of those in fat binaries, that the format can say, in order.

    `bundles` are the files of the latter, by variant. Where the manifest lists kernels, each of them must be there, and
    fit. Raises PackagingError for one that does not, and when none is left.
    """
    fits = []
    there = {record.image.variant.kernel.key for record in records}
    for key in declared.kernels or ():
        if key not in there and not declared.is_bundled:
            raise PackagingError(
                f"`onnxruntime.kernels` holds {key}, which has no variant for {declared.target}",
                where=declared.position,
                expected="kernels with a variant for that target",
                actual=f"variants of {', '.join(there) or 'no kernel'}",
                remedy=f"remove {key} there, or give it a configuration for {declared.target}",
            )
    reasons = []
    for own in _by_variant(records) if declared.is_bundled else [[record] for record in records]:
        record, variant = own[0], own[0].image.variant
        name = variant.id if declared.is_bundled else record.image.id
        reason = common_obstacle([each.facts for each in own])
        reasons.append(f"{name}: {reason}")
        if reason is None and declared.is_bundled:
            fits.append(Row(record=record, path=bundles[variant.id], kind=FATBIN))
        elif reason is None:
            fits.append(Row(record=record, path=record.path, kind=record.facts.kind))
        elif declared.kernels is not None:
            kernel = variant.kernel
            row = next((row for row in kernel.rows if row.name == variant.block), None)
            raise PackagingError(
                f"ONNX Runtime cannot launch {name}: {reason}",
                where=row.position if row is not None else kernel.position,
                expected="a plain launch of whole warps, without scratch memory",
                actual=f"{kernel.key} stands under `onnxruntime.kernels`",
                remedy="take the row out of its table, or change what it asks the compiler for"
                if row is not None
                else f"remove {kernel.key} there, or declare its variants that fit as a kernel of their own",
            )
    if not fits:
        raise PackagingError(
            f"none of the library's kernels {_meant(declared)} can be launched by ONNX Runtime",
            where=declared.position,
            expected="at least one with a plain launch of whole warps, without scratch memory",
            actual="; ".join(dict.fromkeys(reasons[:4])) or "no images",
            remedy="remove `onnxruntime`, or add a kernel that fits",
        )
    return fits


def _by_variant(records: Sequence[Record]) -> list[list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.image.variant.id, []).append(record)
    return list(found.values())


def _meant(declared: OnnxRuntime) -> str:
    return "in fat binaries" if declared.is_bundled else f"for {declared.target}"


def render_infos(rows: Sequence[Row], library: str, declared: OnnxRuntime, staging: Path) -> None:
    """Write the header with its rows, which all fit."""
    records = [row.record for row in rows]
    text = (
        environment()
        .get_template("onnxruntime/triton_kernel_infos.h.j2")
        .render(library=library, meant=_meant(declared), layouts=_layouts(records), rows=[_row(row) for row in rows])
    )
    path = staging / HEADER
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def make_infos_archive(rows: Sequence[Row], host: str, cc: Path, ar: Path, staging: Path) -> None:
    """Write the archive with the images of the `rows`, each between its two symbols.

    Raises PackagingError when the compiler or ar fails, or what they made is not what was asked for.
    """
    with TemporaryDirectory(dir=staging) as scratch:
        folder = Path(scratch)
        data = bytearray()
        symbols: dict[str, int] = {}
        parts = []
        for number, row in enumerate(rows):
            content = row.path.read_bytes()
            is_text = row.kind == "ptx"
            data += bytes(-len(data) % ALIGNMENT)
            variant, kind = row.record.image.variant.id, row.kind
            symbols[start_symbol(variant, kind)] = len(data)
            # Drivers read PTX as a string.
            data += content + bytes(is_text)
            symbols[end_symbol(variant, kind)] = len(data)
            # Links with names of our own: whatever an image's path is, no assembler has to read it.
            (folder / str(number)).symlink_to(row.path.absolute())
            parts += _embedded(start_symbol(variant, kind), end_symbol(variant, kind), str(number), is_text=is_text)
        purpose = f"make an object of the images for ONNX Runtime for {host}"
        assemble_data(parts, MEMBER, symbols, bytes(data), host=host, cc=cc, folder=folder, purpose=purpose)
        path = staging / ARCHIVE
        path.parent.mkdir(parents=True, exist_ok=True)
        with timed("ar"):
            make_archive([(MEMBER, folder / MEMBER)], ar, path.parent, path.name)


def _embedded(start: str, end: str, file: str, *, is_text: bool) -> list[str]:
    """Lines of assembly that put a file between two symbols."""
    return [
        f".balign {ALIGNMENT}",
        *(f".globl {symbol}" for symbol in (start, end)),
        f".type {start}, %object",
        f"{start}:",
        f'.incbin "{file}"',
        *([".byte 0"] if is_text else []),
        f"{end}:",
        f".size {start}, {end} - {start}",
    ]


def _row(row: Row) -> dict[str, str | int]:
    """One row of the table; texts are C++."""
    record = row.record
    variant, facts = record.image.variant, record.facts
    integers = {name: int(value) for name, value in record.interface.constants.items() if isinstance(value, int)}
    return {
        "start": c_string(start_symbol(variant.id, row.kind)),
        "entry": c_string(facts.entry),
        "group": c_string(variant.group),
        "name": c_string(variant.id),
        "warps": facts.warps,
        "shared": facts.shared_dynamic,
        "constants": ", ".join(
            f"{{ {c_string(name)}, {value}}}" for name, value in integers.items() if INT[0] <= value <= INT[1]
        ),
    }


def _layouts(records: Sequence[Record]) -> Iterator[str]:
    """Lines that say what launches pass: those of groups or, where variants of a group differ, of variants."""
    groups: dict[str, dict[str, list[str]]] = {}
    for record in records:
        variant = record.image.variant
        groups.setdefault(variant.group, {}).setdefault(_layout(record), []).append(variant.id)
    passed: dict[str, list[str]] = {}
    for group, layouts in groups.items():
        for layout, variants in layouts.items():
            passed.setdefault(layout, []).extend([group] if len(layouts) == 1 else variants)
    for layout, names in passed.items():
        yield from textwrap.wrap(c_comment(f"{', '.join(names)}: {layout}"), _WIDTH, subsequent_indent="    ")


def _layout(record: Record) -> str:
    words = [
        f"{c_type(argument.type) if argument else 'void *'} {argument.name if argument else parameter.role} at "
        f"{parameter.offset}"
        for argument, parameter in image_parameters(record)
    ]
    return f"{', '.join([*words, ''])}{record.facts.parameter_bytes} bytes".replace("* ", "*")
