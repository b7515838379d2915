"""What is said where nobody draws: a line a finished step, a word in a long silence, JSON for machines."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slow_steps import slow_project

from kiln.doit_plugin.reporting.reporter import KilnReporter
from kiln.doit_plugin.tasks import StepTask
from kiln.engine.build import Build
from kiln.engine.state import State
from kiln.engine.step import Call, Step
from project import REPOSITORY, Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return slow_project(tmp_path_factory.mktemp("slow") / "slow")


def events(project: Project, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what came on standard output, each line an object, and what came on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "doit", "--json", *arguments],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools"), "KILN_CACHE": "off"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_json_tells_all_and_nothing_else_is_on_standard_output(project: Project) -> None:
    code, lines, errors = events(project, "quick", "broken:sm_80", "crash", "print", "wrong")
    assert code == 1
    assert lines[0] == {"event": "start", "schema": 1, "kiln": "0.1.0", "total": 4, "size": lines[0]["size"]}
    started = {line["name"] for line in lines if line["event"] == "step_started"}
    ended = {line["name"]: line for line in lines if line["event"] == "step_ended"}
    assert started == ended.keys() == {"quick:sm_80", "quick:gfx942", "broken:sm_80", "crash"}
    assert {name: line["result"] for name, line in ended.items()} == {
        **dict.fromkeys(("quick:sm_80", "quick:gfx942"), "built"),
        **dict.fromkeys(("broken:sm_80", "crash"), "failed"),
    }
    assert all(line["seconds"] > 0 and line["peak_memory"] > 1 << 20 for line in ended.values())
    failures = {line["name"]: line for line in lines if line["event"] == "failure"}
    assert failures["crash"]["printed"] == "LLVM ERROR: it is broken"
    broken = failures["broken:sm_80"]
    assert broken["message"].startswith("ValueError: invalid literal") and "Traceback" in broken["trace"]
    assert broken["declared"] == ["kernels.yaml:5:3"]
    assert broken["reproduce"] == "doit -v 2 broken:sm_80"
    assert (project.folder / broken["log"]).is_file()
    tasks = [(line["name"], line["result"]) for line in lines if line["event"] == "task_ended"]
    assert tasks == [("print", "done"), ("wrong", "failed")]
    counts = {
        "built": 2,
        "cached": 0,
        "up_to_date": 0,
        "failed": 2,
        "not_tried": 0,
        "tasks_failed": 1,
        "stopped": False,
    }
    assert counts.items() <= lines[-1].items()
    assert lines[-1]["event"] == "end" and lines[-1]["wall_seconds"] > 0 and lines[-1]["cpu_seconds"] > 0
    assert "from a command" in errors and "from Python" in errors


def test_json_of_what_the_cache_had_and_of_what_is_up_to_date(built: Project, tmp_path: Path) -> None:
    """Names, digests and sizes of the outputs are those of the files."""
    cache = {"KILN_CACHE": str(tmp_path / "cache")}
    built.doit("forget", "compile:scale_fp32_128@sm_80").expect()
    built.doit("compile:scale_fp32_128@sm_80", **cache).expect("1 built")
    built.doit("forget", "compile:scale_fp32_128@sm_80").expect()
    result = built.doit("--json", "compile:scale_fp32_128@sm_80", **cache).expect()
    start, step, end = [json.loads(line) for line in result.output.splitlines()]
    assert (start["total"], step["result"], end["cached"]) == (1, "cached", 1)
    assert [output["path"] for output in step["outputs"]] == [
        "build/images/sm_80/scale_fp32_128.cubin",
        "build/images/sm_80/scale_fp32_128.facts.json",
    ]
    assert all((built.folder / output["path"]).stat().st_size == output["size"] for output in step["outputs"])
    built.doit("archive:all").expect()
    result = built.doit("--json", "archive:all", "compile").expect()
    start, end = [json.loads(line) for line in result.output.splitlines()]
    assert (end["up_to_date"], end["built"]) == (start["total"], 0) and start["total"] > 4


def test_json_of_what_comes_after_a_failure(built: Project) -> None:
    built.edit("kernels/scale.py", "x * 2", "x + tl.arange(0, 64)")
    result = built.doit("--json", "objcopy:scale_fp32_128@sm_80").expect(code=1)
    lines = [json.loads(line) for line in result.output.splitlines()]
    (failure,) = [line for line in lines if line["event"] == "failure"]
    assert (failure["stage"], failure["where"]) == ("front end", "kernels/scale.py:10:36")
    assert [(line["name"].partition(":")[0], line["result"]) for line in lines if line["event"] == "step_ended"] == [
        ("compile", "failed"),
        ("objcopy", "not_tried"),
    ]
    assert (lines[-1]["failed"], lines[-1]["not_tried"]) == (1, 1)


def test_json_with_another_reporter_is_refused(project: Project) -> None:
    code, lines, errors = events(project, "-r", "zero", "quick")
    assert (code, lines) == (3, [])
    assert "--json is a reporter of its own: leave out --reporter" in errors


def test_a_build_that_cannot_start_says_so_on_standard_error_alone(built: Project) -> None:
    built.edit("kernels.yaml", "blocks:", "blokcs:")
    code, lines, errors = events(built, "compile")
    assert (code, lines) == (3, [])
    assert "did you mean 'blocks'" in errors


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_long_silence_is_broken_by_what_runs(tmp_path: Path) -> None:
    build = Build(state=State(tmp_path / "state"), root=tmp_path, folder=tmp_path / ".kiln", size=4)
    step = Step(inputs=dict, call=lambda: Call(function="a:b", arguments={}), outputs=())
    tasks = {name: StepTask(name, step, build, doc="", group=None) for name in ("one", "two", "three", "four", "five")}
    stream, clock = io.StringIO(), Clock()

    class Reporter(KilnReporter):
        pass

    Reporter.clock = clock
    reporter = Reporter(stream, {})
    reporter.initialize(tasks, list(tasks))
    assert reporter.tick() is None, "nothing runs, so there is nothing to wake up for"
    for name in ("one", "two", "three", "four"):
        reporter.execute_task(tasks[name])
        clock.now += 10
    assert reporter.tick() == pytest.approx(20)
    clock.now += 19
    reporter.tick()
    assert stream.getvalue() == ""
    clock.now += 1
    assert reporter.tick() == pytest.approx(60)
    first = "[0/5] still running: one for 60 s, two for 50 s, three for 40 s and 1 more\n"
    assert stream.getvalue() == first
    clock.now += 30
    reporter.add_success(tasks["one"])
    clock.now += 40
    reporter.tick()
    assert stream.getvalue() == f"{first}[1/5] one\n", "a line was written meanwhile"
    clock.now += 20
    reporter.tick()
    assert stream.getvalue().splitlines()[2:] == ["[1/5] still running: two for 140 s, three for 130 s, four for 120 s"]


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["lines", "json"])
def test_a_build_outlives_those_who_read_its_output(project: Project, options: tuple[str, ...]) -> None:
    """`doit | head -1`, and a log on a disk that is full."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone, Path("/dev/full").open("wb") as full:
        for stream, reason in ((gone, "Broken pipe"), (full, "No space left on device")):
            done = subprocess.run(
                [sys.executable, "-m", "doit", *options, "-a", "quick"],
                cwd=project.folder,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools")},
                stdout=stream,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                timeout=60,
            )
            said = f"kiln: the output cannot be written any more ({reason}); the build goes on without\n"
            assert (done.returncode, done.stderr) == (0, said)
