"""Content digests: of bytes, of named parts, and of files through a stat cache. Never of a path or a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kiln.errors import Position

FileState = tuple[int, int, int]
"""size in bytes, mtime in ns, inode: while these stand still a file is taken to hold the same bytes"""


def digest_bytes(data: bytes) -> str:
    """sha256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """sha256 of plain data, independent of the order of keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode())


def digest_file(path: Path) -> str:
    """sha256 of a file's bytes, in hex. Raises OSError."""
    hasher = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


class FileDigests:
    """Digests of files that are read again only when size, mtime or inode moved.

    The compilers alone are 700 MB: hashing them takes a second, asking for their stat takes none. The table lives in
    the build's state; `learned` is what has to be written back there.
    """

    def __init__(self, known: Mapping[str, tuple[FileState, str]]) -> None:
        self._known = known
        self.learned: dict[str, tuple[FileState, str]] = {}

    def of(self, path: Path) -> str:
        """sha256 of the file's bytes. Raises OSError when it cannot be read."""
        stat = path.stat()
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        key = str(path)
        entry = self.learned.get(key) or self._known.get(key)
        if entry and entry[0] == state:
            return entry[1]
        digest = digest_file(path)
        self.learned[key] = (state, digest)
        return digest

    def of_all(self, paths: Mapping[str, Path]) -> str:
        """One digest over several files by name; a name says what a file is for, its path is left out."""
        return digest_json({name: self.of(path) for name, path in paths.items()})


def plain(value: Any) -> Any:
    """A declaration as plain data for `digest_json`: dataclasses become tables, and what is only a place is left out.

    Positions and absolute paths say where something was declared, not what: an inserted line above a kernel must not
    make anything stale.
    """
    if isinstance(value, Position | Path):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(str(plain(item)) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return repr(value)
