"""kernels.yaml -> Manifest: the one entry to this room."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.files import FOR_ALL, asked_by
from kiln.manifest.budgets import check_targets, merge_budgets
from kiln.manifest.cuda import OPTIONS as CUDA_OPTIONS
from kiln.manifest.cuda import read_cuda
from kiln.manifest.expand import expand_images, expand_variants
from kiln.manifest.expression import Expression, parse_expression
from kiln.manifest.files import ManifestFile, entries_of, read_files, with_defaults
from kiln.manifest.from_source import (
    SourcePlace,
    SourceReader,
    autotuned_blocks,
    main_dtype,
    rows_of,
    table_blocks,
)
from kiln.manifest.model import NO_BLOCK, SIGNATURE_TEXT, Block, Kernel, Manifest
from kiln.manifest.names import fold
from kiln.manifest.onnxruntime import read_onnxruntime
from kiln.manifest.pattern import check_no_block, check_pattern, fill
from kiln.manifest.release import read_release_sizes
from kiln.manifest.schema import KERNEL, OPTIONS
from kiln.manifest.source_files import Folders, check_roots, find_source
from kiln.manifest.targets import LibraryTargets, NativeTargets, check_used, kernel_targets, library_targets
from kiln.manifest.text_checks import check_python_function
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, List, Scalar

T = TypeVar("T")

MAX_IMAGES = 1_000_000
"""Far above what a library holds, and low enough that a slip, or a hostile file, cannot fill the memory."""


def load(
    path: Path,
    reader: SourceReader | None = None,
    find_native: NativeTargets | None = None,
    only: Collection[str] | None = None,
    check_target: Callable[[str, Position], object] | None = None,
) -> Manifest:
    """Read and check the manifest at `path`.

    `reader` gives what it leaves to source files, `find_native` the targets of this machine; None refuses either.
    `check_target` raises ManifestError for what is no target, before anything else is held against the library's.
    With `only`, no kernels but these are made, for a manifest that was loaded whole as it stands: that its names differ
    is known, and what it leaves to sources is what they said then.

    Positions name the file as `path` is given. Raises ManifestError at the first thing that is wrong; it is complete
    but for what other files say: targets are names still, and nothing has looked into a kernel's source but for its
    configurations or its function table. Raises ClosureError for one of these that cannot be told.
    """
    files = read_files(path, only)
    top = files[0].values
    absolute = files[0].path
    library = library_targets(top["targets"], files[0].entries["targets"].value, find_native)
    if check_target is not None:
        for name, position in library.positions.items():
            check_target(name, position)
    check_roots(top["roots"], dict(zip(top["roots"], files[0].item_positions("roots"), strict=True)), absolute.parent)
    if not library.native:
        check_targets("budgets", files[0].entries.get("budgets"), library.names, "the library is")
    kernels = _read_kernels(files, reader, library, only)
    _check_count(kernels)
    variants = expand_variants(kernels)
    if only is None:
        check_used(variants, library.positions)
    return Manifest(
        path=absolute,
        files=tuple(file.path for file in files),
        position=files[0].position,
        library=top["library"],
        library_version=top["library_version"],
        crate=top["crate"],
        targets=library.names,
        target_positions=library.positions,
        native_position=library.native_position,
        host=top["host"],
        roots=top["roots"],
        environment=top["environment"],
        build=top["build"],
        build_position=files[0].entries["build"].value.position if "build" in files[0].entries else None,
        onnxruntime=read_onnxruntime(files[0], library, kernels if only is None else None),
        release_sizes=read_release_sizes(files[0], library),
        bundle_position=files[0].entries["bundle"].value.position if "bundle" in files[0].entries else None,
        kernels=kernels,
        variants=variants,
        images=expand_images(variants),
    )


def _read_kernels(
    files: Sequence[ManifestFile],
    reader: SourceReader | None,
    library: LibraryTargets,
    only: Collection[str] | None,
) -> tuple[Kernel, ...]:
    seen: dict[str, tuple[str, Position]] = {}
    kernels = []
    for file in files:
        entries = entries_of(file.entries["kernels"].value) if "kernels" in file.entries else {}
        for key, values in (file.values["kernels"] or {}).items():
            position = entries[key].key.position
            first, place = seen.setdefault(fold(key), (key, position))
            if place is not position:
                raise ManifestError(
                    f"the kernel '{key}' is declared twice"
                    if first == key
                    else f"the kernels '{first}' and '{key}' differ in upper and lower case only",
                    where=position,
                    expected="names that differ in more than case",
                    actual=f"the first is at {place}",
                    remedy="rename one of them",
                )
            if only is None or key in only:
                with asked_by(key):
                    kernels.append(_read_kernel(key, entries[key], values, file, files[0], reader, library))
    return tuple(kernels)


def _read_kernel(
    key: str,
    entry: Entry,
    given: Mapping[str, Any],
    file: ManifestFile,
    first: ManifestFile,
    reader: SourceReader | None,
    library: LibraryTargets,
) -> Kernel:
    values = with_defaults(given, KERNEL)
    entries = entries_of(entry.value)
    top = first.values
    node = entries["targets"].value if "targets" in entries else None
    targets = kernel_targets(key, values["targets"], node, library)
    asked = {name: library.positions[name] for name in targets}
    folders = Folders(top=first.path.parent, own=file.folder, roots=top["roots"])
    places = {name: own.value.position for name, own in entries.items()}
    cuda = read_cuda(key, values, entries)
    if cuda is None and "function" in entries:
        check_python_function(values["function"], places["function"])
    has_table = values["function_table"] is not None
    source = find_source("function_table" if has_table else "source", values, places, f"kernels.{key}", folders)
    place = SourcePlace(
        source=source.path,
        root=folders.top,
        roots=folders.roots,
        environment=top["environment"],
        where=source.position,
    )
    if has_table:
        values = {**values, **_of_table(key, values["function"], place, reader, asked)}
    else:
        values = {**values, **_of_patterns(key, values, entries, place, reader, asked), "source_name": source.name}
    if not library.native:
        # With native, kernels.yaml is borrowed from a library that is built for other targets.
        check_targets(f"kernels.{key}.budgets", entries.get("budgets"), targets, f"the kernel {show(key)} is")
    _check_tolerance(values, entries)
    _check_strides(values, entries)
    positions = _positions(values, entries)
    _check_variables(values, positions)
    return Kernel(
        key=key,
        position=entry.key.position,
        positions=positions,
        source=values["source"],
        source_name=values["source_name"],
        function=values["function"],
        dtypes=values["dtypes"],
        axes=values["axes"],
        blocks=values["blocks"],
        constants=values["constants"],
        exclude=values["exclude"],
        rows=values["rows"],
        targets=targets,
        name=values["name"],
        group=values["group"],
        signature=values["signature"],
        options=_merge_options(file.defaults, values["options"], OPTIONS if cuda is None else CUDA_OPTIONS),
        inputs=values["inputs"],
        grid=_pad_grid(values["grid"]),
        select=values["select"],
        tensors=values["tensors"],
        reference=_find_reference(key, values["reference"], places, folders),
        problems=values["problems"],
        tolerance=values["tolerance"],
        promises=values["promises"],
        cuda=cuda,
        budgets=merge_budgets(top["budgets"], values["budgets"], targets),
        strides=values["strides"],
        outputs=values["outputs"],
        any_values=values["any_values"],
        entry_names=_own_or(values["entry_names"], top["entry_names"]),
        debug=_own_or(values["debug"], top["debug"]),
        bundle=_own_or(values["bundle"], top["bundle"]),
    )


def _own_or(own: T | None, library: T) -> T:
    """A kernel's own word, or else the library's."""
    return library if own is None else own


def _of_table(
    key: str, function: str | None, place: SourcePlace, reader: SourceReader | None, targets: Mapping[str, Position]
) -> dict[str, Any]:
    """What the rows of a function table say of a kernel, by the names of Kernel's fields."""
    if reader is None:
        raise _no_reader("a function table", place)
    what = f"kernels.{key}.function_table"
    # Whoever knows the names of a kernel's variants, such as an outline, knows them by what all depend on.
    with asked_by(FOR_ALL):
        table = reader.function_table(place, targets)
    rows = rows_of(table, function, what, place.where)
    return {
        "source": rows[0].source,
        "source_name": rows[0].source_name,
        "function": rows[0].function,
        "dtypes": tuple(dict.fromkeys(main_dtype(row.signature) for row in rows)),
        "blocks": table_blocks(rows, what),
        "rows": rows,
        "name": "{block}",
        "group": "",
        "signature": "",
    }


