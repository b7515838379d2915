"""Runs the benchmarks and prints a table: `python3 tools/bootstrap.py bench [OPTIONS]`; docs/benchmarks.md has more."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

# Kiln from this tree, whatever is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from bench_cache import cached
from bench_compile import compiling, softmax
from bench_dispatch import dispatch
from bench_graph import edit, large, null, select
from bench_link import link
from bench_runner import BenchError, Settings
from bench_table import Row, as_json, as_table

BENCHES: dict[str, Callable[[Settings], Iterable[Row]]] = {
    "null": null,
    "select": select,
    "edit": edit,
    "large": large,
    "compile": compiling,
    "softmax": softmax,
    "cache": cached,
    "dispatch": dispatch,
    "link": link,
}
ON_DEMAND = {"large"}
RUNS = 5


def main(words: Sequence[str]) -> int:
    """The exit code is 0 whatever the figures are, for they depend on the machine, and 1 when one could not be had."""
    parser = argparse.ArgumentParser(prog="bench", description="Kiln's speed, against other tools and its own bars.")
    parser.add_argument("--only", action="append", choices=BENCHES, metavar="NAME", help=f"one of {', '.join(BENCHES)}")
    parser.add_argument(
        "--large", action="store_true", help="the one of 100,000 variants too, which takes long to set up"
    )
    parser.add_argument(
        "--runs", type=int, default=RUNS, metavar="N", help=f"of which each figure is the median ({RUNS})"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and one run: figures that mean nothing")
    parser.add_argument("--json", action="store_true", help="print JSON rather than a table")
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR", help="a folder for what is made; a temporary one without it"
    )
    chosen = parser.parse_args(words)
    if chosen.runs < 1:
        parser.error(f"--runs {chosen.runs}: one run is the least")
    if chosen.scratch is not None and not chosen.scratch.is_dir():
        parser.error(f"--scratch {chosen.scratch}: no such folder")
    wanted = {*(chosen.only or BENCHES.keys() - ON_DEMAND), *(ON_DEMAND if chosen.large else ())}
    names = [name for name in BENCHES if name in wanted]
    rows: list[Row] = []
    failed: dict[str, str] = {}
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=chosen.scratch, prefix="bench-") as folder:
        settings = Settings(scratch=Path(folder), runs=1 if chosen.quick else chosen.runs, quick=chosen.quick)
        for name in names:
            began = time.monotonic()
            _say(f"{name} ...")
            try:
                rows += BENCHES[name](settings)
            except KeyboardInterrupt:
                # What has been measured took long enough to be shown.
                failed[name] = "stopped"
                _say("stopped")
                break
            except Exception as error:
                # The others can still be run.
                failed[name] = str(error) if isinstance(error, BenchError) else traceback.format_exc()
                _say(f"{name} could not be run: {failed[name]}")
            else:
                _say(f"{name}: {time.monotonic() - began:.0f} s")
        # Before the folder is removed, which may take minutes.
        machine = {**_machine(), "runs": settings.runs, "load before": before, "load after": os.getloadavg()[0]}
        if chosen.json:
            print(as_json(rows, failed, machine), flush=True)
        else:
            print(as_table(rows))
            print(f"\n{', '.join(f'{name} {value}' for name, value in machine.items())}", flush=True)
    return 1 if failed else 0


def _machine() -> dict[str, Any]:
    return {"cores": len(os.sched_getaffinity(0)), "machine": platform.machine(), "Python": platform.python_version()}


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
