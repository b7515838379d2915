"""The child of the fork server: makes the calls of one job, each in surroundings of its own, and tells how they end."""

from __future__ import annotations

import importlib
import io
import mmap
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fcntl import F_GETFL, F_SETFL, F_SETOWN, F_SETSIG, FASYNC, fcntl
from functools import partial
from os import SEEK_SET, chdir, close, dup2, getpgrp, getppid, lseek, mkdir, setpgid, write
from pathlib import Path
from resource import (
    RLIM_INFINITY,
    RLIMIT_AS,
    RLIMIT_CORE,
    RUSAGE_CHILDREN,
    RUSAGE_SELF,
    getrlimit,
    getrusage,
    setrlimit,
)
from signal import SIGKILL, set_wakeup_fd
from time import monotonic
from typing import Any, NoReturn

from kiln import stages
from kiln.digests import digest_file
from kiln.engine.jobs import Job, Part, Spent, Told, pack
from kiln.engine.step import Built, Found
from kiln.errors import KilnError, MemoryLimitError, Position, no_space, os_failure

LOG_VARIABLE = "KILN_LOG"
"""names, in a child's environment, the file that holds what the child and its tools have printed"""

_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def prepare() -> None:
    """What is the same for all children, done once, by the server: they inherit it."""
    null = os.open(os.devnull, os.O_RDONLY)
    dup2(null, 0)
    close(null)
    # A tool's lines stand between the lines that a child prints before and after it.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    os.umask(0o022)
    setrlimit(RLIMIT_CORE, (0, 0))


def run(job: Job, result: int, alive: int, server: int, foreign: tuple[int, ...]) -> NoReturn:
    """The child, from its fork to its end; it is to be entered right after the fork.

    A page of memory that it has in common with the server is copied when it first writes there, be it to count that an
    object is used, or to remember where a name was found. So it has all names by themselves, uses few functions and
    types, and leaves to the server what is the same for all children: a short job takes half as long for that.

    `result` is the file that it tells in how its calls ended: `stages.MARK` bytes, and a Told for each. `alive` is the
    pipe whose end tells that the server died, and `foreign` are descriptors of the server's that would outlive it here.
    """
    code = 1
    try:
        for descriptor in foreign:
            close(descriptor)
        set_wakeup_fd(-1)
        setpgid(0, 0)
        _die_with(server, alive)
        stages.keep_in(result)
        lseek(result, stages.MARK, SEEK_SET)
        for told in _told(job):
            data = pack(told)
            while data:
                data = data[write(result, data) :]
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
    fcntl(alive, F_SETOWN, -getpgrp())
    fcntl(alive, F_SETSIG, SIGKILL)
    fcntl(alive, F_SETFL, fcntl(alive, F_GETFL) | FASYNC)
    if getppid() != server:
        os._exit(1)


def _told(job: Job) -> Iterator[Told]:
    """Do what the job asks for, and tell of each call when it is over."""
    first, *others = job.parts
    environment, at_first = (dict(os.environ), _resident()) if others else ({}, 0)
    error, trace, found = _call(job, first, first.call.memory)
    staged = _staged(job) if others and error is None else {}
    yield _tell(error, trace, found, staged)
    for part in others if staged else ():
        os.environ.clear()
        os.environ.update(environment)
        _forget_peak()
        left, tools = _resident() - at_first, getrusage(RUSAGE_CHILDREN).ru_maxrss
        # What the calls before have mapped still counts.
        outcome = _call(job, part, max(each.call.memory for each in job.parts))
        yield _tell(*outcome, {}, left=left, tools=tools)


def _tell(
    error: KilnError | None,
    trace: str | None,
    found: Found,
    staged: Mapping[str, str],
    *,
    left: int = 0,
    tools: int = 0,
) -> Told:
    """How a call ended. The calls before have `left` bytes in this process, and their tools had `tools` KiB at most."""
    itself, children = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    own, of_tools = itself.ru_maxrss, children.ru_maxrss
    return Told(
        error=error,
        trace=trace,
        found=found,
        stages=tuple(stages.taken()),
        staged=staged,
        spent=Spent(
            until=monotonic(),
            cpu_seconds=itself.ru_utime + itself.ru_stime + children.ru_utime + children.ru_stime,
            # The kernel does not forget the largest tool, and counts as a tool's what this process had when it started
            # it: one of this call's shows only where it was larger than either.
            peak_memory=max(own * 1024 - left, of_tools * 1024 if of_tools > max(tools, own) else 0),
        ),
    )


def _staged(job: Job) -> Mapping[str, str]:
    """The digests of what the first call made; none where something is missing, which is found out again later."""
    try:
        return {name: digest_file(job.parts[0].out / name) for name in job.outputs}
    except OSError:
        return {}


