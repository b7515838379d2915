"""The fork server: a process that imports what children need once, then forks a child for every job.

It runs as a program of its own, started by `pool`, and talks over one socket. It dies with its parent, and takes the
children along: they never outlive the build, even when that is killed.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.engine.step import Call
from kiln.errors import KilnError

_HEADER = struct.Struct("<Q")
LOG_VARIABLE = "KILN_LOG"
"""names, in a child's environment, the file that holds what the child and its tools have printed"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A call, and the folder that it works in: `out` becomes the step's outputs, `tmp` and `home` are private."""

    name: str
    call: Call
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job's child ended. `seconds` is wall-clock time, `peak_memory` bytes."""

    name: str
    error: KilnError | None
    """None when the call returned; what it raised otherwise, or what became of the child"""
    trace: str | None
    """the traceback, when the error is none that was made for people"""
    output: str
    """what the child and its tools wrote to standard output and error"""
    seconds: float
    peak_memory: int


def send(connection: socket.socket, message: Any) -> None:
    """Write one pickled message, length first."""
    data = pickle.dumps(message)
    connection.sendall(_HEADER.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any | None:
    """Read one message that `send` wrote; None at the end of the stream."""
    header = _read(connection, _HEADER.size)
    data = header and _read(connection, _HEADER.unpack(header)[0])
    return pickle.loads(data) if data else None


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(size - len(parts))
        except ConnectionResetError:
            # The other side closed with messages of ours unread: it is gone all the same.
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


@dataclass(kw_only=True)
class _Child:
    job: Job
    started: float
    timed_out: bool = False


def serve(connection: socket.socket) -> None:
    """Fork a child for each Job that arrives, and answer with an Ended for each child that ends."""
    wake, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer)
    children: dict[int, _Child] = {}
    while True:
        deadline = min((child.started + child.job.call.seconds for child in children.values()), default=None)
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([connection, wake], [], [], timeout)
        if wake in ready:
            os.read(wake, 4096)
        if connection in ready:
            job = receive(connection)
            if job is None:
                for pid in children:
                    _kill(pid)
                return
            failure = _preload(job)
            if failure is not None:
                send(connection, failure)
            else:
                started = time.monotonic()
                pid = os.fork()
                if pid == 0:
                    connection.close()
                    _run(job)
                children[pid] = _Child(job=job, started=started)
        now = time.monotonic()
        for pid, child in children.items():
            if now >= child.started + child.job.call.seconds and not child.timed_out:
                child.timed_out = True
                _kill(pid)
        for pid in list(children):
            found, status, usage = os.wait4(pid, os.WNOHANG)
            if found:
                # What the child itself started may still run: its process group ends with it.
                _kill(pid)
                child = children.pop(pid)
                send(connection, _ended(child, status, time.monotonic() - child.started, usage.ru_maxrss * 1024))


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        # The child has not made its group yet, or nothing of it is left.
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _preload(job: Job) -> Ended | None:
    for module in (job.call.function.partition(":")[0], *job.call.preload):
        if module in sys.modules:
            continue
        try:
            importlib.import_module(module)
        except BaseException as error:
            sys.modules.pop(module, None)
            return Ended(
                name=job.name,
                error=error if isinstance(error, KilnError) else KilnError(f"{module} cannot be imported: {error}"),
                trace=None if isinstance(error, KilnError) else traceback.format_exc(),
                output="",
                seconds=0.0,
                peak_memory=0,
            )
    return None


def _ended(child: _Child, status: int, seconds: float, peak_memory: int) -> Ended:
    call, folder = child.job.call, child.job.folder
    output = _read_log(folder / "log")
    error: KilnError | None = None
    trace: str | None = None
    if child.timed_out:
        error = KilnError(
            f"stopped: it ran past its time limit of {call.seconds:.0f} s",
            remedy="see what it printed below; if it only needs longer, it is too large for this limit",
        )
    elif os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        error = KilnError(
            f"its process was killed by signal {number} ({name})",
            remedy="a SIGKILL that nobody sent is the kernel running out of memory: build with a smaller -n"
            if number == signal.SIGKILL
            else "the compiler crashed on this input; what it printed stands below",
        )
    else:
        try:
            error, trace = pickle.loads((folder / "result").read_bytes())
        except Exception:
            error = KilnError(f"its process ended with exit code {os.waitstatus_to_exitcode(status)} and left no result")
    return Ended(name=child.job.name, error=error, trace=trace, output=output, seconds=seconds, peak_memory=peak_memory)


_LOG_LIMIT = 1 << 20
"""bytes of a child's output that are kept: its beginning and its end"""


def _read_log(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size <= _LOG_LIMIT:
                return file.read().decode("utf-8", "replace")
            start = file.read(_LOG_LIMIT // 2)
            file.seek(-_LOG_LIMIT // 2, os.SEEK_END)
            cut = f"\n... {size - _LOG_LIMIT} bytes left out ...\n".encode()
            return (start + cut + file.read()).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _run(job: Job) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _isolate(job)
        result: tuple[KilnError | None, str | None]
        try:
            module, _, name = job.call.function.partition(":")
            function = getattr(importlib.import_module(module), name)
            function(**job.call.arguments, staging=job.folder / "out")
            result = (None, None)
        except KilnError as error:
            result = (error, None)
        except MemoryError:
            result = (KilnError(f"out of memory: its limit is {job.call.memory >> 20} MiB"), traceback.format_exc())
        except BaseException as error:
            result = (KilnError(f"{type(error).__name__}: {error}"), traceback.format_exc())
        sys.stdout.flush()
        sys.stderr.flush()
        (job.folder / "result").write_bytes(pickle.dumps(result))
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _isolate(job: Job) -> None:
    """Private folders and environment, limits, and every byte of output in one file."""
    folder = job.folder
    for name in ("out", "tmp", "home"):
        (folder / name).mkdir()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    private = {"TMPDIR": str(folder / "tmp"), "HOME": str(folder / "home"), LOG_VARIABLE: str(folder / "log")}
    os.environ.update({**private, **job.call.environment})
    # The parent may have asked for its own temporary folder already, and Python remembers it.
    tempfile.tempdir = str(folder / "tmp")
    os.chdir(folder / "tmp")
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = job.call.memory if hard == resource.RLIM_INFINITY else min(job.call.memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def main() -> None:
    """Serve on the socket that the parent left as standard input."""
    # Ctrl-C reaches the whole terminal: the parent decides what it means, and closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
