"""The tar of a release: not compressed, and the same bytes for the same files, whoever packs them, when and where.

Entries are sorted by path, folders before what is in them; they are of no owner and no time, with mode 0644, and 0755
for folders. The format is ustar, with an extended header of PAX where a path is too long for it.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from kiln.errors import ReleaseError, os_failure
from kiln.release.names import check_paths

FILE_MODE, FOLDER_MODE = 0o644, 0o755

_REMEDY = "take the tar anew from where it was published"


def write_tar(folder: Path, stem: str, output: Path) -> None:
    """Pack the files below `folder` under the folder `stem`. Raises OSError, and ReleaseError for a link among them."""
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ReleaseError("a release holds files and folders alone", where=str(path), remedy="remove it")
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    with output.open("xb") as file:
        _pack(files, stem, file)


def _pack(files: Mapping[str, Any], stem: str, output: IO[bytes] | _Digest) -> None:
    """`files` are paths, or members of another tar."""
    folders = {"/".join(parts[:end]) for parts in (name.split("/") for name in files) for end in range(1, len(parts))}
    names = {stem: None, **{f"{stem}/{name}": None for name in folders}}
    names |= {f"{stem}/{name}": file for name, file in files.items()}
    with tarfile.open(fileobj=output, mode="w:", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for name in sorted(names):
            entry, file = tarfile.TarInfo(name), names[name]
            if file is None:
                entry.type, entry.mode = tarfile.DIRTYPE, FOLDER_MODE
                tar.addfile(entry)
                continue
            entry.mode = FILE_MODE
            with file.open("rb") as data:
                entry.size = data.seek(0, io.SEEK_END)
                data.seek(0)
                tar.addfile(entry, data)


@dataclass(frozen=True, kw_only=True)
class Packed:
    """What a tar holds."""

    stem: str
    """the folder that all is in"""
    files: tuple[str, ...]
    """paths in that folder, in order"""


@dataclass(frozen=True, kw_only=True)
class _Member:
    """A file in a tar, to be read like one on the disk."""

    tar: tarfile.TarFile = field(repr=False)
    entry: tarfile.TarInfo

    def open(self, _: str) -> IO[bytes]:
        found = self.tar.extractfile(self.entry)
        assert found is not None  # it is a file
        return found


class _Digest(io.RawIOBase):
    """Takes what is written, and keeps its digest."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.sha256.update(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at


def read_tar(path: Path, into: Path | None = None) -> Packed:
    """What a tar holds; with `into`, an empty folder, its files are written there.

    Nothing is taken over but names and contents: no mode, no link, and no path that leads out. Raises ReleaseError for
    a tar that is not, byte by byte, what `write_tar` makes of the files in it.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            tar = stack.enter_context(tarfile.open(fileobj=file, mode="r:", encoding="utf-8"))
            entries = tar.getmembers()
        except tarfile.TarError as error:
            raise _fault(path, "", f"it is no tar, or a damaged one: {error}") from error
        except OSError as error:
            raise os_failure("a tar cannot be read", error, path) from error
        stem = entries[0].name if entries else ""
        files: dict[str, Any] = {}
        for entry in entries:
            _check_entry(path, entry, stem)
            if entry.isfile():
                files[entry.name.removeprefix(f"{stem}/")] = _Member(tar=tar, entry=entry)
        check_paths(files)
        again = _Digest()
        try:
            _pack(files, stem, again)
        except (tarfile.TarError, OSError) as error:
            raise _fault(path, "", f"it is damaged: {error}") from error
        file.seek(0)
        if hashlib.file_digest(file, "sha256").digest() != again.sha256.digest():
            names = [entry.name for entry in entries]
            unsorted = next((later for name, later in pairwise(names) if later < name), None)
            if unsorted is not None:
                raise _fault(path, unsorted, "the entries are not in the order of their paths")
            raise _fault(path, "", "its headers or what is between its files are not as Kiln writes them")
        if into is not None:
            for name, member in files.items():
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                with member.open("rb") as source, (into / name).open("xb") as target:
                    shutil.copyfileobj(source, target)
        return Packed(stem=stem, files=tuple(files))


def _check_entry(path: Path, entry: tarfile.TarInfo, stem: str) -> None:
    parts = entry.name.split("/")
    if parts[0] != stem or {"", ".", ".."} & set(parts):
        raise _fault(path, entry.name, "the path leads out of the folder that the tar begins with", expected=stem)
    if not (entry.isdir() or entry.type == tarfile.REGTYPE):
        raise _fault(path, entry.name, "it is neither a file nor a folder")
    for what, actual, expected in (
        ("mode", f"{entry.mode:04o}", f"{FOLDER_MODE if entry.isdir() else FILE_MODE:04o}"),
        ("time", str(entry.mtime), "0"),
        ("owner", f"{entry.uid} {entry.uname}".strip(), "0"),
        ("group", f"{entry.gid} {entry.gname}".strip(), "0"),
    ):
        if actual != expected:
            raise _fault(path, entry.name, f"it has the {what} of a file of somebody", expected=expected, actual=actual)


def _fault(
    path: Path, entry: str, what: str, *, expected: str | None = None, actual: str | None = None
) -> ReleaseError:
    return ReleaseError(
        f"the tar is not as Kiln writes it: {what}",
        where=f"{path}: {entry!a}" if entry else str(path),
        expected=expected,
        actual=actual,
        remedy=_REMEDY,
    )