def _resident() -> int:
    """How many bytes of this process are in memory now; 0 where that cannot be told."""
    with suppress(OSError), open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * mmap.PAGESIZE
    return 0


def _forget_peak() -> None:
    """Have the kernel count the largest resident set anew (proc(5): 5 in /proc/self/clear_refs)."""
    with suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:  # noqa: PTH123  # see _make_folders
        file.write(b"5")


def _call(job: Job, part: Part, memory: int) -> tuple[KilnError | None, str | None, Found]:
    """Call one function: its error, with the traceback of one that was not made for people, and what it found."""
    # To report that all memory is taken takes some. It counts from here on, and costs no page until it is touched.
    spare = mmap.mmap(-1, 4 << 20)
    try:
        if part is job.parts[0]:
            _make_folders(job)
        _isolate(job, part, memory)
        if part is job.parts[0]:
            _verify(job.reads)
        module, _, name = part.call.function.partition(":")
        function = getattr(sys.modules.get(module) or importlib.import_module(module), name)
        arguments = _Arguments(io.BytesIO(part.call.arguments), partial(_place, job, part)).load()
        returned = function(**arguments, staging=part.out)
        found = {name: list(names) for name, names in returned.items()} if isinstance(returned, Mapping) else {}
        sys.stdout.flush()
        sys.stderr.flush()
    except KilnError as error:
        return portable(error), None, {}
    except MemoryError:
        spare.close()
        return out_of_memory(memory), traceback.format_exc(), {}
    except BaseException as error:
        if isinstance(error, OSError) and no_space(error):
            return os_failure("a step cannot write its files", error, job.folder), None, {}
        return KilnError(f"{type(error).__name__}: {error}"), traceback.format_exc(), {}
    finally:
        spare.close()
    return None, None, found


class _Arguments(pickle.Unpickler):
    """Reads the arguments of a call; what is a Built there becomes a path here."""

    def __init__(self, file: io.BytesIO, place: Callable[[str], Path]) -> None:
        super().__init__(file)
        self._place = place

    def find_class(self, module: str, name: str) -> Any:
        return self._place if (module, name) == _BUILT else super().find_class(module, name)


_BUILT = (Built.__module__, Built.__qualname__)


def _place(job: Job, part: Part, name: str) -> Path:
    """Where a file of the build is: for what rides along, one of the first call's before it is published."""
    first = job.parts[0]
    return first.out / name if part is not first and name in job.outputs else Path(job.root, name)


def out_of_memory(limit: int) -> MemoryLimitError:
    """The error of a call that took `limit` bytes and wanted more."""
    return MemoryLimitError(
        f"out of memory: its limit is {limit >> 20} MiB",
        remedy="give it less to do at once, such as a smaller block, or its step a higher limit",
    )


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


def portable(error: KilnError) -> KilnError:
    """The error, of a kind and with parts that the parent can read: it has not imported what the child has."""
    kind = type(error) if type(error).__module__ == KilnError.__module__ else KilnError
    expected, actual, remedy = (
        None if part is None else str(part) for part in (error.expected, error.actual, error.remedy)
    )
    where = error.where if error.where is None or type(error.where) is Position else str(error.where)
    return kind(str(error.what), where=where, expected=expected, actual=actual, remedy=remedy, stage=error.stage)


def _make_folders(job: Job) -> None:
    try:
        for name in (job.folder, f"{job.folder}/tmp", f"{job.folder}/home"):
            mkdir(name, 0o700)  # noqa: PTH102  # see jobs.Part
    except OSError as error:
        raise os_failure("a step's temporary folder cannot be made", error, job.folder) from error


def _isolate(job: Job, part: Part, memory: int) -> None:
    """A folder for the outputs, private environment, limits, and every byte of output in one file."""
    mkdir(part.out, 0o700)  # noqa: PTH102  # see jobs.Part
    log = os.open(part.log, _LOG, 0o600)
    dup2(log, 1)
    dup2(log, 2)
    close(log)
    temporary = f"{job.folder}/tmp"
    private = {"TMPDIR": temporary, "HOME": f"{job.folder}/home", LOG_VARIABLE: part.log, **part.call.environment}
    for name, value in private.items():
        os.environ[name] = value
    # The parent may have asked for its own temporary folder already, and Python remembers it.
    tempfile.tempdir = temporary
    chdir(temporary)
    _, hard = getrlimit(RLIMIT_AS)
    setrlimit(RLIMIT_AS, (memory if hard == RLIM_INFINITY else min(memory, hard), hard))
