"""One build a tree at a time: a lock that the kernel drops when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kiln.errors import StateError


@contextmanager
def build_lock(path: Path, *, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the build folder's lock; while another process has it, say who through `waiting` and wait.

    Raises StateError when the lock file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened for appending: to truncate it here would wipe the holder's name while it holds the lock.
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise StateError(
            f"the build folder cannot be written: {error.strerror}",
            where=str(path.parent),
            remedy="make it writable, or remove it if another user made it",
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            waiting(f"another build is running in {path.parent} ({file.read().strip() or 'its name is not known yet'}); waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
