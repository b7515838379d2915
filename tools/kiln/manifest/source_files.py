"""Where a kernel's source lies: below the file that declares it, below a declared root, or in an installed package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.files import exists, is_dir, real
from kiln.manifest import installed
from kiln.manifest.paths import find_file
from kiln.manifest.wording import show


@dataclass(frozen=True, kw_only=True)
class Source:
    """The file that a kernel is in."""

    path: Path
    """absolute"""
    name: str
    """what the file is called on every machine: `kernels/softmax.py`, `../third_party/flash/ops/x.py` or
    `site-packages/liger_kernel/ops/x.py`"""
    position: Position
    """of the key that names it"""


@dataclass(frozen=True, kw_only=True)
class Folders:
    """What paths in one manifest file are relative to."""

    top: Path
    """the folder of the first manifest file, which is the project's"""
    own: str
    """the folder of the file at hand, relative to it; empty for the same"""
    roots: Mapping[str, str]
    """name -> folder, relative to `top`"""

    def name(self, text: str) -> str:
        """A path in the file at hand, relative to the project's folder."""
        return f"{self.own}/{text}" if self.own else text

    def find(self, text: str, position: Position, what: str) -> Path:
        """The file of a path in the file at hand. Raises ManifestError."""
        return find_file(self.top / self.own, text, position, what, within=self.top)


def find_source(
    word: str, values: Mapping[str, Any], positions: Mapping[str, Position], what: str, folders: Folders
) -> Source:
    """The file that a kernel's key `word`, `source` or `function_table`, names, or its `package`.

    `positions` has the place of each given key's value; `what` is the kernel's dotted path. Raises ManifestError.
    """
    if values["package"] is not None:
        return _find_installed(values["package"], positions["package"], f"{what}.package", folders)
    text, position = values[word], positions[word]
    root = values["root"]
    if root is None:
        return Source(path=folders.find(text, position, f"{what}.{word}"), name=folders.name(text), position=position)
    if root not in folders.roots:
        raise ManifestError(
            f"`{what}.root` names no root: {show(root)}",
            where=positions["root"],
            expected=f"one of {', '.join(folders.roots)}"
            if folders.roots
            else "a root, and the manifest declares none",
            actual=show(root),
            remedy=did_you_mean(root, folders.roots) or f"declare it: `roots: {{{root}: path/of/the/folder}}`",
        )
    folder = folders.roots[root]
    path = find_file(real(folders.top / folder), text, position, f"{what}.{word}", folder=f"the root {show(root)}")
    return Source(path=path, name=f"{folder}/{text}", position=position)


def check_roots(roots: Mapping[str, str], positions: Mapping[str, Position], top: Path) -> None:
    """Refuse a root that is no folder, or is the project's own under another name. Raises ManifestError."""
    seen: dict[Path, str] = {}
    for name, text in roots.items():
        folder = real(top / text)
        why, remedy = None, "correct the path"
        if not is_dir(folder):
            why = "no folder is there" if not exists(folder) else "it is no folder"
        elif folder == real(top):
            why, remedy = "it is the manifest's own folder", "remove it; files there need no root"
        elif text.startswith("..") and folder.is_relative_to(real(top)):
            # A file has one name, whichever way leads to it.
            why, remedy = "it leads back into the manifest's folder", f"write {folder.relative_to(real(top))}"
        elif folder in seen:
            why, remedy = f"it is the root {show(seen[folder])}, too", "remove one of them"
        if why is not None:
            raise ManifestError(
                f"{show(text)} cannot be `roots.{name}`: {why}",
                where=positions[name],
                expected="a folder with Python files, each under one root",
                actual=str(folder),
                remedy=remedy,
            )
        seen[folder] = name


def _find_installed(dotted: str, position: Position, what: str, folders: Folders) -> Source:
    parts = tuple(dotted.split("."))
    places = installed.search_path([folders.top, *(real(folders.top / root) for root in folders.roots.values())])
    path = installed.find_module(parts, places)
    if path is not None:
        folder = next(place for place in places if path.is_relative_to(place))
        return Source(path=path, name=f"{installed.FOLDER}/{path.relative_to(folder).as_posix()}", position=position)
    never = installed.why_never(parts[0])
    if never is not None:
        raise ManifestError(
            f"`{what}` cannot be a module of {parts[0]}: {never}",
            where=position,
            expected="a module that defines a Triton kernel, such as liger_kernel.ops.softmax",
            actual=show(dotted),
            remedy="copy the kernel into a file of the project, and name that under `source`",
        )
    if not installed.find_package(parts[0], places):
        why = f"there is no package {parts[0]} with Python files"
        remedy = f"install {parts[0]} into the Python that runs Kiln, or correct the name"
    else:
        above = [parts[:depth] for depth in range(1, len(parts)) if installed.find_folder(parts[:depth], places)]
        inner = above[-1] if above else parts[:1]
        why = f"{'.'.join(inner)} has no such module in Python"
        near = did_you_mean(parts[min(len(inner), len(parts) - 1)], installed.modules(inner, places))
        remedy = near or "name the module that defines the kernel"
    raise ManifestError(
        f"`{what}` is not installed: {why}",
        where=position,
        expected="the dotted name of an installed module written in Python, such as liger_kernel.ops.softmax",
        actual=show(dotted),
        remedy=remedy,
    )