def _of_patterns(
    key: str,
    values: Mapping[str, Any],
    entries: Mapping[str, Entry],
    place: SourcePlace,
    reader: SourceReader | None,
    targets: Mapping[str, Position],
) -> dict[str, Any]:
    """What the lists and patterns of a kernel's own say of it, by the names of Kernel's fields."""
    blocks: tuple[Block, ...] | None = values["blocks"]
    if blocks is None:
        tuned = dataclasses.replace(place, where=entries["blocks"].value.position)
        blocks = _read_autotune(key, values["function"], tuned, reader, targets)
    has_blocks = blocks != (NO_BLOCK,)
    own = ("dtype", "block") if has_blocks else ("dtype",)
    for name, allowed in (("name", own), ("group", own), ("signature", ("dtype",))):
        if name in entries:
            if not has_blocks and name != "signature":
                check_no_block(values[name], entries[name].value.position, f"kernels.{key}.{name}")
            check_pattern(values[name], (*allowed, *values["axes"]), entries[name].value.position)
    group = values["group"]
    return {
        "source": place.source,
        "blocks": blocks,
        "rows": (),
        "group": group if group is not None else _default_group(key, {**values, "blocks": blocks}),
    }


def _read_autotune(
    key: str, function: str, place: SourcePlace, reader: SourceReader | None, targets: Mapping[str, Position]
) -> tuple[Block, ...]:
    if reader is None:
        raise _no_reader("`blocks: autotune`", place)
    what = f"kernels.{key}.blocks"
    with asked_by(FOR_ALL):
        found = reader.configurations(place, function, targets)
    return autotuned_blocks(found, what, place.where, targets)


