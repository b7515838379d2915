"""Content digests: of bytes, of named parts, and of files through a stat cache. Never of a path or a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from kiln.errors import Position

FileState = tuple[int, int, int, int]
"""size in bytes, mtime in ns, inode, ctime in ns: while these stand still a file is taken to hold the same bytes"""

_SETTLED = 100_000_000
"""ns: the clock of a file system ticks in steps of some ms, so a younger file may change and keep its time stamps"""


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
    """Digests of files that are read again only when size, a time stamp or the inode moved.

    The compilers alone are 700 MB: hashing them takes a second, asking for their stat takes none. The table lives in
    the build's state; `learned` is what has to be written back there.
    """

    def __init__(self, known: Mapping[str, tuple[FileState, str]]) -> None:
        self._known = known
        self.learned: dict[str, tuple[FileState, str]] = {}

    def of(self, path: Path) -> str:
        """sha256 of the file's bytes. Raises OSError when it cannot be read."""
        stat = path.stat()
        # ctime, which nobody can set, tells when a file is replaced by one of the same size and with an old mtime.
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns)
        key = str(path)
        entry = self.learned.get(key) or self._known.get(key)
        if entry and entry[0] == state:
            return entry[1]
        settled = abs(time.time_ns() - stat.st_ctime_ns) > _SETTLED
        digest = digest_file(path)
        if settled:
            self.learned[key] = (state, digest)
        return digest

    def of_all(self, paths: Mapping[str, Path]) -> str:
        """One digest over several files by name; a name says what a file is for, its path is left out."""
        return digest_json({name: self.of(path) for name, path in paths.items()})


def plain(value: Any) -> Any:
    """A declaration as plain data for `digest_json`: dataclasses become tables, and what is only a place is left out.

    Positions and paths say where something was declared, not what: an inserted line above a kernel must not make
    anything stale. The order of a mapping counts, for the order of declaration is the order of output. Raises TypeError
    for what has no text that stays the same from one run to the next.
    """
    if isinstance(value, Position | Path):
        return None
    if isinstance(value, Enum):
        return {"": type(value).__name__, "name": value.name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # With its type, so that two kinds of node with the same fields do not pass for each other.
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {"": "mapping", "items": [[plain(key), plain(item)] for key, item in value.items()]}
    if isinstance(value, frozenset | set):
        return {"": "set", "items": sorted(digest_json(plain(item)) for item in value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"": "bytes", "hex": value.hex()}
    raise TypeError(f"{type(value).__name__} {value!r} cannot be part of a digest")
