"""What this process may take of the machine: its cores, and the memory that is free for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def cores() -> int:
    """How many processes can run at once: the cores that this one may use, and no more than its cgroups' quota."""
    quotas = [quota for folder in _groups(_PROC, _CGROUPS) if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def free_memory(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes that can be taken without swapping: what the system has, and what the limits of this process's cgroups
    leave. None where neither can be told.

    Sources: proc(5), MemAvailable; the kernel's cgroup-v2.rst, memory.max, memory.current and memory.stat, and v1's
    memory.rst, memory.limit_in_bytes and memory.usage_in_bytes.
    """
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = (proc / "meminfo").read_text("ascii").splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10)
    for folder in _groups(proc, cgroups):
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            # `max` stands for no limit.
            with suppress(OSError, ValueError):
                free = int((folder / limit).read_text("ascii")) - int((folder / usage).read_text("ascii"))
                found.append(max(0, free + _reclaimable(folder)))
    return min(found, default=None)


def _reclaimable(folder: Path) -> int:
    """Bytes of files that a cgroup counts as its own and gives up when memory runs short."""
    with suppress(OSError, ValueError):
        words = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
        return int(words.get("total_inactive_file", words.get("inactive_file", 0)))
    return 0


def _groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    """The folders of this process's cgroups and of those above them, whose limits hold for it too; see cgroups(7)."""
    try:
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and not {"memory", "cpu"} & set(controllers.split(",")):
            continue
        top = cgroups / controllers if controllers else cgroups
        below = path.strip("/")
        # In a container the path is that of the host, and the group lies at the top.
        folder = top / below
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top) and each.is_dir())


def _cpu_quota(folder: Path) -> int | None:
    """Cores' worth of time that a cgroup may use, rounded up: `cpu.max` of version 2, cpu.cfs_* of version 1."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text("ascii").split()
        return -(-int(quota) // int(period))
    with suppress(OSError, ValueError):
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text("ascii") for name in ("quota", "period"))
        return -(-int(quota) // int(period)) if int(quota) > 0 else None
    return None


def oom_kills(proc: Path = _PROC) -> int | None:
    """How many processes the kernel has killed for want of memory since the machine started; None where it does not
    tell. Source: the kernel's vmstat.c, `oom_kill`."""
    with suppress(OSError, ValueError):
        for line in (proc / "vmstat").read_text("ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None
