"""Copies outputs into a tree that others share: whole files, none in place of somebody else's, none left behind."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from kiln.digests import digest_file
from kiln.engine.rows import Output, is_below
from kiln.errors import StateError, os_failure

_SCHEMA = 1
"""of the list of what was installed"""
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
"""whatever the umask: what is installed is for all to read"""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What an installation did, as names relative to the prefix."""

    added: Sequence[str]
    changed: Sequence[str]
    same: Sequence[str]
    """they hold the same bytes already, and their time stamps stand still"""
    removed: Sequence[str]


def install(outputs: Mapping[str, Output], root: Path, prefix: Path, listing: str) -> Installed:
    """Copy `outputs`, name below the prefix -> output below the build folder `root`.

    `listing` is the name, below the prefix, of the file that says what was installed: what it names may be replaced,
    and goes when it is no output any more. It is one library's. Raises StateError, with nothing changed, when an
    output is not what was built or would replace a file that is not listed; and when the prefix cannot be written.
    """
    for name, output in outputs.items():
        if not _holds(root / output.path, output):
            raise _unlike(root / output.path, name)
    before = _listed(prefix / listing)
    _check_free(prefix, [name for name in outputs if name not in before], listing)
    gone = sorted(before - outputs.keys())
    added, changed, same = list[str](), list[str](), list[str]()
    try:
        # First, so that what is killed half-way leaves nothing that the next run takes for somebody else's.
        _write(prefix, listing, _listing(before | outputs.keys()))
        for name, output in outputs.items():
            if _holds(prefix / name, output):
                same.append(name)
                continue
            (changed if os.path.lexists(prefix / name) else added).append(name)
            with (root / output.path).open("rb") as source:
                _write(prefix, name, source, output)
        for name in gone:
            _remove(prefix, name)
        _write(prefix, listing, _listing(outputs))
    except OSError as error:
        raise os_failure("the library cannot be installed", error, prefix) from error
    return Installed(added=added, changed=changed, same=same, removed=gone)


def _listing(names: Iterable[str]) -> BinaryIO:
    return BytesIO((json.dumps({"schema": _SCHEMA, "files": sorted(names)}, indent=1) + "\n").encode())


def _listed(path: Path) -> set[str]:
    """The names in a list of what was installed; none where there is no list. Raises StateError."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise os_failure("the list of what was installed cannot be read", error, path) from error
    try:
        found = json.loads(data)
        names = found["files"] if found["schema"] == _SCHEMA else None
    except (ValueError, KeyError, TypeError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and is_below(name) for name in names):
        raise StateError(
            "this is no list of what was installed that this Kiln can read, and so nothing is known of the files there",
            where=str(path),
            expected=f"what an installation writes: schema {_SCHEMA}, and names below the prefix",
            remedy="remove the library's files and this one by hand, or name another prefix",
        )
    return set(names)


def _check_free(prefix: Path, names: Sequence[str], listing: str) -> None:
    taken = [name for name in names if os.path.lexists(prefix / name)]
    if taken:
        more = f" and {len(taken) - 3} more" if len(taken) > 3 else ""
        raise StateError(
            "the prefix has files that no installation of this library put there, and nothing was changed",
            where=str(prefix / taken[0]),
            expected=f"no such file, or one that {listing} names",
            actual=", ".join(taken[:3]) + more,
            remedy="remove them, or name another prefix",
        )


def _holds(path: Path, output: Output) -> bool:
    """Whether a file holds an output. A link is no file, and is replaced."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == output.size and digest_file(path) == output.sha256


def _unlike(path: Path, name: str) -> StateError:
    return StateError(
        "a file in the build folder is not what was built" if path.exists() else "a file that was built is gone",
        where=str(path),
        actual=f"it was to be installed as {name}",
        remedy="run again: it is built anew; and see what else writes into the build folder",
    )


def _write(prefix: Path, name: str, source: BinaryIO, output: Output | None = None) -> None:
    """Put a file in place in one move, for all to read. Raises StateError when the bytes are not those of `output`."""
    path = prefix / name
    _make_folder(path.parent)
    part = path.with_name(f".{path.name}.part")
    with suppress(FileNotFoundError):
        part.unlink()
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE_MODE)
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(source, file)
            os.fchmod(file.fileno(), _FILE_MODE)
        if output is not None and not _holds(part, output):
            raise _unlike(Path(source.name), name)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(_FOLDER_MODE)


def _remove(prefix: Path, name: str) -> None:
    """Remove a file, and the folders that this empties."""
    path = prefix / name
    with suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
    for parent in path.relative_to(prefix).parents:
        if parent != Path():
            try:
                (prefix / parent).rmdir()
            except OSError:
                break
