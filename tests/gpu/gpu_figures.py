"""Runs the programs that measure, and shows their figures beside what they should not pass."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 120.0
"""seconds for a program"""
ROUNDS = 100


def run_figures(command: Sequence[str | Path]) -> tuple[list[dict[str, object]], list[str]]:
    """The figures that a program prints, an object of JSON a line, and what went wrong."""
    name = Path(command[-1] if command[0] == sys.executable else command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return [], [f"{name} hangs"]
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return figures, [f"{name}: exit code {done.returncode}: {done.stderr.strip()[-500:]}"] if done.returncode else []


def lines_of(figures: Sequence[dict[str, object]]) -> Iterator[str]:
    """A line a figure, in microseconds; one that is past what it should not pass says `over`."""
    for figure in figures:
        ours, raw = figure.get("ours"), figure.get("raw")
        if not isinstance(ours, float) or not isinstance(raw, float):
            yield f"{figure['name']}: {figure['microseconds']:.2f} us"
            continue
        ratio = ours / raw if raw else float("inf")
        line = f"{figure['name']}: {ours:.2f} us, {raw:.2f} us, ratio {ratio:.3f}"
        bar, most = figure.get("bar"), figure.get("most")
        if isinstance(bar, (int, float)):
            line += f", bar {bar}{' over' if ratio > bar else ''}"
        if isinstance(most, (int, float)):
            line += f", {ours - raw:.1f} us more, bar {most}{' over' if ours - raw > most else ''}"
        yield line


def run_cost(program: Path, starts: Sequence[Path], rounds: int = ROUNDS) -> list[str]:
    """What the library costs, beside the driver alone. Prints the figures, and returns what went wrong."""
    figures, faults = run_figures([program, str(rounds), *starts])
    for line in lines_of(figures):
        print(f"    {line}")
    return faults


def run_python_costs(program: Path = HERE / "python_costs.py") -> None:
    """Print what Triton and torch cost, as far as they are installed and run: neither is Kiln's."""
    missing = [name for name in ("triton", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"    not measured: {' and '.join(missing)} not installed")
        return
    figures, faults = run_figures([sys.executable, program])
    for line in (*lines_of(figures), *(f"not measured: {fault}" for fault in faults)):
        print(f"    {line}")