def _positions(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> dict[str, Position]:
    """The places of a kernel's keys; see Kernel.positions."""
    positions = {name: own.key.position for name, own in entries.items()}
    for section in ("constants", "axes", "inputs", "options"):
        if section in entries:
            named = entries_of(entries[section].value)
            positions |= {f"{section}.{name}": own.key.position for name, own in named.items()}
    signature = entries["signature"].value if "signature" in entries else None
    if isinstance(signature, Scalar) and signature.start is not None:
        positions[SIGNATURE_TEXT] = signature.start
    if values["problems"]:
        problems = entries["problems"].value
        assert isinstance(problems, List)
        for index, problem in enumerate(problems.items):
            positions |= {f"problems.{index}.{name}": own.key.position for name, own in entries_of(problem).items()}
    return positions


def _find_reference(key: str, written: str | None, places: Mapping[str, Position], folders: Folders) -> str | None:
    """The reference as it is named everywhere, once its file is there."""
    if written is None:
        return None
    path, _, function = written.rpartition(":")
    folders.find(path, places["reference"], f"kernels.{key}.reference")
    return f"{folders.name(path)}:{function}"


def _no_reader(what: str, place: SourcePlace) -> ManifestError:
    return ManifestError(
        f"{what} is read from a source file, and the manifest is looked at alone here",
        where=place.where,
        expected="a manifest that is complete in itself",
        actual=place.source.name,
        remedy="load it as a build does, with a reader of sources",
    )


def _default_group(key: str, values: Mapping[str, Any]) -> str:
    """Variants with other values on an axis compute something else; those with other blocks compete.

    A kernel without blocks often has the same pattern for `name`, and no group has the name of a variant.
    """
    group = "_".join([key, "{dtype}", *(f"{{{axis}}}" for axis in values["axes"])])
    choices = {"dtype": values["dtypes"], "block": [block.tag for block in values["blocks"]], **values["axes"]}
    # What has one value may stand in `name` as that value.
    words = {name: next(iter(each)) if len(each) == 1 else f"{{{name}}}" for name, each in choices.items()}
    return f"{group}_group" if fold(fill(group, words)) == fold(fill(values["name"], words)) else group


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
        dtypes = 1 if kernel.rows else len(kernel.dtypes)
        images += dtypes * axes * len(kernel.blocks) * len(kernel.promises) * len(kernel.targets)
        if images > MAX_IMAGES:
            raise ManifestError(
                "the manifest declares too many images",
                where=kernel.position,
                expected=f"at most {MAX_IMAGES}",
                actual=f"{images} up to this kernel: dtypes x axes x blocks x promises x targets",
                remedy="split the kernels over several libraries, or build fewer variants",
            )


def _check_tolerance(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
    for dtype in values["tolerance"]:
        if dtype not in values["dtypes"]:
            raise ManifestError(
                f"a tolerance for {dtype}, and the kernel has no variants of that dtype",
                where=entries_of(entries["tolerance"].value)[dtype].key.position,
                expected=f"dtypes among {', '.join(values['dtypes'])}",
                actual=dtype,
                remedy=f"remove it, or add {dtype} to `dtypes`",
            )


def _check_strides(values: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
    tensors: Mapping[str, Sequence[Expression]] = values["tensors"]
    for name, strides in values["strides"].items():
        entry = entries_of(entries["strides"].value)[name]
        if name not in tensors:
            raise ManifestError(
                f"strides for {name}, and `tensors` has no shape of it",
                where=entry.key.position,
                expected=f"a tensor among {', '.join(tensors)}" if tensors else "a shape of it under `tensors`",
                actual=name,
                remedy=did_you_mean(name, list(tensors)) or f"give {name} a shape under `tensors`",
            )
        if len(strides) != len(tensors[name]):
            raise ManifestError(
                f"{name} has a shape of {len(tensors[name])} and strides of {len(strides)} dimensions",
                where=entry.value.position,
                expected=f"a stride for each of [{', '.join(extent.text for extent in tensors[name])}]",
                actual=f"[{', '.join(stride.text for stride in strides)}]",
                remedy="write 1 for a dimension whose elements lie one after the other",
            )


def _merge_options(defaults: Mapping[str, Any], own: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The kernel's own over the manifest's defaults over the format's, as far as they are `known` to its language.

    They stand in the order of the table of options.
    """
    built_in = {name: option.default for name, option in OPTIONS.items() if option.default is not None}
    merged = {**built_in, **defaults, **own}
    return {name: merged[name] for name in OPTIONS if name in merged and name in known}


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
