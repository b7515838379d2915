"""Removes folders beside the build: on ext4 that is mounted with `discard`, each that goes waits for the disk."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path
from queue import SimpleQueue


class Remover:
    """A thread that removes what it is told, one after another. What cannot be removed stays.

    Where the system gives no thread, each is removed when it is told.
    """

    def __init__(self) -> None:
        self._folders: SimpleQueue[Path | None] = SimpleQueue()
        self._thread: threading.Thread | None = threading.Thread(target=self._work, name="remover", daemon=True)
        # A signal is to interrupt whatever the main thread waits for: it must not be this one that gets it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def remove(self, folder: Path) -> None:
        """Have a folder removed, with all that is in it. Nothing may be writing there."""
        if self._thread is None:
            _remove(folder)
        else:
            self._folders.put(folder)

    def close(self) -> None:
        """Wait until all that was asked for is removed."""
        if self._thread is not None:
            self._folders.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (folder := self._folders.get()) is not None:
            _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
