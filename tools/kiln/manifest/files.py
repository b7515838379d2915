"""The files of one manifest: the first one and, after it, those that it includes; each read and checked by itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kiln.errors import ManifestError, Position
from kiln.files import read as read_bytes
from kiln.files import real as real_path
from kiln.manifest.compound_types import Key, Section
from kiln.manifest.paths import find_file
from kiln.manifest.schema import INCLUDED, TOP, VERSION
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, List, Map, Node, Scalar, describe
from kiln.manifest.yaml_tree import MAX_BYTES, read_yaml

_OF_KERNELS = ("source", "function", "function_table", "package")
"""keys that a map has which is meant as a kernel"""

_OTHER_VERSION = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True)
class ManifestFile:
    """One file, read and checked by itself."""

    path: Path
    """absolute"""
    folder: str
    """what its paths are relative to, relative itself to the first file's folder; empty for the same"""
    position: Position
    values: Mapping[str, Any]
    """each key of the format, with its default where the file does not give it"""
    entries: Mapping[str, Entry]
    """those that are given, for their positions"""
    defaults: Mapping[str, Any]
    """compiler options of its kernels: its own, over those of the files that include it"""

    def item_positions(self, key: str) -> tuple[Position, ...]:
        """Of the items of a list, or of the entries' values of a map, that stands under a key; none without it."""
        node = self.entries[key].value if key in self.entries else None
        if isinstance(node, List):
            return tuple(item.position for item in node.items)
        return tuple(entry.value.position for entry in node.entries) if isinstance(node, Map) else ()


def read_files(path: Path, only: Collection[str] | None = None) -> tuple[ManifestFile, ...]:
    """The manifest at `path` and all that it includes: a file, then those in its `include`, one after the other.

    With `only`, no kernels but these are read, nor checked, of files that were read whole as they stand.

    Positions name the first file as `path` is given, and the others by its folder. Raises ManifestError for what can be
    seen in one file, for a file that is not there, and for one that is included twice or by itself.
    """
    first = _read(path, str(path), "", TOP, {}, only)
    seen = {real_path(first.path): "the file that all begins with"}
    return (first, *_included(first, path, seen, only))


def _included(
    file: ManifestFile, first: Path, seen: dict[Path, str], only: Collection[str] | None
) -> Iterator[ManifestFile]:
    """What `file` includes, and what that includes; `first` is the first file as people gave it."""
    top = first.absolute().parent
    for name, position in zip(file.values["include"], file.item_positions("include"), strict=True):
        path = find_file(top / file.folder, name, position, "include", within=top)
        real = real_path(path)
        if real in seen:
            raise ManifestError(
                f"{show(name)} is included twice, or includes itself",
                where=position,
                expected="each file once",
                actual=f"it is {seen[real]}",
                remedy="remove one of the two",
            )
        seen[real] = f"included at {position}"
        relative = path.relative_to(top)
        folder = relative.parent.as_posix() if relative.parent.parts else ""
        inner = _read(path, str(first.parent / relative), folder, INCLUDED, file.defaults, only)
        yield inner
        yield from _included(inner, first, seen, only)


def _read(
    path: Path,
    shown: str,
    folder: str,
    keys: Mapping[str, Key],
    outer: Mapping[str, Any],
    only: Collection[str] | None,
) -> ManifestFile:
    root = read_yaml(_read_bytes(path), shown)
    if only is not None:
        root = _narrowed(root, only)
    _check_version(root)
    _check_keys(root, keys)
    values = with_defaults(Section(keys=keys).read(root, ""), keys)
    return ManifestFile(
        path=path.absolute(),
        folder=folder,
        position=root.position,
        values=values,
        entries=entries_of(root),
        defaults={**outer, **values["defaults"]},
    )


def _narrowed(root: Node, only: Collection[str]) -> Node:
    """The file without kernels but some: one stays where it has none of them, for there must be one."""
    if not isinstance(root, Map):
        return root
    entries = []
    for entry in root.entries:
        value = entry.value
        if entry.key.text == "kernels" and isinstance(value, Map):
            kept = tuple(each for each in value.entries if each.key.text in only)
            value = replace(value, entries=kept or value.entries[:1])
        entries.append(replace(entry, value=value))
    return replace(root, entries=tuple(entries))


def _read_bytes(path: Path) -> bytes:
    """The file's bytes, and one more than is allowed of a large one: its size is an error with a position."""
    try:
        return read_bytes(path, MAX_BYTES + 1)
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
    version = entries_of(root).get("version") if isinstance(root, Map) else None
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


def _check_keys(root: Node, keys: Mapping[str, Key]) -> None:
    """Keys in the wrong place are told apart from other unknown ones."""
    for name, entry in entries_of(root).items() if isinstance(root, Map) else ():
        if name in keys:
            continue
        is_kernel = isinstance(entry.value, Map) and not entries_of(entry.value).keys().isdisjoint(_OF_KERNELS)
        if name in TOP or is_kernel:
            raise ManifestError(
                f"the key {show(name)} cannot stand in a file that another one includes"
                if name in TOP
                else f"unknown key {show(name)} in the file",
                where=entry.key.position,
                expected=f"keys among {', '.join(keys)}",
                actual=f"{show(name)}, {describe(entry.value)}",
                remedy="write it in the file that includes this one"
                if name in TOP
                else "it looks like a kernel: indent it under `kernels:`",
            )


def with_defaults(values: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    """The value of every key."""
    return {name: values.get(name, key.default) for name, key in keys.items()}


def entries_of(node: Node) -> dict[str, Entry]:
    """A map's entries by key, for their positions; the map was read already."""
    assert isinstance(node, Map)
    return {entry.key.text: entry for entry in node.entries}
