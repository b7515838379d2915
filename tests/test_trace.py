"""`doit trace` in a small project: the last build that did something, as a trace and as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from project import Project

STAGES = {
    "sm_80": ["slice", "front end", "ttir", "ttgir", "llir", "ptx", "cubin", "check"],
    "gfx942": ["slice", "front end", "ttir", "ttgir", "llir", "amdgcn", "hsaco", "check"],
}


def events(project: Project) -> list[dict[str, Any]]:
    """The events of the trace, written to a file and read back."""
    project.doit("trace", "-o", "trace.json").expect()
    found: list[dict[str, Any]] = json.loads(project.read("trace.json"))["traceEvents"]
    return found


def tracks(found: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each track's name with its complete events, in their order."""
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    spans = sorted((event for event in found if event["ph"] == "X"), key=lambda event: event["tid"])
    for tid, own in groupby(spans, key=lambda event: event["tid"]):
        yield names[tid], list(own)


def test_a_whole_build_is_a_trace_that_keeps_the_format(built: Project) -> None:
    found = events(built)
    timed = [event for event in found if event["ph"] != "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    images = {f"compile:scale_fp32_{block}@{target}" for block in (128, 256) for target in STAGES}
    assert images <= {event["name"] for event in timed if event["ph"] == "X"}
    assert len([event for event in timed if event.get("args", {}).get("result") == "built"]) == 23
    for name, spans in tracks(found):
        end = 0
        open_ends: list[int] = []
        for span in spans:
            while open_ends and open_ends[-1] <= span["ts"]:
                open_ends.pop()
            end = span["ts"] + span["dur"]
            assert span["dur"] >= 0 and (not open_ends or end <= open_ends[-1]), (name, span)
            open_ends.append(end)
        if name.startswith("worker"):
            compiles = [span for span in spans if span["cat"] == "compile"]
            assert all(span["args"]["peak_memory_MiB"] > 20 and span["args"]["bytes"] > 1000 for span in compiles)
    stages = {
        span["name"]: [
            stage["name"]
            for stage in timed
            if stage.get("cat") == "stage"
            and stage["tid"] == span["tid"]
            and 0 <= stage["ts"] - span["ts"] < span["dur"]
        ]
        for span in timed
        if span["name"] in images
    }
    assert stages == {image: STAGES[image.partition("@")[2]] for image in images}


def test_a_build_that_does_nothing_leaves_the_trace_and_one_that_does_replaces_it(built: Project) -> None:
    path = built.folder / "build/.kiln/trace.jsonl"
    before = path.read_bytes(), path.stat().st_mtime_ns
    built.doit().expect("0 built")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    built.doit("forget", "table").expect()
    built.doit("table").expect("1 built")
    assert [event["name"] for event in events(built) if event.get("cat") == "table"] == ["table"]


def test_failures_and_what_came_from_the_cache_are_in_it(built: Project, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    built.doit("-a", "compile", KILN_CACHE=cache).expect("4 built")
    for name in built.files("build/images"):
        (built.folder / "build/images" / name).unlink()
    built.edit("kernels.yaml", "[128, 256]", "[128, 192]")
    built.doit("compile", KILN_CACHE=cache).expect("2 failed", code=1)
    found = events(built)
    instants = {event["name"] for event in found if event["ph"] == "i"}
    assert instants == {"compile:scale_fp32_128@sm_80", "compile:scale_fp32_128@gfx942"}
    failed = {event["name"] for event in found if event.get("args", {}).get("result") == "failed"}
    assert failed == {"compile:scale_fp32_192@sm_80", "compile:scale_fp32_192@gfx942"}
    built.doit("trace", "--table").expect(
        r"^build of 20.*: 0 built, 2 from cache, 2 failed in \d+\.\d s$",
        r"compile:scale_fp32_128@sm_80 \(from cache\)$",
        r"compile:scale_fp32_192@sm_80 \(failed\)$",
    )


def test_the_table_says_where_the_time_went(built: Project) -> None:
    built.doit("trace", "--table").expect(
        r"^build of 20\d\d-\d\d-\d\d \S+: 23 built, 0 from cache in \d+\.\d s$",
        r"^from the first step to the last .* steps ran in \d+ % of that",
        r"^kind +steps +seconds +share +mean +longest$",
        r"^compile +4 +\d+\.\d\d +\d+ % +\d\.\d{3} +\d+\.\d\d$",
        r"^front end +\d+\.\d\d +\d+ %$",
        r"^slowest images$",
        r"^largest images$",
        r"^ +\d\.\d KiB  compile:scale_fp32_128@gfx942$",
    )


def test_what_cannot_be_is_said(built: Project, tmp_path: Path) -> None:
    built.doit("trace", "table").expect("trace takes no tasks", code=3)
    built.doit("trace", "--table", "-o", "x").expect("leave out -o", code=3)
    built.doit("trace", "-o", str(tmp_path / "missing/x.json")).expect("No such file or directory", code=3)
    shown = json.loads(built.doit("trace").expect().output)
    assert shown["traceEvents"] and shown["otherData"]["was_killed"] is False
    (built.folder / "build/.kiln/trace.jsonl").write_bytes(b"\0" * 100)
    built.doit("trace").expect("there is no trace in", code=3)
