"""A release as somebody has it: a tar or a folder, read as data of strangers, and what lies beside it.

Nothing is unpacked: files are read where they lie in the tar.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kiln.digests import digest_bytes
from kiln.errors import ReleaseError
from kiln.release.tar import read_tar

TAKE_ANEW = "do not use this release; get it again from who released it, or make it again: doit release"


class Files(Mapping[str, bytes]):
    """Path in the release -> bytes, which are read each time that they are asked for. Raises ReleaseError for a file
    that cannot be read."""

    def __init__(self, spans: Mapping[str, tuple[Path, int, int]]) -> None:
        self._spans = spans
        """path in the release -> the file that has it, from which byte, how many"""

    def __getitem__(self, name: str) -> bytes:
        path, offset, size = self._spans[name]
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(size)
        except OSError as error:
            raise ReleaseError(
                "a file of the release cannot be read", where=str(path), actual=error.strerror
            ) from error
        if len(data) != size:
            raise ReleaseError(
                "a file of the release ends too early",
                where=f"{path}: {name}",
                expected=f"{size} bytes",
                actual=str(len(data)),
            )
        return data

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._spans))

    def __len__(self) -> int:
        return len(self._spans)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return self._spans[name][2]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(size for _, _, size in self._spans.values())

    def digests(self) -> dict[str, str]:
        """Path in the release -> sha256, of all files."""
        return {name: digest_bytes(self[name]) for name in self}


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A release that can be read."""

    path: Path
    """the tar or the folder"""
    is_tar: bool
    files: Files
    faults: tuple[ReleaseError, ...]
    """what is wrong with entries: no file of the release is read through them"""

    @property
    def stem(self) -> str:
        """kernels-1.2.0: what the tar and all beside it are called after."""
        return self.path.name.removesuffix(".tar") if self.is_tar else self.path.name

    def beside(self, ending: str) -> Path:
        """The file beside it that belongs to it: `.intoto.json`, `.dsse.json`."""
        return self.path.with_name(f"{self.stem}{ending}")


def open_release(path: Path) -> Opened:
    """Read what a release holds. Raises ReleaseError where there is none."""
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            return _open_folder(path)
        return _open_tar(path)
    except OSError as error:
        raise ReleaseError(
            "there is no release",
            where=str(path),
            expected="a tar, or a folder, that doit release made",
            actual=error.strerror,
            remedy="name another path, or make it first: doit release",
        ) from error
    except tarfile.TarError as error:
        raise ReleaseError(
            "this is no tar", where=str(path), expected="an uncompressed tar", actual=str(error), remedy=TAKE_ANEW
        ) from error


def _open_folder(folder: Path) -> Opened:
    spans: dict[str, tuple[Path, int, int]] = {}
    faults: list[ReleaseError] = []
    for found, folders, names in os.walk(folder):
        for name in (*names, *folders):
            path = Path(found, name)
            state = path.lstat()
            inner = path.relative_to(folder).as_posix()
            if stat.S_ISREG(state.st_mode):
                spans[inner] = path, 0, state.st_size
            elif not stat.S_ISDIR(state.st_mode):
                faults.append(
                    ReleaseError(
                        "a release holds files and folders alone",
                        where=f"{folder}: {ascii(inner)[1:-1]}",
                        expected="a regular file",
                        actual="a symbolic link" if path.is_symlink() else "a file of another kind",
                        remedy=TAKE_ANEW,
                    )
                )
    return Opened(path=folder, is_tar=False, files=Files(spans), faults=tuple(faults))


def _open_tar(path: Path) -> Opened:
    spans: dict[str, tuple[Path, int, int]] = {}
    faults: list[ReleaseError] = []
    stem = path.name.removesuffix(".tar")
    try:
        packed = read_tar(path)
    except ReleaseError as error:
        # Where it names no entry, the first one that is packed otherwise does.
        actual = error.actual or _first_fault(path)
        faults.append(
            ReleaseError(error.what, where=error.where, expected=error.expected, actual=actual, remedy=error.remedy)
        )
    else:
        if packed.stem != stem:
            faults.append(
                ReleaseError(
                    "the tar is called otherwise than the folder in it",
                    where=str(path),
                    expected=f"{packed.stem}.tar",
                    actual=path.name,
                    remedy="give it its name back: the files beside it are called after it, too",
                )
            )
        stem = packed.stem
    with tarfile.open(path, "r:", encoding="utf-8") as tar:
        for entry in tar:
            parts = entry.name.split("/")
            if entry.isreg() and not entry.issparse() and parts[0] == stem and not {"", ".", ".."} & set(parts):
                spans[entry.name.removeprefix(f"{stem}/")] = path, entry.offset_data, entry.size
    return Opened(path=path, is_tar=True, files=Files(spans), faults=tuple(faults))


def _first_fault(path: Path) -> str | None:
    """The entry of a tar that is not packed as Kiln packs it; None where it is told otherwise."""
    at, seen = 0, set[str]()
    with tarfile.open(path, "r:", encoding="utf-8") as tar, path.open("rb") as file:
        for entry in tar.getmembers():
            if entry.name in seen:
                return f"{entry.name!a} is there twice, at byte {at} again"
            seen.add(entry.name)
            usual = tarfile.TarInfo(entry.name)
            usual.type, usual.mode, usual.size = entry.type, entry.mode, entry.size
            header = usual.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            file.seek(at)
            if file.read(len(header)) != header:
                return f"the header of {entry.name!a}, at byte {at}, has something else in it"
            file.seek(entry.offset_data + entry.size)
            padding = file.read(-entry.size % tarfile.BLOCKSIZE)
            at = entry.offset_data + entry.size + len(padding)
            if padding.strip(b"\0"):
                return f"something stands behind {entry.name!a}, before byte {at}"
        file.seek(at)
        if file.read().strip(b"\0"):
            return f"something stands behind the last entry, from byte {at} on"
    whole = -(-(at + 2 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
    return None if path.stat().st_size == whole else f"its end, from byte {at} on, has another length"
