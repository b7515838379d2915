"""Runs what is compared in turns, so that whatever else the machine does meets all alike, and says what each took."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).parents[2]

Figures = Mapping[str, float]
"""one run: `wall` and `cpu` in seconds, `peak` in bytes, and what else a benchmark measures"""


class BenchError(Exception):
    """A benchmark that could not be run; the text says why, for a person."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the benchmarks are run."""

    scratch: Path
    """an empty folder to work in"""
    runs: int
    """of each contender"""
    quick: bool = False
    """Small graphs and libraries: whether the benchmarks work, and no figure that means anything."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Something that is run and measured."""

    run: Callable[[], Figures]
    prepare: Callable[[], None] = field(default=lambda: None)
    """brings about what the run begins with; not measured"""
    warm_ups: int = 0
    """runs before the first that counts: files get into memory, byte code is written"""


def in_turns(contenders: Mapping[str, Contender], runs: int) -> dict[str, dict[str, float]]:
    """The medians of each contender's figures, over `runs` rounds in each of which all of them run, in their order."""
    for contender in contenders.values():
        for _ in range(contender.warm_ups):
            contender.prepare()
            contender.run()
    found: dict[str, list[Figures]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, contender in contenders.items():
            contender.prepare()
            found[name].append(contender.run())
    return {name: medians(figures) for name, figures in found.items()}


def medians(figures: Sequence[Figures]) -> dict[str, float]:
    """The median of each figure over some runs."""
    return {name: median(run[name] for run in figures) for name in figures[0]}


def environment(**own: str) -> dict[str, str]:
    """What the contenders run with: Kiln from this tree, no cache, and byte code kept, as Python does by default."""
    paths = [str(REPOSITORY / "tools"), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "KILN_CACHE": "off", **own}


def measured(command: Sequence[str | Path], folder: Path, says: str = "", **own: str) -> Figures:
    """Run a command to its end: `wall`, `cpu` with that of its children, and `peak`, of the largest of its processes.

    `own` are variables of its environment. Raises BenchError when it fails, or when its output lacks the text `says`.
    """
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(**own),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode or says not in text:
        line = " ".join(map(str, command))
        problem = f"exit code {process.returncode}" if process.returncode else f"its output lacks {says!r}"
        raise BenchError(f"{line}\nin {folder}: {problem}\n{text[-3000:]}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss * 1024}


def doit(*words: str) -> list[str | Path]:
    """The command that runs doit, as it stands beside this Python."""
    return [sys.executable, program("doit"), *words]


def program(name: str) -> Path:
    """A program that was installed with this Python, or stands on PATH. Raises BenchError when there is none."""
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    if found is None:
        raise BenchError(f"{name} is missing: run the benchmarks with `python3 tools/bootstrap.py bench`")
    return Path(found)


def remove(*paths: Path) -> None:
    """Remove folders that are there."""
    for path in paths:
        if path.exists():
            shutil.rmtree(path)


def copy_project(folder: Path, names: Iterable[str]) -> None:
    """Copy files and folders of this repository into a new folder."""
    folder.mkdir(parents=True)
    for name in names:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
