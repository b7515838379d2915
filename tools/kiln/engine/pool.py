"""The pool: runs jobs in children of the fork server, as many at a time as it is told, and says how each ended."""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kiln.engine.jobs import Ended, Job, PackedCall, Part, pack, packed, receive
from kiln.engine.publish import make_folder
from kiln.engine.remover import Remover
from kiln.engine.step import Call
from kiln.errors import KilnError

ENVIRONMENT: tuple[str, ...] = ("PATH",)
"""What a child may know of the user's environment. Compilers read dozens of variables (TRITON_*, PTXAS_OPTIONS,
NVCC_APPEND_FLAGS, LD_PRELOAD): none of them may reach an image."""

FIXED = {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
"""what else a child finds in its environment, whatever the user's has"""

RIDING = 30.0
"""Seconds that a call which rides along may take, whatever it may take by itself: only then is the step published that
it rides on, and one that is stuck is to cost no more than that."""

_CLOSING = 10.0
"""seconds that the server has to end its children, before it is killed itself"""


class Pool:
    """Runs up to `size` jobs at once. Nothing is started before the first job.

    `temp`, a folder below the build folder `root`, is on the same file system; each job gets a folder in it, which goes
    when all of its steps are released.
    """

    def __init__(self, *, size: int, root: Path, temp: Path) -> None:
        self.size = size
        self._root = root
        self._temp = temp
        self._prefix = secrets.token_hex(4)
        """so that what an earlier build left is in nobody's way"""
        self._has_temp = False
        """whether `temp` was made: no link on the way to it"""
        self._made = 0
        self._running: set[str] = set()
        self._out: dict[str, Path] = {}
        """where the outputs of a step are, in the folder of its job"""
        self._unreleased: dict[Path, int] = {}
        """how many steps of a job are left, by its folder"""
        self._remover: Remover | None = None
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
        return len(self._running)

    @property
    def free(self) -> bool:
        """Whether another job may start."""
        return self.running < self.size

    def start(
        self,
        name: str,
        call: Call,
        reads: Mapping[Path, str] | None = None,
        *,
        outputs: Sequence[str] = (),
        riders: Mapping[str, PackedCall] | None = None,
    ) -> None:
        """Start a job; `wait` returns it when it ends. `name` must be unique among those that run.

        The job fails when a file of `reads` does not have the sha256 that stands beside it. `riders` are calls that the
        same child makes afterwards, by the names of their steps, of what the first makes, which are the `outputs`.

        Raises KilnError when it cannot be started; nothing is left of it then.
        """
        riding = {other: replace(rider, seconds=min(rider.seconds, RIDING)) for other, rider in (riders or {}).items()}
        calls = {name: packed(call), **riding}
        if not self._has_temp or not _is_folder(self._temp):
            make_folder(self._root, self._temp)
            self._has_temp = True
        self._running.add(name)
        self._made += 1
        folder = self._temp / f"{self._prefix}-{self._made}"
        suffixes = ["", *(f"-{number}" for number in range(1, len(calls)))]
        job = Job(
            parts=tuple(
                Part(name=each, call=call, out=folder / f"out{suffix}", log=f"{folder}/log{suffix}")
                for (each, call), suffix in zip(calls.items(), suffixes, strict=True)
            ),
            folder=str(folder),
            reads=tuple((str(path), sha256) for path, sha256 in (reads or {}).items()),
            root=str(self._root),
            outputs=tuple(outputs),
        )
        self._out |= {part.name: part.out for part in job.parts}
        self._unreleased[folder] = len(calls)
        try:
            self._connect().sendall(pack(job))
        except OSError as error:
            self._running.remove(name)
            for each in calls:
                self.release(each)
            raise self._lost() from error

    def staging(self, name: str) -> Path:
        """Where the outputs of a step are that runs, has ended, or rode along; until `release`."""
        return self._out[name]

    @property
    def has_ended(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(self._running) and self.ends_within(0)

    def ends_within(self, seconds: float | None, wake: int | None = None) -> bool:
        """Whether `wait` would return at once, by then; None stands for ever, and there must be a job then.

        That `wake`, a file descriptor, can be read from ends it as well.
        """
        connection = self._connect().fileno()
        ready, _, _ = select.select([connection, *([] if wake is None else [wake])], [], [], seconds)
        return connection in ready

    def wait(self) -> Ended:
        """The next job that ends; there must be one. Raises KilnError when the fork server itself is gone."""
        if not self._running:
            raise RuntimeError("no job is running")
        ended = receive(self._connect())
        if ended is None:
            raise self._lost()
        assert isinstance(ended, Ended)
        self._running.remove(ended.name)
        return ended

    def release(self, name: str, *, at_once: bool = False) -> None:
        """Have a step's temporary files removed: of one that has ended, or was to ride along.

        That is done beside the build, or `at_once`: what failed may have taken the room that the next job needs.
        """
        folder = self._out.pop(name).parent
        self._unreleased[folder] -= 1
        if not self._unreleased[folder]:
            del self._unreleased[folder]
            if at_once:
                shutil.rmtree(folder, ignore_errors=True)
                return
            if self._remover is None:
                self._remover = Remover()
            self._remover.remove(folder)

    def close(self) -> None:
        """End what still runs, and remove every job's folder."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._server is not None:
            try:
                self._server.wait(_CLOSING)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None
        self._running.clear()
        self._out.clear()
        self._unreleased.clear()
        if self._remover is not None:
            self._remover.close()
            self._remover = None
        # As a whole: with what was to be released later.
        shutil.rmtree(self._temp, ignore_errors=True)
        self._has_temp = False

    def _lost(self) -> KilnError:
        """The error for a server that died."""
        how = None
        if self._server is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._server.wait(_CLOSING)
                how = (
                    f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
                )
        return KilnError(
            "the process that runs the compilers died",
            actual=how,
            remedy="run again: finished work is kept. If it happens again, the machine may be short of memory: "
            "use a smaller -n",
        )

    def _connect(self) -> socket.socket:
        if self._connection is None:
            ours, theirs = socket.socketpair()
            # Known before the process is: if something is raised on the way, to close it is what ends the server.
            self._connection = ours
            package = Path(__file__).parents[2]
            # The environment is made here from nothing, and -s and -P leave out the user's own packages and the current
            # folder. kiln is imported from where this module is, whatever else is installed, and finds its own modules.
            # What Python's modules would do in each child, such as to make their locks anew, is for processes with
            # threads: it copies two hundred pages of memory, and the server has one thread.
            program = (
                "import os, sys; os.register_at_fork = lambda **hooks: None; "
                f"sys.path.insert(0, {str(package)!r}); import kiln; del sys.path[0]; "
                "from kiln.engine.forkserver import main; main()"
            )
            environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
            try:
                self._server = subprocess.Popen(
                    [sys.executable, "-s", "-P", "-c", program],
                    stdin=theirs.fileno(),
                    # What modules print when they are imported is nobody's result.
                    stdout=subprocess.DEVNULL,
                    env={**environment, **FIXED},
                    # A session of its own: Ctrl-C on the terminal must not reach it, or it would die before its parent.
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                self._connection = None
                raise
            finally:
                theirs.close()
        return self._connection


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
