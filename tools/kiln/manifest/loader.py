"""kernels.yaml -> Manifest: the one entry to this room."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kiln.errors import ManifestError, Position
from kiln.manifest.expand import expand_images, expand_variants
from kiln.manifest.expression import Expression, parse_expression
from kiln.manifest.model import Kernel, Manifest
from kiln.manifest.names import fold
from kiln.manifest.paths import find_file
from kiln.manifest.schema import KERNEL, OPTIONS, TOP, VERSION
from kiln.manifest.value_types import Key, Section
from kiln.manifest.yaml_nodes import Entry, List, Map, Node, Scalar
from kiln.manifest.yaml_tree import MAX_BYTES, read_yaml

MAX_IMAGES = 1_000_000
"""Far above what a library holds, and low enough that a slip, or a hostile file, cannot fill the memory."""

_OTHER_VERSION = re.compile(r"[0-9]{1,9}")


def load(path: Path) -> Manifest:
    """Read and check the manifest at `path`.

    Positions name the file as `path` is given. Raises ManifestError at the first thing that is wrong; it is complete
    but for what other files say: targets are names still, and nothing has looked into a kernel's source.
    """
    file = str(path)
    root = read_yaml(_read_bytes(path), file)
    _check_version(root)
    top = _with_defaults(Section(keys=TOP).read(root, ""), TOP)
    entries = _entries(root)
    targets = entries["targets"].value
    assert isinstance(targets, List)
    absolute = path.absolute()
    kernels = _read_kernels(top["kernels"], entries["kernels"].value, top["defaults"], absolute.parent)
    _check_count(kernels, len(targets.items))
    variants = expand_variants(kernels)
    return Manifest(
        path=absolute,
        position=root.position,
        library=top["library"],
        targets=top["targets"],
        target_positions={name: item.position for name, item in zip(top["targets"], targets.items, strict=True)},
        host=top["host"],
        kernels=kernels,
        variants=variants,
        images=expand_images(variants, top["targets"]),
    )


def _read_bytes(path: Path) -> bytes:
    """The file's bytes, and one more than is allowed of a large one: its size is an error with a position."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ManifestError(
            "the manifest does not exist",
            where=str(path),
            expected="a file that declares kernels",
            actual="nothing there",
            remedy="run Kiln in the folder of kernels.yaml, or correct the path",
        ) from None
    except OSError as error:
        raise ManifestError("the manifest cannot be read", where=str(path), actual=error.strerror) from None


def _check_version(root: Node) -> None:
    """A file of another version may have other keys, so its version is what to tell first."""
    version = _entries(root).get("version") if isinstance(root, Map) else None
    if version is None or not isinstance(version.value, Scalar) or not _OTHER_VERSION.fullmatch(version.value.text):
        return
    if int(version.value.text) != VERSION:
        raise ManifestError(
            "the file has another version than this Kiln reads",
            where=version.value.position,
            expected=f"version {VERSION}",
            actual=f"version {version.value.text}",
            remedy="use the Kiln that the file was written for, or rewrite it",
        )


def _read_kernels(
    declared: Mapping[str, Mapping[str, Any]], node: Node, defaults: Mapping[str, Any], root: Path
) -> tuple[Kernel, ...]:
    entries = _entries(node)
    seen: dict[str, str] = {}
    kernels = []
    for key, values in declared.items():
        first = seen.setdefault(fold(key), key)
        if first != key:
            raise ManifestError(
                f"the kernels '{first}' and '{key}' differ in upper and lower case only",
                where=entries[key].key.position,
                expected="names that differ in more than case",
                actual=f"the first is at line {entries[first].key.position.line}",
                remedy="rename one of them",
            )
        kernels.append(_read_kernel(key, entries[key], values, defaults, root))
    return tuple(kernels)


def _read_kernel(key: str, entry: Entry, given: Mapping[str, Any], defaults: Mapping[str, Any], root: Path) -> Kernel:
    values = _with_defaults(given, KERNEL)
    entries = _entries(entry.value)
    position = entry.key.position
    _check_tolerance(values, entries)
    if values["reference"] is not None:
        file = values["reference"].rpartition(":")[0]
        find_file(root, file, entries["reference"].value.position, f"kernels.{key}.reference")
    return Kernel(
        key=key,
        position=position,
        positions={name: own.key.position for name, own in entries.items()},
        source=find_file(root, values["source"], entries["source"].value.position, f"kernels.{key}.source"),
        source_name=values["source"],
        function=values["function"],
        dtypes=values["dtypes"],
        blocks=values["blocks"],
        name=values["name"],
        group=values["group"] if values["group"] is not None else f"{key}_{{dtype}}",
        signature=values["signature"],
        options=_merge_options(defaults, values["options"]),
        inputs=values["inputs"],
        grid=_pad_grid(values["grid"], entries["grid"].value.position if "grid" in entries else position),
        select=values["select"],
        tensors=values["tensors"],
        reference=values["reference"],
        problems=values["problems"],
        tolerance=values["tolerance"],
    )


def _check_count(kernels: tuple[Kernel, ...], targets: int) -> None:
    images = 0
    for kernel in kernels:
        images += len(kernel.dtypes) * len(kernel.blocks) * targets
        if images > MAX_IMAGES:
            raise ManifestError(
                "the manifest declares too many images",
                where=kernel.position,
                expected=f"at most {MAX_IMAGES}",
                actual=f"{images} up to this kernel: dtypes x blocks x targets",
                remedy="split the kernels over several libraries, or build fewer variants",
            )


def _check_tolerance(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
    for dtype in values["tolerance"]:
        if dtype not in values["dtypes"]:
            raise ManifestError(
                f"a tolerance for {dtype}, and the kernel has no variants of that dtype",
                where=_entries(entries["tolerance"].value)[dtype].key.position,
                expected=f"dtypes among {', '.join(values['dtypes'])}",
                actual=dtype,
                remedy=f"remove it, or add {dtype} to `dtypes`",
            )


def _merge_options(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The kernel's own over the manifest's defaults over the format's; in the order of the table of options."""
    built_in = {name: option.default for name, option in OPTIONS.items() if option.default is not None}
    merged = {**built_in, **defaults, **own}
    return {name: merged[name] for name in OPTIONS if name in merged}


def _pad_grid(grid: tuple[Expression, ...], position: Position) -> tuple[Expression, Expression, Expression]:
    one = parse_expression("1", position)
    x, y, z = (*grid, one, one, one)[:3]
    return x, y, z


def _with_defaults(values: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    return {name: values.get(name, key.default) for name, key in keys.items()}


def _entries(node: Node) -> dict[str, Entry]:
    """A map's entries by key, for their positions; the map was read already."""
    assert isinstance(node, Map)
    return {entry.key.text: entry for entry in node.entries}
