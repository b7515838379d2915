"""The fork server: a process that imports what children need once, then forks a child for every job.

It runs as a program of its own, started by `pool`, and talks over one socket. It dies with its parent, and takes the
children along with all that they started: nothing outlives the build, even when it or the server is killed.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import mmap
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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from kiln import stages
from kiln.digests import digest_file
from kiln.engine.machine import oom_kills
from kiln.engine.step import Found
from kiln.errors import KilnError, MemoryLimitError, Position, no_space, os_failure
from kiln.stages import Stage

_HEADER = struct.Struct("<Q")
LOG_VARIABLE = "KILN_LOG"
"""names, in a child's environment, the file that holds what the child and its tools have printed"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A call, as the server takes it, and the folder that it works in; see `step.Call`."""

    name: str
    function: str
    arguments: bytes
    """pickled: only the child reads them, so that what is wrong with them is that job's own failure"""
    reads: tuple[tuple[str, str], ...]
    """path and sha256 of what earlier steps published for this one; the child starts by comparing them"""
    preload: tuple[str, ...]
    environment: Mapping[str, str]
    seconds: float
    memory: int
    folder: Path
    """`out` in it becomes the step's outputs, `tmp` and `home` are private to the child, `log` is what it printed"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job's child ended. `seconds` is wall-clock time, `peak_memory` bytes."""

    name: str
    error: KilnError | None
    """None when the call returned; what it raised otherwise, or what became of the child"""
    found: Found = field(default_factory=dict)
    """what the call returned"""
    trace: str | None
    """the traceback, when the error is none that was made for people"""
    output: str
    """what the child and its tools wrote to standard output and error"""
    seconds: float
    peak_memory: int
    cpu_seconds: float = 0.0
    """of the child and all that it waited for"""
    began: float = 0.0
    """when it was forked, on the monotonic clock; 0 for one that could not be started"""
    stages: tuple[Stage, ...] = ()
    """what the job noted of where its time went"""


def pack(message: Any) -> bytes:
    """One message as `receive` reads it: pickled, length first."""
    data = pickle.dumps(message)
    return _HEADER.pack(len(data)) + data


def receive(connection: socket.socket) -> Any | None:
    """Read one message that `pack` made; None at the end of the stream."""
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
    result: int
    """file descriptor, in memory, that the child writes its result to: a full disk cannot lose the reason"""
    alive: int
    """the write end of the pipe whose end tells the child's process group that the server died"""
    timed_out: bool = False

    @property
    def deadline(self) -> float:
        return self.started + self.job.seconds


def serve(connection: socket.socket) -> None:
    """Fork a child for each Job that arrives, and answer with an Ended for each child that ends.

    Answers wait in `outbox` until the parent takes them: were the server to block on one while the parent blocks on a
    large job, both would wait for ever.
    """
    wake, wake_writer = os.pipe()
    for end in (wake, wake_writer):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    children: dict[int, _Child] = {}
    killings = _Killings()
    outbox = bytearray()
    try:
        while True:
            deadline = min((child.deadline for child in children.values() if not child.timed_out), default=None)
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            sources: list[socket.socket | int] = [connection, wake]
            ready, writable, _ = select.select(sources, sources[:1] if outbox else [], [], timeout)
            if wake in ready:
                os.read(wake, 4096)
            if connection in ready:
                job = receive(connection)
                if job is None:
                    return
                failure = _preload(job) or _start(job, children, connection)
                if failure is not None:
                    outbox += pack(failure)
            for pid, child in children.items():
                if time.monotonic() >= child.deadline and not child.timed_out:
                    child.timed_out = True
                    _kill(pid)
            for ended in _reap(children, killings):
                outbox += pack(ended)
            if writable:
                del outbox[: connection.send(outbox, socket.MSG_DONTWAIT)]
    except (BrokenPipeError, ConnectionResetError):
        # The parent died.
        return
    finally:
        for pid in children:
            _kill(pid)
        for pid in children:
            # The parent removes the children's folders next: nothing may still be writing there.
            os.waitpid(pid, 0)


def _preload(job: Job) -> Ended | None:
    for module in (job.function.partition(":")[0], *job.preload):
        if module in sys.modules:
            continue
        try:
            importlib.import_module(module)
        except BaseException as error:
            sys.modules.pop(module, None)
            if isinstance(error, KilnError):
                return _not_started(job, _portable(error), None)
            return _not_started(job, KilnError(f"{module} cannot be imported: {error}"), traceback.format_exc())
        # What was imported stays. Were the children's collectors to look through it, each would copy all of it.
        gc.freeze()
    return None


