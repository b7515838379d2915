"""manifest.json: what a release holds, file by file, and each image as a record, without a compiler to ask.

It is of level device itself. So it has digests of such files alone, and names the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kiln.binaries.facts import SUFFIX
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value
from kiln.packaging.arguments import image_parameters
from kiln.packaging.record import Record
from kiln.release.documents import Entry, Shape, read_json, schema_of, write_json
from kiln.release.names import BOM, BUILDINFO, LEVELS, MANIFEST, SUMS, Level, level_of
from kiln.release.plan import ReleasePlan

SCHEMA = 1

_ADDED = (BOM, BUILDINFO, SUMS)
"""the documents that are written after this one"""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A file as manifest.json lists it."""

    path: str
    level: Level
    size: int | None
    """bytes; like the digest, None for a file of level host"""
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class ReleaseManifest:
    """manifest.json, read."""

    library: str
    version: str
    part: tuple[str, ...]
    targets: tuple[str, ...]
    host: str
    levels: Mapping[str, str]
    """level -> what it means"""
    files: tuple[Listed, ...]
    """all but manifest.json itself, sorted by path"""
    records: tuple[Mapping[str, Any], ...]
    """in order of declaration; `_RECORD` has the keys"""


_RECORD: Shape = {
    "id": str,
    "variant": str,
    "kernel": str,
    "group": str,
    "target": str,
    "dtype": str,
    "block": str,
    "axes": {"*": object},
    "file": str,
    "sha256": str,
    "size": int,
    "kind": str,
    "arch": str,
    "entry": str,
    "signature": str,
    "arguments": [{"name": str, "type": str, "promise": int | None, "path": [int]}],
    "promises": {"*": int},
    "constants": {"*": object},
    "options": {"*": int | bool},
    "parameters": [{"name": str | None, "role": str, "offset": int, "size": int}],
    "parameter_bytes": int,
    "threads": int,
    "warps": int,
    "warp_size": int,
    "cluster": [int],
    "cooperative": bool,
    "pdl": bool,
    "shared": {"static": int, "dynamic": int},
    "scratch": {"*": {"bytes": int, "align": int}},
    "registers": int | None,
    "scalar_registers": int | None,
    "spills": int | None,
    "stack": int | None,
    "ptx_isa": str | None,
    "line_table": bool,
    "tools": {"*": str},
    "inputs": {"*": str},
    "grid": [str],
    "select": str | None,
    "tensors": {"*": [str]},
    "strides": {"*": [str]},
}
_SHAPE: Shape = {
    "schema": int,
    "library": str,
    "version": str,
    "part": [str],
    "targets": [str],
    "host": str,
    "levels": {"device": str, "host": str},
    "files": [{"path": str, "level": str, "size?": int, "sha256?": str}],
    "records": [_RECORD],
}


def write_manifest(plan: ReleasePlan, records: Sequence[Record], entries: Iterable[Entry]) -> str:
    """`entries` are the files that are no documents; those that come later are named among them."""
    files: dict[str, dict[str, object]] = {path: {"path": path, "level": level_of(path)} for path in _ADDED}
    for entry in entries:
        own: dict[str, object] = {"path": entry.path, "level": entry.level}
        files[entry.path] = own
        if entry.level == "device":
            own |= {"size": entry.size, "sha256": entry.sha256}
    return write_json(
        {
            "schema": SCHEMA,
            "library": plan.library,
            "version": plan.version,
            "part": list(plan.part),
            "targets": list(plan.targets),
            "host": plan.host,
            "levels": LEVELS,
            "files": [files[path] for path in sorted(files)],
            "records": [_record(record) for record in records],
        }
    )


def read_manifest(text: str) -> ReleaseManifest:
    """Raises ReleaseError for what `write_manifest` does not write."""
    data = read_json(text, _SHAPE, MANIFEST)
    schema_of(data, SCHEMA, MANIFEST)
    return ReleaseManifest(
        library=data["library"],
        version=data["version"],
        part=tuple(data["part"]),
        targets=tuple(data["targets"]),
        host=data["host"],
        levels=data["levels"],
        files=tuple(
            Listed(
                path=file["path"],
                level=cast(Level, file["level"]),
                size=file.get("size"),
                sha256=file.get("sha256"),
            )
            for file in data["files"]
        ),
        records=tuple(data["records"]),
    )


def image_file(record: Record) -> str:
    """Where an image is, in a release: images/sm_90a/softmax_fp16_2048.cubin."""
    image = record.image
    return f"images/{image.target}/{image.variant.id}{SUFFIX[record.facts.kind]}"


def _record(record: Record) -> dict[str, object]:
    image, facts, interface = record.image, record.facts, record.interface
    variant, kernel = image.variant, image.variant.kernel
    return {
        "id": image.id,
        "variant": variant.id,
        "kernel": kernel.key,
        "group": variant.group,
        "target": image.target,
        "dtype": variant.dtype,
        "block": variant.block,
        "axes": _values(variant.axes),
        "file": image_file(record),
        "sha256": facts.sha256,
        "size": facts.size,
        "kind": facts.kind,
        "arch": facts.arch,
        "entry": facts.entry,
        "signature": variant.signature.text,
        "arguments": [
            {"name": item.name, "type": item.type, "promise": item.promise, "path": list(item.path)}
            for item in interface.arguments
        ],
        "promises": {item.name: item.promise for item in interface.arguments if item.promise is not None},
        "constants": _values(record.constants),
        "options": dict(variant.options),
        "parameters": [
            {
                "name": argument.name if argument is not None else None,
                "role": parameter.role,
                "offset": parameter.offset,
                "size": parameter.size,
            }
            for argument, parameter in image_parameters(record)
        ],
        "parameter_bytes": facts.parameter_bytes,
        "threads": facts.threads,
        "warps": facts.warps,
        "warp_size": facts.warp_size,
        "cluster": list(facts.cluster),
        "cooperative": facts.cooperative,
        "pdl": facts.pdl,
        "shared": {"static": facts.shared_static, "dynamic": facts.shared_dynamic},
        "scratch": {
            "global": {"bytes": facts.global_scratch_bytes, "align": facts.global_scratch_align},
            "profile": {"bytes": facts.profile_scratch_bytes, "align": facts.profile_scratch_align},
        },
        "registers": facts.registers,
        "scalar_registers": facts.scalar_registers,
        "spills": facts.spills,
        "stack": facts.stack,
        "ptx_isa": facts.ptx_isa,
        "line_table": kernel.debug,
        "tools": dict(sorted(facts.tools.items())),
        "inputs": dict(kernel.inputs),
        "grid": [expression.text for expression in kernel.grid],
        "select": kernel.select.text if kernel.select is not None else None,
        "tensors": {name: [each.text for each in shape] for name, shape in kernel.tensors.items()},
        "strides": {name: [each.text for each in steps] for name, steps in kernel.strides.items()},
    }


def _values(values: Mapping[str, Value]) -> dict[str, object]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: Value) -> object:
    """A constant as JSON has it; what JSON has no word for as kernels.yaml has it, or by its name."""
    if isinstance(value, tuple):
        return [_value(member) for member in value]
    if isinstance(value, DTypeConstant):
        return {"dtype": value.name}
    if isinstance(value, FunctionConstant):
        return {"function": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value
