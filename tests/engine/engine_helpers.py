"""Helpers of the engine's tests: processes to look at, users without root's powers, small disks."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], Any], *, seconds: float = 10.0) -> Any:
    """The condition's value once it is true; fails when it does not become so in time."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not so within {seconds} s"
        time.sleep(0.01)
    return value


def numbers_in(path: Path) -> list[int]:
    """The process numbers that a job wrote down; waits for them."""
    wait_until(path.exists)
    return [int(word) for word in path.read_text("utf-8").split()]


def children() -> set[int]:
    """The numbers of the processes that this one's main thread has started."""
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text("utf-8")
    return {int(word) for word in text.split()}


def without_root(function: Callable[[], Any]) -> Any:
    """Call the function in a forked child without the capability to pass over file modes; give or raise what it does.

    Tests often run as root, whom a read-only folder does not keep out.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _drop_capabilities()
            result: tuple[Any, BaseException | None] = (function(), None)
        except BaseException as error:
            error.add_note(traceback.format_exc())
            result = (None, error)
        with os.fdopen(writer, "wb") as file:
            file.write(pickle.dumps(result))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    value, error = pickle.loads(data)
    if error is not None:
        raise error
    return value


def _drop_capabilities() -> None:
    # capset(2) with _LINUX_CAPABILITY_VERSION_3: three sets of 64 bits, all empty.
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def can_mount() -> bool:
    """Whether this user can make small disks in a mount namespace of its own."""
    return subprocess.run([*_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


_NAMESPACE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def on_a_small_disk(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python source with `folder` on a disk of 64 KiB and 64 files."""
    mount = f'mount -t tmpfs -o size=64k,nr_inodes=64 none "{folder}" && exec "$@"'
    return run_python(source, *arguments, wrapper=[*_NAMESPACE, "sh", "-c", mount, "sh"])


def run_python(source: str, *arguments: str, wrapper: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python source that can import kiln and these helpers."""
    return subprocess.run(
        [*wrapper, sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TOOLS), str(Path(__file__).parent)])},
    )
