"""A trace in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Source of the format: "Trace Event Format", Google, the document that Chromium's tracing refers to: complete events (X)
of one thread nest by their times, instants (i), counters (C) and names (M); times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kiln.engine.trace import RESTORED, Span, Trace

_PID = 1
_BUILD = 0
"""the track of the build's own process; those of the pool's slots follow it, and then that of the cache"""


def trace_events(trace: Trace) -> dict[str, Any]:
    """The trace as one JSON object."""
    events = [*_spans(trace), *_counters(trace)]
    # What begins together is nested: the longer one is outside.
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    return {
        "traceEvents": [*_names(trace), *events],
        "displayTimeUnit": "ms",
        "otherData": {
            "began": datetime.fromtimestamp(trace.unix, UTC).isoformat(),
            "slots": trace.slots,
            "was_killed": trace.was_killed,
        },
    }


def _names(trace: Trace) -> Iterator[dict[str, Any]]:
    names = ["build", *(f"worker {slot + 1}" for slot in range(_slots(trace))), "from cache"]
    yield {"ph": "M", "name": "process_name", "pid": _PID, "args": {"name": "doit"}}
    for number, name in enumerate(names):
        yield {"ph": "M", "name": "thread_name", "pid": _PID, "tid": number, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": _PID, "tid": number, "args": {"sort_index": number}}


def _slots(trace: Trace) -> int:
    return max([trace.slots, *(span.slot + 1 for span in trace.spans if span.slot is not None)])


def _spans(trace: Trace) -> Iterator[dict[str, Any]]:
    yield _complete("load the graph", "build", _BUILD, 0.0, trace.entered)
    for span in trace.spans:
        if span.result == RESTORED or span.slot is None:
            yield {
                "ph": "i",
                "name": span.name,
                "cat": span.kind,
                "pid": _PID,
                "tid": _slots(trace) + 1,
                "ts": _us(span.began),
                "s": "t",
                "args": _about(span),
            }
            continue
        tid = span.slot + 1
        if _us(span.asked) < _us(span.began):
            yield _complete("start the process", "pool", tid, span.asked, span.began)
        yield {**_complete(span.name, span.kind, tid, span.began, span.ended), "args": _about(span)}
        for stage, began, ended in span.stages:
            if span.began <= began <= ended <= span.ended:
                yield _complete(stage, "stage", tid, began, ended)


def _about(span: Span) -> dict[str, Any]:
    about: dict[str, Any] = {"result": span.result, "bytes": span.size}
    if span.result != RESTORED:
        about |= {"cpu_seconds": span.cpu, "peak_memory_MiB": span.peak >> 20}
        # Others may have been published first.
        about["waited_to_be_published_ms"] = round(1000 * max(0.0, span.done - span.ended), 3)
    return about


def _complete(name: str, category: str, tid: int, began: float, ended: float) -> dict[str, Any]:
    # Both ends are rounded, and not the length: so what lies within another span stays within it.
    start = _us(began)
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _PID,
        "tid": tid,
        "ts": start,
        "dur": _us(ended) - start,
    }


def _counters(trace: Trace) -> Iterator[dict[str, Any]]:
    """How many steps run, and what memory they take if each takes its peak all the time."""
    changes: dict[int, list[int]] = {0: [0, 0]}
    for span in trace.spans:
        if span.slot is not None:
            for time, sign in ((span.began, 1), (span.ended, -1)):
                change = changes.setdefault(_us(time), [0, 0])
                change[0] += sign
                change[1] += sign * span.peak
    running = memory = 0
    for time in sorted(changes):
        running += changes[time][0]
        memory += changes[time][1]
        yield {"ph": "C", "name": "steps", "pid": _PID, "tid": _BUILD, "ts": time, "args": {"running": running}}
        args = {"MiB": memory >> 20}
        yield {"ph": "C", "name": "peak memory of what runs", "pid": _PID, "tid": _BUILD, "ts": time, "args": args}


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
