"""The trace of a build: what a recorder writes is read back, damaged files are none, and the events keep the format."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kiln.engine.jobs import Ended
from kiln.engine.rows import Output
from kiln.engine.trace import BUILT, FAILED, RESTORED, STOPPED, Recorder, Trace, read_trace
from kiln.engine.trace_events import trace_events

OUTPUTS = tuple(Output(path=f"{size}.bin", size=size, ctime_ns=0, sha256="0" * 64) for size in (10, 3000, 20))


def ended(name: str, *, seconds: float = 0.5, peak: int = 100 << 20, stages: bool = True) -> Ended:
    """How a job ended that began now."""
    now = time.monotonic()
    inner = (("front end", now + 0.1, now + 0.2), ("ptx", now + 0.2, now + 0.4)) if stages else ()
    return Ended(
        name=name,
        error=None,
        trace=None,
        output="",
        seconds=seconds,
        peak_memory=peak,
        cpu_seconds=0.25,
        began=now,
        stages=inner,
    )


def record(path: Path) -> Trace:
    """A build with two places: three steps that ran, one that came from the cache, and one that was stopped."""
    recorder = Recorder(path, lambda: 2)
    recorder.enter()
    recorder.restored("compile:d@sm_80", time.monotonic(), OUTPUTS)
    for name in ("compile:a@sm_80", "compile:b@sm_80"):
        recorder.start(name, time.monotonic())
    recorder.leave("compile:b@sm_80")
    recorder.end(ended("compile:b@sm_80"), OUTPUTS, failed=False)
    recorder.start("validate:b@sm_80", time.monotonic())
    recorder.leave("compile:a@sm_80")
    recorder.end(ended("compile:a@sm_80", stages=False), (), failed=True)
    recorder.leave("validate:b@sm_80")
    recorder.end(ended("validate:b@sm_80"), OUTPUTS[:1], failed=False)
    recorder.start("compile:c@sm_80", time.monotonic())
    recorder.close()
    trace = read_trace(path)
    assert trace is not None
    return trace


def check_format(shown: dict[str, Any]) -> None:
    """The rules of the Trace Event Format, for the phases that a trace has."""
    events = shown["traceEvents"]
    timed = [event for event in events if event["ph"] != "M"]
    assert events[: len(events) - len(timed)] == [event for event in events if event["ph"] == "M"]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    threads = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["doit"]
    open_until: dict[int, list[int]] = {}
    for event in timed:
        assert event["ph"] in "XiC" and event["pid"] == 1 and event["tid"] in threads
        assert isinstance(event["ts"], int) and event["ts"] >= 0 and event["name"]
        if event["ph"] == "i":
            assert event["s"] == "t"
        if event["ph"] == "C":
            assert all(isinstance(value, int) and value >= 0 for value in event["args"].values())
        if event["ph"] == "X":
            # Spans of one track lie within one another, or after one another.
            assert isinstance(event["dur"], int) and event["dur"] >= 0
            ends, end = open_until.setdefault(event["tid"], []), event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"]:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    trace = record(tmp_path / "trace.jsonl")
    assert [(span.name, span.result, span.slot) for span in trace.spans] == [
        ("compile:d@sm_80", RESTORED, None),
        ("compile:b@sm_80", BUILT, 1),
        ("compile:a@sm_80", FAILED, 0),
        ("validate:b@sm_80", BUILT, 1),
        ("compile:c@sm_80", STOPPED, 0),
    ]
    built = trace.spans[1]
    assert (built.size, built.peak, built.cpu, built.kind) == (3000, 100 << 20, 0.25, "compile")
    assert built.seconds == pytest.approx(0.5, abs=1e-5)
    assert [stage for stage, _, _ in built.stages] == ["front end", "ptx"]
    assert (trace.slots, trace.was_killed) == (2, False)
    assert time.time() - 10 < trace.unix <= time.time()


def test_events_keep_the_format(tmp_path: Path) -> None:
    # Times as they are measured: the jobs' half seconds overlap on a track here, so they are put apart.
    path = tmp_path / "trace.jsonl"
    record(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    times = {"compile:b@sm_80": 1.0, "compile:a@sm_80": 1.2, "validate:b@sm_80": 2.0, "compile:c@sm_80": 3.0}
    for line in lines:
        if line.get("name") in times:
            begin = times[line["name"]]
            line |= {"asked": begin - 0.05, "began": begin, "ended": begin + 0.5, "done": begin + 0.6}
            line["stages"] = [["front end", begin, begin + 0.2], ["ptx", begin + 0.2, begin + 0.5]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trace = read_trace(path)
    assert trace is not None
    shown = json.loads(json.dumps(trace_events(trace)))
    check_format(shown)
    events = shown["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        "build",
        "worker 1",
        "worker 2",
        "from cache",
    }
    assert [event["name"] for event in events if event["ph"] == "i"] == ["compile:d@sm_80"]
    front = next(event for event in events if event["name"] == "front end" and event["tid"] == 2)
    assert (front["ts"], front["dur"], front["cat"]) == (1_000_000, 200_000, "stage")
    memory = [event["args"]["MiB"] for event in events if event["name"] == "peak memory of what runs"]
    assert max(memory) == 200 and memory[-1] == 0


def test_a_trace_is_begun_by_the_first_step_and_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record(path)
    idle = Recorder(path, lambda: 2)
    idle.enter()
    before = path.read_bytes()
    idle.close()
    assert path.read_bytes() == before
    again = Recorder(path, lambda: 3)
    again.start("a", time.monotonic())
    again.leave("a")
    again.end(ended("a"), (), failed=False)
    trace = read_trace(path)
    # It is whole to whoever reads it while the build runs, and so is what one that was killed leaves.
    assert trace is not None and trace.was_killed and trace.slots == 3
    assert [span.name for span in trace.spans] == ["a"]
    again.close()


def test_a_job_that_could_not_be_started_has_a_place_in_the_trace(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "trace.jsonl", lambda: 1)
    recorder.start("a", time.monotonic())
    recorder.leave("a")
    recorder.end(Ended(name="a", error=None, trace=None, output="", seconds=0.0, peak_memory=0), (), failed=True)
    recorder.close()
    trace = read_trace(tmp_path / "trace.jsonl")
    assert trace is not None and [(span.result, span.seconds) for span in trace.spans] == [(FAILED, 0.0)]


def test_a_trace_cut_anywhere_or_with_foreign_lines_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    whole = record(path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        found = read_trace(path)
        if found is not None:
            assert found.spans == whole.spans[: len(found.spans)]
    head, *lines = data.splitlines(keepends=True)
    span = json.loads(lines[0])
    foreign = [
        b"\xff\xfe\n",
        b"[]\n",
        b"null\n",
        *(json.dumps({**span, **change}).encode() + b"\n" for change in ({"began": "x"}, {"slot": 0}, {"more": 1})),
        json.dumps({**json.loads(lines[1]), "stages": [["a", 1]]}).encode() + b"\n",
        json.dumps({**json.loads(lines[1]), "ended": -1}).encode() + b"\n",
    ]
    path.write_bytes(b"".join([head, *foreign, *lines]))
    assert read_trace(path) == whole


@pytest.mark.parametrize(
    "text", ["", "\n", "{}\n", '{"kiln trace": 2, "unix": 0, "slots": 1, "entered": 0}\n', "[1]\n"]
)
def test_a_file_that_is_no_trace_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.jsonl").write_text(text)
    assert read_trace(tmp_path / "trace.jsonl") is None
    assert read_trace(tmp_path / "missing") is None


def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link that somebody planted is replaced, and what it leads to is neither read nor written."""
    path, victim = tmp_path / "trace.jsonl", tmp_path / "victim"
    record(victim)
    before = victim.read_bytes()
    path.symlink_to(victim)
    assert read_trace(path) is None
    assert record(path).spans
    assert not path.is_symlink() and victim.read_bytes() == before


def test_a_place_that_cannot_be_written_costs_the_trace_only(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "missing" / "trace.jsonl", lambda: 1)
    recorder.start("a", time.monotonic())
    recorder.leave("a")
    recorder.end(ended("a"), (), failed=False)
    recorder.close()
    assert not (tmp_path / "missing").exists()
    full = Recorder(Path("/dev/full"), lambda: 1)
    full._file = Path("/dev/full").open("w")  # noqa: SIM115  # a disk that is full after the first bytes
    full.start("a", time.monotonic())
    full.leave("a")
    full.end(ended("a"), (), failed=False)
    full.start("b", time.monotonic())
    full.leave("b")
    full.end(ended("b"), (), failed=False)
    full.close()
    assert Path("/dev/full").is_char_device()
