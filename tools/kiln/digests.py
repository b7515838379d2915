"""Content digests: of bytes, of named parts, and of files through a stat cache. Never of a path or a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from kiln import files
from kiln.errors import Position
from kiln.files import FileState as FileState


def digest_bytes(data: bytes) -> str:
    """sha256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """sha256 of plain data, independent of the order of keys."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode())


def is_digest(text: str) -> bool:
    """Whether a text is a digest, as the functions of this module write them."""
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


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
        self._asked: dict[str, FileState] = {}
        self._paths: dict[str, Path] = {}
        self._lists: dict[str, dict[str, str]] = {}

    def of(self, path: Path) -> str:
        """sha256 of the file's bytes. Raises OSError when it cannot be read."""
        digest = self._of(path)
        self._paths[digest] = path
        return digest

    def _of(self, path: Path) -> str:
        try:
            stat = path.stat()
            state = files.state_of(stat)
            self._asked.setdefault(str(path), state)
            entry = self.known(path)
            if entry and entry[0] == state:
                files.note_bytes(path, entry[1], state)
                return entry[1]
            settled = files.is_settled(stat)
            digest = digest_file(path)
        except OSError:
            files.note_bytes(path, None, None)
            raise
        files.note_bytes(path, digest, state if settled else None)
        if settled:
            self.learned[str(path)] = (state, digest)
        return digest

    def known(self, path: Path | str) -> tuple[FileState, str] | None:
        """A file's state when it was last read, and its digest at that time."""
        key = str(path)
        return self.learned.get(key) or self._known.get(key)

    def renew(self, known: Mapping[str, tuple[FileState, str]]) -> None:
        """Go by another table of what was read before; what was learned since stays."""
        self._known = known

    def moved(self, outside: Path) -> str | None:
        """A file outside of a folder that has changed since its digest was asked for; None when there is none."""
        for path, state in self._asked.items():
            if path.startswith(f"{outside}/"):
                continue
            try:
                now = files.state_of(os.stat(path))  # noqa: PTH116  # hundreds of names
            except OSError:
                return path
            if now != state:
                return path
        return None

    def of_all(self, paths: Mapping[str, Path]) -> str:
        """One digest over several files by name; a name says what a file is for, its path is left out."""
        digests = {name: self._of(path) for name, path in paths.items()}
        digest = digest_json(digests)
        self._lists[digest] = digests
        return digest

    def path_of(self, digest: str) -> Path | None:
        """The file whose digest it is, if that was asked for."""
        return self._paths.get(digest)

    def list_of(self, digest: str) -> dict[str, str] | None:
        """The digests of several files by name that it is over, if it was asked for."""
        return self._lists.get(digest)


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