def _not_started(job: Job, error: KilnError, trace: str | None) -> Ended:
    return Ended(name=job.name, error=error, trace=trace, output="", seconds=0.0, peak_memory=0)


def _start(job: Job, children: dict[int, _Child], connection: socket.socket) -> Ended | None:
    """Fork the child. What the system refuses is the job's failure, not the server's."""
    opened: list[int] = []
    try:
        opened += os.pipe()
        opened.append(os.memfd_create("result"))
        sys.stdout.flush()
        sys.stderr.flush()
        server, started = os.getpid(), time.monotonic()
        pid = os.fork()
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        return _not_started(job, os_failure("no process can be started for it", error, job.folder), None)
    alive_reader, alive, result = opened
    if pid == 0:
        foreign = (connection.fileno(), alive, *(child.alive for child in children.values()))
        _run(job, result, alive_reader, server, foreign)
    os.close(alive_reader)
    # Here as well as in the child: whichever comes first, the group is there before anybody kills it.
    with suppress(OSError):
        os.setpgid(pid, pid)
    children[pid] = _Child(job=job, started=started, result=result, alive=alive)
    return None


def _kill(pid: int) -> None:
    """Kill a child that was not waited for yet, and all that it started: its process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class _Killings:
    """How many processes the kernel has killed for want of memory, so that a SIGKILL can be told from somebody's."""

    def __init__(self) -> None:
        self._seen = oom_kills()

    def more(self) -> bool:
        """Whether there are more than when it was asked last."""
        before, self._seen = self._seen, oom_kills()
        return before is not None and self._seen is not None and self._seen > before


def _reap(children: dict[int, _Child], killings: _Killings) -> list[Ended]:
    ended = []
    for pid in list(children):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            continue
        # What the child started may still run. Its group is killed before it is waited for: as long as it is not,
        # nobody else can have got its number.
        _kill(pid)
        _, status, usage = os.wait4(pid, 0)
        child = children.pop(pid)
        seconds = time.monotonic() - child.started
        with os.fdopen(child.result, "rb") as result:
            result.seek(0)
            ended.append(_ended(child, status, result.read(), seconds, usage, killings))
        os.close(child.alive)
    return ended


_OUT_OF_MEMORY = ("bad_alloc", "out of memory", "Cannot allocate memory")
"""what compilers print before they abort for want of memory"""


def _ended(
    child: _Child, status: int, result: bytes, seconds: float, usage: resource.struct_rusage, killings: _Killings
) -> Ended:
    job, peak_memory = child.job, usage.ru_maxrss * 1024
    output = _read_log(job.folder / "log")
    error: KilnError | None = None
    trace: str | None = None
    found: Found = {}
    noted: list[Stage] = []
    if child.timed_out:
        error = KilnError(
            f"stopped: it ran past its time limit of {job.seconds:g} s",
            remedy="see what it printed; if it only needs longer, it is too large for this limit",
        )
    elif os.WIFSIGNALED(status):
        error = _killed(job, os.WTERMSIG(status), output, killings)
    elif status == 0 and len(result) > stages.MARK:
        error, trace, found, noted = pickle.loads(result[stages.MARK :])
    else:
        error = KilnError(
            f"its process ended with exit code {os.waitstatus_to_exitcode(status)} and left no result",
            remedy="something in it ended the process; see what it printed",
        )
    if isinstance(error, MemoryLimitError):
        error = error.filled(actual=f"its largest process had {peak_memory >> 20} MiB")
    if error is not None and error.stage is None:
        error.stage = stages.marked(result[: stages.MARK])
    return Ended(
        name=job.name,
        error=error,
        found=found,
        trace=trace,
        output=output,
        seconds=seconds,
        peak_memory=peak_memory,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        began=child.started,
        stages=tuple(noted),
    )


def _killed(job: Job, number: int, output: str, killings: _Killings) -> KilnError:
    if number in (signal.SIGABRT, signal.SIGSEGV) and any(text in output[-10_000:] for text in _OUT_OF_MEMORY):
        return _out_of_memory(job)
    if number == signal.SIGKILL:
        # The server kills only what ran past its time limit, and that was asked first.
        return MemoryLimitError(
            "out of memory: the kernel killed its process, for the machine or a limit around the build had none left"
            if killings.more()
            else "its process was killed by signal 9 (SIGKILL), which the build did not send: the kernel, or a limit "
            "around the build, may have run out of memory",
            remedy="build with a smaller -n, or give the build more memory",
        )
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    return KilnError(
        f"its process was killed by signal {number} ({name})",
        remedy="the compiler crashed on this input; see what it printed",
    )


