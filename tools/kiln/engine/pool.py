"""The pool: runs jobs in children of the fork server, as many at a time as it is told, and says how each ended."""

from __future__ import annotations

import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from kiln.engine.forkserver import Ended, Job, pack, receive
from kiln.engine.publish import make_folder
from kiln.engine.step import Call
from kiln.errors import KilnError, os_failure

ENVIRONMENT: tuple[str, ...] = ("PATH",)
"""What a child may know of the user's environment. Compilers read dozens of variables (TRITON_*, PTXAS_OPTIONS,
NVCC_APPEND_FLAGS, LD_PRELOAD): none of them may reach an image."""

_CLOSING = 10.0
"""seconds that the server has to end its children, before it is killed itself"""


class Pool:
    """Runs up to `size` jobs at once. Nothing is started before the first job.

    `temp`, a folder below `root`, is on the build's own file system; each job gets a folder in it, which `release`
    removes.
    """

    def __init__(self, *, size: int, root: Path, temp: Path) -> None:
        self.size = size
        self._root = root
        self._temp = temp
        self._folders: dict[str, Path] = {}
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
        return len(self._folders)

    @property
    def free(self) -> bool:
        """Whether another job may start."""
        return self.running < self.size

    def start(self, name: str, call: Call, reads: Mapping[Path, str] | None = None) -> None:
        """Start a job; `wait` returns it when it ends. `name` must be unique among those that run.

        The job fails when a file of `reads` does not have the sha256 that stands beside it.

        Raises KilnError when it cannot be started; nothing is left of it then.
        """
        try:
            arguments = pickle.dumps(dict(call.arguments))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise KilnError(
                f"an argument of {call.function} cannot be sent to a child process: {error}",
                expected="data: numbers, texts, paths, lists, mappings, and dataclasses of modules",
            ) from error
        make_folder(self._root, self._temp)
        try:
            folder = Path(tempfile.mkdtemp(dir=self._temp))
        except OSError as error:
            raise os_failure("a step's temporary folder cannot be made", error, self._temp) from error
        self._folders[name] = folder
        job = Job(
            name=name,
            function=call.function,
            arguments=arguments,
            reads=tuple((str(path), sha256) for path, sha256 in (reads or {}).items()),
            preload=call.preload,
            environment=dict(call.environment),
            seconds=call.seconds,
            memory=call.memory,
            folder=folder,
        )
        try:
            self._connect().sendall(pack(job))
        except OSError as error:
            self.release(name)
            raise self._lost() from error

    def staging(self, name: str) -> Path:
        """Where a running or ended job's outputs are, until `release`."""
        return self._folders[name] / "out"

    @property
    def has_ended(self) -> bool:
        """Whether `wait` would return at once."""
        return bool(self._folders) and self.ends_within(0)

    def ends_within(self, seconds: float | None, wake: int | None = None) -> bool:
        """Whether `wait` would return at once, by then; None stands for ever, and there must be a job then.

        That `wake`, a file descriptor, can be read from ends it as well.
        """
        connection = self._connect().fileno()
        ready, _, _ = select.select([connection, *([] if wake is None else [wake])], [], [], seconds)
        return connection in ready

    def wait(self) -> Ended:
        """The next job that ends; there must be one. Raises KilnError when the fork server itself is gone."""
        if not self._folders:
            raise RuntimeError("no job is running")
        ended = receive(self._connect())
        if ended is None:
            raise self._lost()
        assert isinstance(ended, Ended)
        return ended

    def release(self, name: str) -> None:
        """Remove an ended job's folder."""
        folder = self._folders.pop(name)
        try:
            # What is left of most jobs. A tenth of the time that it takes to look what there is.
            for left in ("out", "tmp", "home"):
                os.rmdir(f"{folder}/{left}")  # noqa: PTH106
            os.unlink(f"{folder}/log")  # noqa: PTH108
            os.rmdir(folder)  # noqa: PTH106
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)

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
        self._folders.clear()
        # As a whole: a signal may have come between the making of a folder and its entry in the table.
        shutil.rmtree(self._temp, ignore_errors=True)

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
            program = (
                f"import sys; sys.path.insert(0, {str(package)!r}); import kiln; del sys.path[0]; "
                "from kiln.engine.forkserver import main; main()"
            )
            environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
            try:
                self._server = subprocess.Popen(
                    [sys.executable, "-s", "-P", "-c", program],
                    stdin=theirs.fileno(),
                    # What modules print when they are imported is nobody's result.
                    stdout=subprocess.DEVNULL,
                    env={**environment, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
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
