"""The fork server: a process that imports what children need once, then forks a child for every job.

It runs as a program of its own, started by `pool`, and talks over one socket. It dies with its parent, and takes the
children along with all that they started: nothing outlives the build, even when it or the server is killed.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace

from kiln import stages
from kiln.engine.child import out_of_memory, portable, prepare, run
from kiln.engine.jobs import Ended, Job, Part, Spent, Told, messages, pack, receive
from kiln.engine.machine import oom_kills
from kiln.errors import KilnError, MemoryLimitError, os_failure


@dataclass(kw_only=True)
class _Child:
    job: Job
    started: float
    result: int
    """file descriptor, in memory, that the child writes what it has to tell to: a full disk cannot lose the reason"""
    alive: int
    """the write end of the pipe whose end tells the child's process group that the server died"""
    timed_out: bool = False
    look_at: float
    """when to look whether a call has taken all its time"""

    def told(self) -> list[Told]:
        """What it has told so far: of each call that has ended."""
        return list(messages(os.pread(self.result, os.fstat(self.result).st_size, stages.MARK)))

    def stage(self) -> str | None:
        """The stage that it was in last."""
        return stages.marked(os.pread(self.result, stages.MARK, 0))

    def is_late(self) -> bool:
        """Whether the call that is under way has taken all its time. Nobody tells when another begins."""
        if time.monotonic() < self.look_at:
            return False
        told = self.told()
        left = [part.call.seconds for part in self.job.parts[len(told) :]] or [0.0]
        end = (told[-1].spent.until if told else self.started) + left[0]
        self.look_at = min([end, *(time.monotonic() + seconds for seconds in left[1:])])
        return time.monotonic() >= end


def serve(connection: socket.socket) -> None:
    """Fork a child for each Job that arrives, and answer with an Ended for each child that ends.

    Answers wait in `outbox` until the parent takes them: were the server to block on one while the parent blocks on a
    large job, both would wait for ever.
    """
    wake, wake_writer = os.pipe()
    for end in (wake, wake_writer):
        os.set_blocking(end, False)
    # Children keep this handler, for to set another one takes long: it does nothing, and interrupts no call of theirs.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.siginterrupt(signal.SIGCHLD, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    children: dict[int, _Child] = {}
    killings = _Killings()
    outbox = bytearray()
    try:
        while True:
            deadline = min((child.look_at for child in children.values() if not child.timed_out), default=None)
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            sources: list[socket.socket | int] = [connection, wake]
            ready, _, _ = select.select(sources, sources[:1] if outbox else [], [], timeout)
            if connection in ready:
                job = receive(connection)
                if job is None:
                    return
                failure = _preload(job.parts[0]) or _start(_with_riders(job), children, connection)
                if failure is not None:
                    outbox += pack(failure)
            for pid, child in children.items():
                if not child.timed_out and child.is_late():
                    child.timed_out = True
                    _kill(pid)
            if wake in ready:
                os.read(wake, 4096)
                for ended in _reap(children, killings):
                    outbox += pack(ended)
            if outbox:
                with suppress(BlockingIOError):
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


def _preload(part: Part) -> Ended | None:
    for module in part.call.modules:
        if module in sys.modules:
            continue
        try:
            importlib.import_module(module)
        except BaseException as error:
            sys.modules.pop(module, None)
            if isinstance(error, KilnError):
                return _not_started(part.name, portable(error), None)
            return _not_started(part.name, KilnError(f"{module} cannot be imported: {error}"), traceback.format_exc())
        # What was imported stays. Were the children's collectors to look through it, each would copy all of it.
        gc.freeze()
    return None


def _with_riders(job: Job) -> Job:
    """The job without those that ride and cannot be called: what is wrong with them a run of their own tells."""
    first, *others = job.parts
    if not others:
        return job
    return replace(job, parts=(first, *(part for part in others if _preload(part) is None)))


def _not_started(name: str, error: KilnError, trace: str | None) -> Ended:
    return Ended(name=name, error=error, trace=trace, output="", seconds=0.0, peak_memory=0)


