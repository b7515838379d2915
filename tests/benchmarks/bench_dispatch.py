"""What the engine takes for a job beside the job: jobs that do nothing, one after another, through a build."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench_runner import Contender, Figures, Settings, in_turns, measured
from bench_table import Row


def dispatch(settings: Settings) -> Iterator[Row]:
    """In a process of its own, whose fork server has Triton in memory, as when images are compiled."""
    jobs = 20 if settings.quick else 200
    report = settings.scratch / "dispatch.txt"

    def run() -> Figures:
        measured([sys.executable, Path(__file__), str(jobs), report], settings.scratch)
        return {"wall": float(report.read_text("ascii"))}

    found = in_turns({"Kiln": Contender(run=run)}, settings.runs)["Kiln"]
    yield Row(
        bench="dispatch",
        what="dispatch overhead of a job",
        kiln=found["wall"],
        unit="ms",
        by="figure",
        bar=5.0,
        stretch=2.5,
    )


def nothing(staging: Path) -> None:
    """The job."""


def seconds_a_job(jobs: int) -> float:
    """Run jobs that make nothing, one at a time; what each took from its start until it was recorded."""
    from kiln.engine import pool
    from kiln.engine.build import Build
    from kiln.engine.state import State
    from kiln.engine.step import Call, Step

    # The fork server gets a small environment, and finds Kiln's own modules only.
    pool.ENVIRONMENT = (*pool.ENVIRONMENT, "PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    call = Call(function="bench_dispatch:nothing", arguments={}, preload=("kiln.compilers.triton",))

    def step(number: int) -> Step:
        return Step(inputs=lambda: {"number": str(number)}, call=lambda: call, outputs=())

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "build"
        private = root / ".kiln"
        with Build(state=State(private / "state.sqlite"), root=root, folder=private, size=1) as build:
            # The first starts the server, which imports Triton.
            began = 0.0
            for number in range(jobs + 1):
                if number == 1:
                    began = time.perf_counter()
                build.start(f"job:{number}", step(number))
                finished = build.finish()
                assert finished.error is None, finished.error
            return (time.perf_counter() - began) / jobs


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(str(seconds_a_job(int(sys.argv[1]))), "ascii")
