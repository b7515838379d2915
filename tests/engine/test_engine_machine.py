"""What this process may take of the machine, against the kernel's files of several kinds of machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kiln.engine import machine

GIB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", f"MemTotal:  99 kB\nMemAvailable:    {8 * GIB >> 10} kB\nSwapFree: 1 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    return tmp_path / "proc"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(folder: Path, limit: str, usage: int, inactive: int = 0) -> None:
    write(folder / "memory.max", f"{limit}\n")
    write(folder / "memory.current", f"{usage}\n")
    write(folder / "memory.stat", f"anon 5\ninactive_file {inactive}\n")


def test_what_the_system_has(proc: Path, tmp_path: Path) -> None:
    assert machine.free_memory(proc, tmp_path / "none") == 8 * GIB


def test_the_tightest_of_the_groups_above_decides(proc: Path, tmp_path: Path) -> None:
    cgroups = tmp_path / "cgroup"
    group(cgroups / "a/b", "max", 1 * GIB)
    assert machine.free_memory(proc, cgroups) == 8 * GIB
    group(cgroups / "a", str(6 * GIB), 3 * GIB, inactive=1 * GIB)
    assert machine.free_memory(proc, cgroups) == 4 * GIB, "files that are only kept in memory can go"
    group(cgroups / "a/b", str(2 * GIB), 3 * GIB)
    assert machine.free_memory(proc, cgroups) == 0


def test_in_a_container_the_group_lies_at_the_top(proc: Path, tmp_path: Path) -> None:
    write(proc / "self/cgroup", "0::/docker/of/the/host\n")
    group(tmp_path / "cgroup", str(3 * GIB), 1 * GIB)
    assert machine.free_memory(proc, tmp_path / "cgroup") == 2 * GIB


def test_groups_of_the_first_version(proc: Path, tmp_path: Path) -> None:
    write(proc / "self/cgroup", "4:memory:/x\n3:cpuset:/\n1:name=systemd:/x\n")
    folder = tmp_path / "cgroup/memory/x"
    write(folder / "memory.limit_in_bytes", f"{4 * GIB}\n")
    write(folder / "memory.usage_in_bytes", f"{2 * GIB}\n")
    write(folder / "memory.stat", f"total_inactive_file {1 * GIB}\n")
    assert machine.free_memory(proc, tmp_path / "cgroup") == 3 * GIB


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path) -> None:
    write(tmp_path / "proc/meminfo", "MemTotal: 1 kB\n")
    assert machine.free_memory(tmp_path / "proc", tmp_path) is None
    assert machine.free_memory(tmp_path / "none", tmp_path) is None
    assert machine.oom_kills(tmp_path) is None


def test_this_machine() -> None:
    free = machine.free_memory()
    assert free is not None
    assert 0 < free < 1 << 50
    assert 1 <= machine.cores() <= len(os.sched_getaffinity(0))
    assert machine.oom_kills() is not None


def test_killings_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "vmstat", "nr_free_pages 3\noom_kill 12\n")
    assert machine.oom_kills(tmp_path) == 12


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"}, 1),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_group(tmp_path: Path, files: dict[str, str], quota: int | None) -> None:
    for name, text in files.items():
        write(tmp_path / name, f"{text}\n")
    assert machine._cpu_quota(tmp_path) == quota
