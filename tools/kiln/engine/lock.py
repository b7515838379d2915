"""One build a tree at a time: a lock that the kernel drops when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kiln.engine.publish import make_folder
from kiln.errors import StateError, os_failure


@contextmanager
def build_lock(path: Path, *, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the build folder's lock; while another process has it, say who through `waiting` and wait.

    `path` is `<build folder>/<private folder>/<name>`; the build folder may be a link, the others may not. Raises
    StateError when the lock file cannot be made, and when the build folder is somebody else's: it holds files, and not
    the private folder that a build makes first.
    """
    file = _open(path)
    try:
        while not _acquire(file, path, waiting):
            # Somebody removed the file while we waited: what we hold now keeps nobody out.
            os.close(file)
            file = _open(path)
        # On a full disk the name is missing; the lock holds all the same.
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        try:
            yield
        finally:
            with suppress(OSError):
                os.ftruncate(file, 0)
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether a process has the lock; also where that cannot be told."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _open(path: Path) -> int:
    root, private = path.parents[1], path.parent
    try:
        if root.is_dir() and not os.path.lexists(private) and any(root.iterdir()):
            # What a build does not know in its folder, it may remove.
            raise StateError(
                "the build folder holds files, and none that a build of Kiln has made",
                where=str(root),
                expected="an empty folder, one of an earlier build, or none",
                actual=f"{min(path.name for path in root.iterdir())} and no {private.name}",
                remedy="name another folder: `build:` in kernels.yaml, or `doit --build-dir DIR`",
            )
        make_folder(root, private)
        # Not truncated here: that would wipe the holder's name while it holds the lock.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        if path.is_symlink():
            raise StateError(
                "the lock file is a symbolic link",
                where=str(path),
                remedy="remove it; Kiln follows no links inside the build folder",
            ) from error
        raise os_failure("the build folder cannot be written", error, path) from error


def _acquire(file: int, path: Path, waiting: Callable[[str], None]) -> bool:
    """Take the lock; whether `file` is still what lies at `path`."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 200, 0).decode("utf-8", "replace").strip() or "its name is not known yet"
        waiting(f"another build is running in {path.parent} ({holder}); waiting for it")
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except FileNotFoundError:
        return False
