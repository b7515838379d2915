"""kernels.yaml -> Manifest: the one entry to this room."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.expand import expand_images, expand_variants
from kiln.manifest.expression import Expression, parse_expression
from kiln.manifest.model import Kernel, Manifest
from kiln.manifest.names import fold
from kiln.manifest.paths import find_file
from kiln.manifest.pattern import check_pattern
from kiln.manifest.schema import KERNEL, OPTIONS, TOP, VERSION
from kiln.manifest.value_types import Key, Section
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, List, Map, Node, Scalar, describe
from kiln.manifest.yaml_tree import MAX_BYTES, read_yaml

MAX_IMAGES = 1_000_000
"""Far above what a library holds, and low enough that a slip, or a hostile file, cannot fill the memory."""

_OF_KERNELS = ("source", "function")
"""keys that a map has which is meant as a kernel"""

_OTHER_VERSION = re.compile(r"[0-9]{1,9}")


def load(path: Path) -> Manifest:
    """Read and check the manifest at `path`.

    Positions name the file as `path` is given. Raises ManifestError at the first thing that is wrong; it is complete
    but for what other files say: targets are names still, and nothing has looked into a kernel's source.
    """
    file = str(path)
    root = read_yaml(_read_bytes(path), file)
    _check_version(root)
    _check_indentation(root)
    top = _with_defaults(Section(keys=TOP).read(root, ""), TOP)
    entries = _entries(root)
    targets = entries["targets"].value
    assert isinstance(targets, List)
    absolute = path.absolute()
    target_positions = {name: item.position for name, item in zip(top["targets"], targets.items, strict=True)}
    kernels = _read_kernels(top, entries["kernels"].value, absolute.parent)
    _check_count(kernels)
    _check_targets(kernels, target_positions)
    variants = expand_variants(kernels)
    return Manifest(
        path=absolute,
        position=root.position,
        library=top["library"],
        targets=top["targets"],
        target_positions=target_positions,
        host=top["host"],
        kernels=kernels,
        variants=variants,
        images=expand_images(variants),
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
            remedy="run Kiln in the folder of kernels.yaml, correct the path, or start a project with `kiln init DIR`",
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


def _check_indentation(root: Node) -> None:
    """A kernel that stands beside `kernels`, not in it, is told apart from other unknown keys."""
    for name, entry in _entries(root).items() if isinstance(root, Map) else ():
        if (
            name not in TOP
            and isinstance(entry.value, Map)
            and not _entries(entry.value).keys().isdisjoint(_OF_KERNELS)
        ):
            raise ManifestError(
                f"unknown key {show(name)} in the file",
                where=entry.key.position,
                expected=f"keys among {', '.join(TOP)}",
                actual=f"{show(name)}, {describe(entry.value)}",
                remedy="it looks like a kernel: indent it under `kernels:`",
            )


def _read_kernels(top: Mapping[str, Any], node: Node, root: Path) -> tuple[Kernel, ...]:
    entries = _entries(node)
    seen: dict[str, str] = {}
    kernels = []
    for key, values in top["kernels"].items():
        first = seen.setdefault(fold(key), key)
        if first != key:
            raise ManifestError(
                f"the kernels '{first}' and '{key}' differ in upper and lower case only",
                where=entries[key].key.position,
                expected="names that differ in more than case",
                actual=f"the first is at line {entries[first].key.position.line}",
                remedy="rename one of them",
            )
        kernels.append(_read_kernel(key, entries[key], values, top, root))
    return tuple(kernels)


def _read_kernel(key: str, entry: Entry, given: Mapping[str, Any], top: Mapping[str, Any], root: Path) -> Kernel:
    values = _with_defaults(given, KERNEL)
    entries = _entries(entry.value)
    position = entry.key.position
    _check_tolerance(values, entries)
    positions = {name: own.key.position for name, own in entries.items()}
    for section in ("constants", "axes", "inputs"):
        if section in entries:
            named = _entries(entries[section].value)
            positions |= {f"{section}.{name}": own.key.position for name, own in named.items()}
    _check_variables(values, positions)
    for name, allowed in (("name", ("dtype", "block")), ("group", ("dtype", "block")), ("signature", ("dtype",))):
        if name in entries:
            check_pattern(values[name], (*allowed, *values["axes"]), entries[name].value.position)
    if values["reference"] is not None:
        file = values["reference"].rpartition(":")[0]
        find_file(root, file, entries["reference"].value.position, f"kernels.{key}.reference")
    return Kernel(
        key=key,
        position=position,
        positions=positions,
        source=find_file(root, values["source"], entries["source"].value.position, f"kernels.{key}.source"),
        source_name=values["source"],
        function=values["function"],
        dtypes=values["dtypes"],
        axes=values["axes"],
        blocks=values["blocks"],
        constants=values["constants"],
        exclude=values["exclude"],
        targets=_narrow_targets(key, values["targets"], entries, top["targets"]),
        name=values["name"],
        group=values["group"] if values["group"] is not None else _default_group(key, values["axes"]),
        signature=values["signature"],
        options=_merge_options(top["defaults"], values["options"]),
        inputs=values["inputs"],
        grid=_pad_grid(values["grid"]),
        select=values["select"],
        tensors=values["tensors"],
        reference=values["reference"],
        problems=values["problems"],
        tolerance=values["tolerance"],
    )


def _default_group(key: str, axes: Iterable[str]) -> str:
    """Variants with other values on an axis compute something else; those with other blocks compete."""
    return "_".join([key, "{dtype}", *(f"{{{axis}}}" for axis in axes)])


def _narrow_targets(
    key: str, given: tuple[str, ...] | None, entries: Mapping[str, Entry], library: tuple[str, ...]
) -> tuple[str, ...]:
    """The kernel's targets in the library's order."""
    if given is None:
        return library
    node = entries["targets"].value
    assert isinstance(node, List)
    for name, item in zip(given, node.items, strict=True):
        if name not in library:
            raise ManifestError(
                f"`kernels.{key}.targets` holds {show(name)}, which the library is not built for",
                where=item.position,
                expected=f"targets among {', '.join(library)}",
                actual=show(name),
                remedy=did_you_mean(name, library) or "add it to the library's `targets`, or remove it here",
            )
    return tuple(name for name in library if name in given)


def _check_targets(kernels: Iterable[Kernel], positions: Mapping[str, Position]) -> None:
    """A target has an archive and a table of its own, which cannot be empty."""
    used = {target for kernel in kernels for target in kernel.targets}
    for name, position in positions.items():
        if name not in used:
            raise ManifestError(
                f"no kernel is built for {show(name)}",
                where=position,
                expected="at least one kernel for each of the library's targets",
                actual="every kernel has `targets` of its own, without it",
                remedy="remove it here, or add it to the `targets` of a kernel",
            )


def _check_variables(values: Mapping[str, Any], positions: Mapping[str, Position]) -> None:
    """What expressions and parameters are named by has one meaning."""
    seen: dict[str, str] = {}
    for section, names in (
        ("blocks", values["blocks"][0].constants),
        ("axes", values["axes"]),
        ("constants", values["constants"]),
        ("inputs", values["inputs"]),
    ):
        for name in names:
            other = seen.setdefault(name, section)
            if other != section:
                raise ManifestError(
                    f"{show(name)} stands under `{other}` and under `{section}`",
                    where=positions[f"{section}.{name}"],
                    expected="one place that says what a name is",
                    actual=f"{show(name)} twice",
                    remedy=f"remove it from `{section}`, or from `{other}`",
                )


def _check_count(kernels: tuple[Kernel, ...]) -> None:
    images = 0
    for kernel in kernels:
        axes = math.prod(len(values) for values in kernel.axes.values())
        images += len(kernel.dtypes) * axes * len(kernel.blocks) * len(kernel.targets)
        if images > MAX_IMAGES:
            raise ManifestError(
                "the manifest declares too many images",
                where=kernel.position,
                expected=f"at most {MAX_IMAGES}",
                actual=f"{images} up to this kernel: dtypes x axes x blocks x targets",
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


def _pad_grid(grid: tuple[Expression, ...]) -> tuple[Expression, Expression, Expression]:
    """The grid in three dimensions. An extent that is a number from the start must be one that can be launched."""
    for extent in grid:
        if not extent.names and int(extent.evaluate({})) < 1:
            raise ManifestError(
                f"grid has an extent of {extent.evaluate({})}: nothing would ever be launched",
                where=extent.position,
                expected="1 or more, or an expression over arguments and inputs",
                actual=show(extent.text),
                remedy="write 1 for a dimension that the kernel does not use",
            )
    x, y, z = (*grid, *[parse_expression("1", grid[0].position)] * 2)[:3]
    return x, y, z


def _with_defaults(values: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    return {name: values.get(name, key.default) for name, key in keys.items()}


def _entries(node: Node) -> dict[str, Entry]:
    """A map's entries by key, for their positions; the map was read already."""
    assert isinstance(node, Map)
    return {entry.key.text: entry for entry in node.entries}
