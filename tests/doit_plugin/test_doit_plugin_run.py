"""What rides on a compile, through doit: told of, counted and recorded as if it had run by itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kiln.engine.state import State
from kiln.engine.trace import Trace, read_trace
from project import Project

IMAGE = "scale_fp32_128@sm_80"
STEPS = {kind: f"{kind}:{IMAGE}" for kind in ("compile", "validate", "objcopy")}


def trace_of(project: Project) -> Trace:
    trace = read_trace(project.folder / "build/.kiln/trace.jsonl")
    assert trace is not None
    return trace


def recorded(project: Project) -> dict[str, Any]:
    """What is recorded of each step, but for what it took and when."""
    rows = State(project.folder / "build/.kiln/state.sqlite").rows
    return {
        name: (row.components, row.found, row.valid, [(out.path, out.size, out.sha256) for out in row.outputs])
        for name, row in rows.items()
    }


@pytest.fixture
def edited(built: Project) -> Project:
    """A project whose images are to be compiled."""
    built.edit("kernels/scale.py", "x * 2", "x * 3")
    return built


def test_an_images_steps_are_one_job_and_are_told_of_one_by_one(edited: Project) -> None:
    result = edited.doit("--json", *STEPS.values()).expect()
    start, *lines, end = [json.loads(line) for line in result.output.splitlines()]
    assert edited.rode() == {STEPS["validate"], STEPS["objcopy"]}
    assert (start["total"], end["built"], end["up_to_date"], end["failed"]) == (3, 3, 0, 0)
    told = [(line["event"], line["name"]) for line in lines]
    assert told[:2] == [("step_started", STEPS["compile"]), ("step_ended", STEPS["compile"])]
    for name in (STEPS["validate"], STEPS["objcopy"]):
        assert told.index(("step_ended", name)) == told.index(("step_started", name)) + 1
    ended = {line["name"]: line for line in lines if line["event"] == "step_ended"}
    assert all(line["result"] == "built" and line["seconds"] > 0 and line["outputs"] for line in ended.values())
    assert ended[STEPS["validate"]]["seconds"] < ended[STEPS["compile"]]["seconds"]
    stages = {span.name: [stage for stage, _, _ in span.stages] for span in trace_of(edited).spans}
    assert stages[STEPS["objcopy"]] == ["objcopy"] and stages[STEPS["validate"]] == []
    edited.doit("trace").expect(*STEPS.values())


def test_what_rode_is_what_a_run_of_its_own_makes(edited: Project) -> None:
    """The same bytes, the same record; and fresh for whoever asks."""
    edited.doit().expect("0 failed")
    assert {name for name in edited.rode() if name.startswith(("validate:", "objcopy:"))}
    edited.doit("explain", *STEPS.values()).expect(f"^{STEPS['compile']}: fresh$", "^0 stale, 3 fresh$")
    edited.doit("verify").expect("are what was built$")
    together, files = recorded(edited), edited.files()
    contents = {name: (edited.folder / "build" / name).read_bytes() for name in files}
    for kind in ("validate", "objcopy"):
        edited.doit("forget", kind).expect()
        edited.doit(kind).expect("4 built")
        assert edited.rode() == set()
    assert recorded(edited) == together
    assert {name: (edited.folder / "build" / name).read_bytes() for name in edited.files()} == contents
    assert edited.doit().expect().counts["built"] == 0


def test_nothing_rides_that_nobody_asked_for(edited: Project) -> None:
    before = (edited.folder / "build/reports/sm_80/scale_fp32_128.json").stat().st_mtime_ns
    edited.doit(STEPS["compile"]).expect("1 built, 0 up to date")
    assert [span.name for span in trace_of(edited).spans] == [STEPS["compile"]]
    assert (edited.folder / "build/reports/sm_80/scale_fp32_128.json").stat().st_mtime_ns == before
    edited.doit("explain", STEPS["validate"]).expect(f"^{STEPS['validate']}: stale")
    edited.doit(STEPS["validate"]).expect("1 built, 1 up to date")
    edited.doit("forget", STEPS["compile"]).expect()
    edited.doit(STEPS["objcopy"]).expect()
    assert not {span.name for span in trace_of(edited).spans} & {STEPS["validate"]}


def test_always_and_single_keep_their_meaning(built: Project) -> None:
    built.doit("-a", *STEPS.values()).expect("3 built, 0 up to date")
    assert built.rode() == {STEPS["validate"], STEPS["objcopy"]}
    built.doit("-a", "-s", *STEPS.values()).expect("3 built, 0 up to date")
    assert built.rode() == set()
    built.doit("-a", "-s", STEPS["validate"]).expect("1 built, 0 up to date")


def test_what_the_first_leaves_as_it_was_is_up_to_date(built: Project) -> None:
    built.doit("forget", STEPS["compile"]).expect()
    before = {name: (built.folder / "build" / name).stat().st_ctime_ns for name in built.files()}
    built.doit(*STEPS.values()).expect("1 built, 2 up to date")
    assert [span.name for span in trace_of(built).spans] == [STEPS["compile"]]
    assert {name: (built.folder / "build" / name).stat().st_ctime_ns for name in built.files()} == before
    assert not (built.folder / "build/.kiln/tmp").exists()


def test_nothing_rides_on_what_came_from_the_cache(edited: Project, tmp_path: Path) -> None:
    cache = {"KILN_CACHE": str(tmp_path / "cache")}
    edited.doit(STEPS["compile"], **cache).expect("1 built")
    edited.doit("forget", STEPS["compile"]).expect()
    edited.doit(*STEPS.values(), **cache).expect("2 built, 1 from cache")
    assert edited.rode() == set()
    # And what the cache has of a step is taken, though it rode along.
    edited.doit("forget", *STEPS.values()).expect()
    (tmp_path / "cache").rename(tmp_path / "full")
    edited.doit(STEPS["compile"], **cache).expect("1 built")
    edited.doit("forget", *STEPS.values()).expect()
    edited.doit(*STEPS.values(), KILN_CACHE=str(tmp_path / "full")).expect("0 built, 3 from cache")


def block(output: str, name: str) -> str:
    """The block of a failure."""
    found = re.search(rf"^FAILED {re.escape(name)}\n(?:  .*\n)+", output, re.MULTILINE)
    assert found, output
    return found.group()


def test_a_failure_reads_as_that_of_a_run_of_its_own(edited: Project) -> None:
    edited.edit("kernels.yaml", "    grid:", "    budgets: {size: 10}\n    grid:")
    together = edited.doit("-c", *STEPS.values()).expect("2 built, 0 up to date, 1 failed", code=1)
    assert edited.rode() == {STEPS["objcopy"]}
    alone = edited.doit(STEPS["validate"]).expect("0 built, 1 up to date, 1 failed", code=1)
    assert block(together.output, STEPS["validate"]) == block(alone.output, STEPS["validate"])
    assert f"reproduce: doit -v 2 {STEPS['validate']}" in block(alone.output, STEPS["validate"])


def test_a_tool_that_fails_beside_a_compile_is_told_with_the_published_names(edited: Project, tmp_path: Path) -> None:
    tool = tmp_path / "objcopy"
    tool.write_text("#!/bin/sh\necho 'objcopy: it is broken' >&2\nexit 1\n", "utf-8")
    tool.chmod(0o755)
    together = edited.doit("-c", *STEPS.values(), OBJCOPY=str(tool)).expect("2 built", "1 failed", code=1)
    assert edited.rode() == {STEPS["validate"]}
    alone = edited.doit(STEPS["objcopy"], OBJCOPY=str(tool)).expect("1 failed", code=1)
    assert block(together.output, STEPS["objcopy"]) == block(alone.output, STEPS["objcopy"])
    assert ".kiln/tmp" not in block(alone.output, STEPS["objcopy"])
