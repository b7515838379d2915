"""Moves finished outputs into the build folder, whole or not at all, and removes what no step makes any more."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from kiln.digests import FileDigests, digest_file
from kiln.engine.state import Output
from kiln.errors import KilnError, StateError


def publish(staging: Path, root: Path, outputs: Sequence[str]) -> tuple[Output, ...]:
    """Rename each output from `staging` to `root`, and say what was published.

    A file that already holds the same bytes is left as it is, so that its time stamp does not move. `staging` must be on
    the same file system as `root`. Raises KilnError when the step did not make just what it declared.
    """
    made = {str(path.relative_to(staging).as_posix()) for path in staging.rglob("*") if not path.is_dir()}
    if made != set(outputs):
        missing, extra = sorted(set(outputs) - made), sorted(made - set(outputs))
        raise KilnError(
            "a step did not make what it declared",
            expected=", ".join(outputs[:5]) + (" ..." if len(outputs) > 5 else ""),
            actual="; ".join(filter(None, [missing and f"missing {missing[:5]}", extra and f"not declared {extra[:5]}"])),
            remedy="this is a fault in the rule or in Kiln: report it with this message",
        )
    published = []
    try:
        for name in outputs:
            source, target = staging / name, root / name
            if not stat.S_ISREG(source.lstat().st_mode):
                raise KilnError("a step made something that is no regular file", where=name)
            digest = digest_file(source)
            make_folder(root, target.parent)
            if not _holds(target, digest):
                source.replace(target)
            found = target.lstat()
            published.append(Output(path=name, size=found.st_size, mtime_ns=found.st_mtime_ns, sha256=digest))
    except OSError as error:
        raise _failure(error, root) from error
    return tuple(published)


def make_folder(root: Path, folder: Path) -> None:
    """Make `folder`, which lies under `root`, without following a link below `root`; root itself may be one.

    Raises StateError when something other than a folder stands in the way.
    """
    root.mkdir(parents=True, exist_ok=True)
    current = root
    for part in folder.relative_to(root).parts:
        current = current / part
        try:
            current.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(current.lstat().st_mode):
                raise StateError(
                    "something stands where the build folder needs a folder",
                    where=str(current),
                    expected="a folder that Kiln made",
                    actual="a symbolic link" if current.is_symlink() else "a file",
                    remedy="remove it; Kiln follows no links inside the build folder",
                ) from None


def intact(root: Path, outputs: Iterable[Output], files: FileDigests | None = None) -> str | None:
    """What is wrong with published outputs, in words; None when each still holds what was recorded.

    Size and mtime are asked first; when they moved the bytes decide. With `files=None` the bytes always decide.
    """
    for output in outputs:
        path = root / output.path
        try:
            found = path.lstat()
        except FileNotFoundError:
            return f"{path} is missing"
        if not stat.S_ISREG(found.st_mode):
            return f"{path} is no regular file any more"
        if files is not None and (found.st_size, found.st_mtime_ns) == (output.size, output.mtime_ns):
            continue
        if found.st_size != output.size or (files.of(path) if files else digest_file(path)) != output.sha256:
            return f"{path} does not hold what was built"
    return None


def remove(root: Path, names: Iterable[str]) -> list[Path]:
    """Remove published files and the folders that this empties. Links on the way are not followed."""
    removed = []
    for name in names:
        path = root / name
        if any(parent.is_symlink() for parent in path.parents if parent != root and root in parent.parents):
            continue
        try:
            path.unlink()
            removed.append(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failure(error, root) from error
        for parent in path.parents:
            if parent == root or root not in parent.parents:
                break
            try:
                parent.rmdir()
            except OSError:
                break
    return removed


def _holds(path: Path, digest: str) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode) and digest_file(path) == digest
    except FileNotFoundError:
        return False


def _failure(error: OSError, root: Path) -> StateError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return StateError(
        "no space left for the build's outputs" if full else f"an output cannot be written: {os.strerror(error.errno or 0)}",
        where=str(error.filename or root),
        remedy="make room and run again; finished work is kept" if full else "make the build folder writable and run again",
    )