def _start(job: Job, children: dict[int, _Child], connection: socket.socket) -> Ended | None:
    """Fork the child. What the system refuses is the job's failure, not the server's."""
    opened: list[int] = []
    try:
        opened += os.pipe()
        opened.append(os.memfd_create("result"))
        sys.stdout.flush()
        sys.stderr.flush()
        foreign = (connection.fileno(), opened[1], *(child.alive for child in children.values()))
        server, started = os.getpid(), time.monotonic()
        pid = os.fork()
    except OSError as error:
        for descriptor in opened:
            os.close(descriptor)
        return _not_started(job.name, os_failure("no process can be started for it", error, job.folder), None)
    alive_reader, alive, result = opened
    if pid == 0:
        run(job, result, alive_reader, server, foreign)
    os.close(alive_reader)
    # Here as well as in the child: whichever comes first, the group is there before anybody kills it.
    with suppress(OSError):
        os.setpgid(pid, pid)
    look_at = started + min(part.call.seconds for part in job.parts)
    children[pid] = _Child(job=job, started=started, result=result, alive=alive, look_at=look_at)
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
        ended.append(_ended(child, status, usage, killings))
        os.close(child.result)
        os.close(child.alive)
    return ended


_OUT_OF_MEMORY = ("bad_alloc", "out of memory", "Cannot allocate memory")
"""what compilers print before they abort for want of memory"""


def _ended(child: _Child, status: int, usage: resource.struct_rusage, killings: _Killings) -> Ended:
    """How the first call ended, with those that rode along as far as the child has told of them."""
    parts, told = child.job.parts, child.told()
    whole = Spent(
        until=time.monotonic(),
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_memory=usage.ru_maxrss * 1024,
    )
    # Asked in any case: what one killing stands for must not be taken for the next one's reason.
    was_oom = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and killings.more()
    if not told:
        error = _death(child, status, was_oom=was_oom)
        told = [Told(error=error, trace=None, found={}, stages=(), staged={}, spent=whole)]
    spent = [each.spent for each in told]
    if len(told) == len(parts):
        # The end of the process counts for its last call; the peak of the process may be that of one before.
        spent[-1] = whole if len(parts) == 1 else replace(whole, peak_memory=spent[-1].peak_memory)
    if told[0].error is not None and told[0].error.stage is None:
        told[0].error.stage = child.stage()
    before = [Spent(until=child.started, cpu_seconds=0.0, peak_memory=0), *spent]
    first, *others = map(_ended_part, parts, told, spent, before)
    return replace(first, rode=tuple(others)) if others else first


def _ended_part(part: Part, told: Told, spent: Spent, before: Spent) -> Ended:
    error = told.error
    if isinstance(error, MemoryLimitError):
        error = error.filled(actual=f"its largest process had {spent.peak_memory >> 20} MiB")
    return Ended(
        name=part.name,
        error=error,
        found=told.found,
        trace=told.trace,
        output=_read_log(part.log),
        seconds=spent.until - before.until,
        peak_memory=spent.peak_memory,
        cpu_seconds=spent.cpu_seconds - before.cpu_seconds,
        began=before.until,
        stages=told.stages,
        staged=told.staged,
    )


def _death(child: _Child, status: int, *, was_oom: bool) -> KilnError:
    """Why the first call told nothing."""
    first = child.job.parts[0]
    if child.timed_out:
        return KilnError(
            f"stopped: it ran past its time limit of {first.call.seconds:g} s",
            remedy="see what it printed; if it only needs longer, it is too large for this limit",
        )
    if os.WIFSIGNALED(status):
        return _killed(first, os.WTERMSIG(status), was_oom=was_oom)
    return KilnError(
        f"its process ended with exit code {os.waitstatus_to_exitcode(status)} and left no result",
        remedy="something in it ended the process; see what it printed",
    )


def _killed(part: Part, number: int, *, was_oom: bool) -> KilnError:
    if number in (signal.SIGABRT, signal.SIGSEGV):
        printed = _read_log(part.log)[-10_000:]
        if any(text in printed for text in _OUT_OF_MEMORY):
            return out_of_memory(part.call.memory)
    if number == signal.SIGKILL:
        # The server kills only what ran past its time limit, and that was asked first.
        return MemoryLimitError(
            "out of memory: the kernel killed its process, for the machine or a limit around the build had none left"
            if was_oom
            else "its process was killed by signal 9 (SIGKILL), which the build did not send: the kernel, or a limit "
            "around the build, may have run out of memory",
            remedy="build with a smaller -n, or give the build more memory",
        )
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    return KilnError(
        f"its process was killed by signal {number} ({name})",
        remedy="the compiler crashed on this input; see what it printed",
    )


_LOG_LIMIT = 1 << 20
"""bytes of a child's output that are kept: its beginning and its end"""


def _read_log(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # see jobs.Part
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


def main() -> None:
    """Serve on the socket that the parent left as standard input."""
    # Ctrl-C reaches the whole terminal: the parent decides what it means, and closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as connection:
        prepare()
        serve(connection)
    # Python would take apart all that was imported first, which takes longer than some builds.
    os._exit(0)


if __name__ == "__main__":
    main()
