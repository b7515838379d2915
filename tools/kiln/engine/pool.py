"""The pool: runs jobs in children of the fork server, as many at a time as it is told, and says how each ended."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from kiln.engine.forkserver import Ended, Job, receive, send
from kiln.engine.publish import make_folder
from kiln.engine.step import Call
from kiln.errors import KilnError

ENVIRONMENT = ("PATH",)
"""What a child may know of the user's environment. Compilers read dozens of variables (TRITON_*, PTXAS_OPTIONS,
NVCC_APPEND_FLAGS, LD_PRELOAD): none of them may reach an image."""


class Pool:
    """Runs up to `size` jobs at once. Nothing is started before the first job.

    `temp` is a folder of the build's own file system; each job gets a folder below it, which `release` removes.
    """

    def __init__(self, *, size: int, root: Path, temp: Path) -> None:
        self.size = size
        self._root = root
        self._temp = temp
        self._numbers = itertools.count(1)
        self._jobs: dict[str, Job] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> int:
        """How many jobs have not ended yet."""
        return len(self._jobs)

    @property
    def free(self) -> bool:
        """Whether another job may start."""
        return self.running < self.size

    def start(self, name: str, call: Call) -> None:
        """Start a job; `wait` returns it when it ends. `name` must be unique among those that run."""
        make_folder(self._root, self._temp)
        folder = self._temp / f"{os.getpid()}-{next(self._numbers)}"
        folder.mkdir()
        job = Job(name=name, call=call, folder=folder)
        self._jobs[name] = job
        send(self._connect(), job)

    def staging(self, name: str) -> Path:
        """Where a running or ended job's outputs are, until `release`."""
        return self._jobs[name].folder / "out"

    def wait(self) -> Ended:
        """The next job that ends. Raises KilnError when the fork server itself is gone."""
        ended = receive(self._connect())
        if ended is None:
            raise KilnError(
                "the process that runs the compilers died",
                remedy="run again: finished work is kept. If it happens again, the machine may be short of memory: use a smaller -n",
            )
        assert isinstance(ended, Ended)
        return ended

    def release(self, name: str) -> None:
        """Remove an ended job's folder."""
        shutil.rmtree(self._jobs.pop(name).folder, ignore_errors=True)

    def close(self) -> None:
        """End what still runs, and remove every job's folder."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._server is not None:
            self._server.wait()
            self._server = None
        for name in list(self._jobs):
            self.release(name)

    def _connect(self) -> socket.socket:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            package = Path(__file__).parents[2]
            # -E and -s: nothing of the user's Python set-up reaches a child; kiln's own folder is named instead.
            program = f"import sys; sys.path.append({str(package)!r}); from kiln.engine.forkserver import main; main()"
            environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
            self._server = subprocess.Popen(
                [sys.executable, "-E", "-s", "-c", program],
                stdin=theirs,
                env={**environment, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
                # A session of its own: Ctrl-C on the terminal must not reach it, or it would die before its parent.
                start_new_session=True,
            )
            theirs.close()
            self._connection = ours
        return self._connection