def _out_of_memory(job: Job) -> KilnError:
    return MemoryLimitError(
        f"out of memory: its limit is {job.memory >> 20} MiB",
        remedy="give it less to do at once, such as a smaller block, or its step a higher limit",
    )


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
    except OSError:
        return ""


def _run(job: Job, result: int, alive: int, server: int, foreign: tuple[int, ...]) -> NoReturn:
    """The child, from its fork to its end. `foreign` are the server's descriptors, which would outlive it here."""
    code = 1
    try:
        for descriptor in foreign:
            os.close(descriptor)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        _die_with(server, alive)
        stages.keep_in(result)
        data = pickle.dumps((*_call(job), stages.taken()))
        os.lseek(result, stages.MARK, os.SEEK_SET)
        while data:
            data = data[os.write(result, data) :]
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _die_with(server: int, alive: int) -> None:
    """Have the kernel kill this process group when the server dies, however it dies.

    The server's end of a pipe closes then, which signals the group that owns the other end (fcntl(2): O_ASYNC, F_SETOWN
    with a process group, F_SETSIG). That reaches the compilers that this process runs, and needs nothing of them or of
    this process, which may be deep in code that looks at no signal.
    """
    fcntl.fcntl(alive, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | fcntl.FASYNC)
    if os.getppid() != server:
        os._exit(1)


def _call(job: Job) -> tuple[KilnError | None, str | None, Found]:
    """Call the job's function: its error, with the traceback of one that was not made for people, and what it found."""
    # To report that all memory is taken takes some. It counts from here on, and costs no page until it is touched.
    spare = mmap.mmap(-1, 4 << 20)
    try:
        _isolate(job)
        _verify(job.reads)
        module, _, name = job.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        returned = function(**pickle.loads(job.arguments), staging=job.folder / "out")
        found = {name: list(names) for name, names in returned.items()} if isinstance(returned, Mapping) else {}
        sys.stdout.flush()
        sys.stderr.flush()
    except KilnError as error:
        return _portable(error), None, {}
    except MemoryError:
        spare.close()
        return _out_of_memory(job), traceback.format_exc(), {}
    except BaseException as error:
        if isinstance(error, OSError) and no_space(error):
            return os_failure("a step cannot write its files", error, job.folder), None, {}
        return KilnError(f"{type(error).__name__}: {error}"), traceback.format_exc(), {}
    return None, None, found


def _verify(reads: tuple[tuple[str, str], ...]) -> None:
    """Refuse to work on from a file that is not the one that was published: its step would vouch for it."""
    for path, sha256 in reads:
        try:
            actual = digest_file(Path(path))
        except OSError as error:
            raise os_failure("what an earlier step made cannot be read", error, path) from error
        if actual != sha256:
            raise KilnError(
                "a file is not what an earlier step made, though its size and time stamp are",
                where=path,
                expected=f"sha256 {sha256}",
                actual=f"sha256 {actual}",
                remedy="delete the file and build again: it is made anew",
            )


def _portable(error: KilnError) -> KilnError:
    """The error, of a kind and with parts that the parent can read: it has not imported what the child has."""
    kind = type(error) if type(error).__module__ == KilnError.__module__ else KilnError
    expected, actual, remedy = (
        None if part is None else str(part) for part in (error.expected, error.actual, error.remedy)
    )
    where = error.where if error.where is None or type(error.where) is Position else str(error.where)
    return kind(str(error.what), where=where, expected=expected, actual=actual, remedy=remedy, stage=error.stage)


def _isolate(job: Job) -> None:
    """Private folders and environment, limits, and every byte of output in one file."""
    # As texts: to make paths of them copies a hundred pages that the child has in common with the server.
    folder = str(job.folder)
    for name in ("out", "tmp", "home"):
        os.mkdir(f"{folder}/{name}")  # noqa: PTH102
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    # A tool's lines stand between the lines that this process prints before and after it.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    private = {"TMPDIR": f"{folder}/tmp", "HOME": f"{folder}/home", LOG_VARIABLE: f"{folder}/log"}
    os.environ.update({**private, **job.environment})
    # The parent may have asked for its own temporary folder already, and Python remembers it.
    tempfile.tempdir = f"{folder}/tmp"
    os.chdir(f"{folder}/tmp")
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = job.memory if hard == resource.RLIM_INFINITY else min(job.memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def main() -> None:
    """Serve on the socket that the parent left as standard input."""
    # Ctrl-C reaches the whole terminal: the parent decides what it means, and closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as connection:
        serve(connection)
    # Python would take apart all that was imported first, which takes longer than some builds.
    os._exit(0)


if __name__ == "__main__":
    main()
