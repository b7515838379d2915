"""How long Kiln takes to compile, against what people do without it: a loop in one process, or a process an image.

All compile the same Triton kernels from the same files for the same targets, with nothing cached. Targets whose image
is PTX are left out, for `triton.compile` does not stop there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from bench_runner import Contender, Figures, Settings, copy_project, doit, in_turns, measured, remove
from bench_table import Row

_LOOP = Path(__file__).with_name("triton_loop.py")


def compiling(settings: Settings) -> Iterator[Row]:
    """Every Triton kernel of this repository's library, against one process that compiles one image after another."""
    project = settings.scratch / "compile"
    _write_project(project, settings, only=None)
    jobs = _write_jobs(project)
    found = in_turns(
        {
            "Kiln": Contender(run=_kiln(project, jobs), prepare=partial(remove, project / "build")),
            "loop": Contender(run=partial(_loop, project)),
        },
        settings.runs,
    )
    for figure, what, bar, stretch in (("wall", "wall time", 0.55, 0.45), ("cpu", "processor time", 1.1, 0.9)):
        yield Row(
            bench="compile",
            what=f"compile the default Triton kernels, {jobs} images: {what}",
            kiln=found["Kiln"][figure],
            peer=found["loop"][figure],
            peer_name="one process, one after another",
            by="ratio",
            bar=bar,
            stretch=stretch,
        )


def softmax(settings: Settings) -> Iterator[Row]:
    """Softmax, against a process for each image."""
    project = settings.scratch / "softmax"
    _write_project(project, settings, only="softmax")
    jobs = _write_jobs(project)
    found = in_turns(
        {
            "Kiln": Contender(run=_kiln(project, jobs), prepare=partial(remove, project / "build")),
            "processes": Contender(run=partial(_one_by_one, project, jobs)),
        },
        settings.runs,
    )
    yield Row(
        bench="softmax",
        what=f"compile softmax, {jobs} images: processor time",
        kiln=found["Kiln"]["cpu"],
        peer=found["processes"]["cpu"],
        peer_name="a process an image",
        by="ratio",
        bar=0.25,
        stretch=0.2,
    )


def small_library(text: str, *, only: str | None, quick: bool) -> str:
    """A manifest's Triton kernels, or only one of them, for the targets that `triton.compile` makes images for."""
    tree: dict[str, Any] = yaml.safe_load(text)
    kernels: dict[str, dict[str, Any]] = tree["kernels"]
    for key in ("onnxruntime", "release"):
        tree.pop(key, None)
    chosen = {name: each for name, each in kernels.items() if each["source"].endswith(".py") and only in (None, name)}
    for each in (tree, *chosen.values()):
        # They name targets that are left out, and what an image uses is not what is measured.
        each.pop("budgets", None)
        if "targets" in each:
            each["targets"] = [target for target in each["targets"] if not target.startswith("compute_")]
    if quick:
        tree["targets"] = ["sm_80"]
        chosen = {"softmax": {**chosen["softmax"], "dtypes": ["fp32"], "blocks": [1024, 2048]}}
        del chosen["softmax"]["tolerance"]
    return yaml.safe_dump({**tree, "kernels": chosen}, sort_keys=False, width=1000)


def _write_project(folder: Path, settings: Settings, only: str | None) -> None:
    copy_project(folder, ("kernels.yaml", "dodo.py", "pyproject.toml", "kernels"))
    manifest = folder / "kernels.yaml"
    manifest.write_text(small_library(manifest.read_text("utf-8"), only=only, quick=settings.quick), "utf-8")


def _write_jobs(project: Path) -> int:
    """Write what the loop compiles, as plain data, into the project; returns how many images that is."""
    from kiln.engine.state import State
    from kiln.library import Library

    with tempfile.TemporaryDirectory() as folder:
        library = Library.load(project / "kernels.yaml", Path(folder), State(Path(folder) / "state.sqlite"))
        jobs = []
        for image in library.images:
            interface = library.interface(image)
            job: Mapping[str, Any] = {
                "module": image.variant.kernel.source_name.removesuffix(".py").replace("/", "."),
                "function": image.variant.kernel.function,
                "arguments": [[item.name, item.type, item.promise] for item in interface.arguments],
                "constants": interface.constants,
                "target": image.target,
                "options": dict(image.variant.options),
            }
            jobs.append(job)
    (project / "jobs.json").write_text(json.dumps(jobs), "utf-8")
    return len(jobs)


def _kiln(project: Path, jobs: int) -> partial[Figures]:
    # Two at once, whatever the machine has: the bars are for two cores.
    workers = min(2, len(os.sched_getaffinity(0)))
    return partial(measured, doit("-n", str(workers), "compile"), project, f"{jobs} built, ")


def _loop(project: Path, *numbers: str) -> Figures:
    """The loop over all jobs, or over some; with a cache of its own that is empty."""
    with tempfile.TemporaryDirectory(dir=project) as cache:
        command: list[str | Path] = [sys.executable, _LOOP, project / "jobs.json", *numbers]
        # As Kiln compiles when nobody asks for debug information.
        return measured(command, project, TRITON_CACHE_DIR=cache, TRITON_DISABLE_LINE_INFO="1")


def _one_by_one(project: Path, jobs: int) -> Figures:
    runs = [_loop(project, str(number)) for number in range(jobs)]
    return {"wall": sum(run["wall"] for run in runs), "cpu": sum(run["cpu"] for run in runs)}
