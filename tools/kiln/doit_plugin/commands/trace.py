"""doit's command `trace`: what the last build did when, for Perfetto to show, or as a table."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.reporting.wording import columns, size_text
from kiln.engine.trace import BUILT, FAILED, RESTORED, STOPPED, TRACE, Span, Trace, read_trace
from kiln.engine.trace_events import trace_events
from kiln.errors import os_failure

_SHOWN = 10
"""how many of the slowest and of the largest"""

_OUTPUT = {
    "section": "Kiln",
    "name": "trace_file",
    "short": "o",
    "long": "output",
    "type": str,
    "default": None,
    "help": "file for the trace [default: standard output]",
}
_TABLE = {
    "section": "Kiln",
    "name": "table",
    "short": "",
    "long": "table",
    "type": bool,
    "default": False,
    "help": "say in words and numbers where the time went, in place of the trace",
}


class TraceCommand(DoitCmdBase):  # type: ignore[misc]  # doit has no types
    """Shows the trace of the last build. No task is loaded for that."""

    name = "trace"
    doc_purpose = "show when the last build ran what, and where its time went"
    doc_usage = "[-o FILE | --table]"
    doc_description = (
        "The trace is JSON in the Trace Event Format: open it at https://ui.perfetto.dev, which reads the file in the "
        "browser and sends it nowhere. There is a track for each step that could run at once, and a compile shows its "
        "stages. A build that finds nothing to do leaves the trace of the one before."
    )
    cmd_options = (_OUTPUT, _TABLE)

    def execute(self, params: Any, args: list[str]) -> int:
        """Write the trace or the table. Raises InvalidCommand where there is no trace, or no place for it."""
        if args:
            raise InvalidCommand(f"trace takes no tasks: {args[0]!r}")
        if params["table"] and params["trace_file"] is not None:
            raise InvalidCommand("--table is printed: leave out -o, or --table for the trace itself")
        if not isinstance(self.loader, KilnLoader):
            raise InvalidCommand("this dodo.py has no rules of Kiln's, and so no trace")
        # Relative to where the command was typed; the loader goes to the folder of dodo.py.
        output = None if params["trace_file"] is None else Path(params["trace_file"]).absolute()
        self.loader.setup(params)
        path = self.loader.private_folder() / TRACE
        trace = read_trace(path)
        if trace is None:
            raise InvalidCommand(f"there is no trace in {path}: no build has run a step here since it was made")
        if params["table"]:
            self.outstream.write("\n".join(_table(trace)) + "\n")
            return 0
        text = json.dumps(trace_events(trace)) + "\n"
        if output is None:
            # What reads it may have seen enough: `doit trace | head`.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            self.outstream.write(text)
            return 0
        try:
            output.write_text(text, "utf-8")
        except OSError as error:
            raise InvalidCommand(str(os_failure("the trace cannot be written", error, output))) from error
        return 0


def _table(trace: Trace) -> Iterator[str]:
    began = datetime.fromtimestamp(trace.unix).astimezone().isoformat(" ", "seconds")
    counts = {result: sum(span.result == result for span in trace.spans) for result in (BUILT, FAILED, STOPPED)}
    parts = [f"{counts[BUILT]} built", f"{sum(span.result == RESTORED for span in trace.spans)} from cache"]
    parts += [f"{count} {result}" for result, count in counts.items() if count and result != BUILT]
    killed = "; it was killed, and what ran then is not in the trace" if trace.was_killed else ""
    yield f"build of {began}: {', '.join(parts)} in {trace.ended:.1f} s{killed}"
    ran = [span for span in trace.spans if span.slot is not None]
    if ran:
        wall = max(span.done for span in ran) - min(span.asked for span in ran)
        places = wall * trace.slots
        busy, cpu = sum(span.seconds for span in ran), sum(span.cpu for span in ran)
        yield (
            f"from the first step to the last {wall:.1f} s, with room for {trace.slots} at once: "
            f"steps ran in {_share(busy, places)} of that, and used the processor in {_share(cpu, places)}"
        )
        yield from _by_kind(ran)
        yield from _by_stage(ran)
    compiled = [span for span in trace.spans if span.kind == "compile"]
    slowest = [span for span in compiled if span.slot is not None]
    yield from _top("slowest images", slowest, lambda span: span.seconds, lambda span: f"{span.seconds:.2f} s")
    yield from _top("largest images", compiled, lambda span: span.size, lambda span: size_text(span.size))
    yield from _top("most memory", ran, lambda span: span.peak, lambda span: size_text(span.peak))


def _by_kind(ran: Sequence[Span]) -> Iterator[str]:
    kinds: dict[str, list[float]] = {}
    for span in ran:
        kinds.setdefault(span.kind, []).append(span.seconds)
    total = sum(map(sum, kinds.values()))
    rows = [
        (
            kind,
            str(len(times)),
            f"{sum(times):.2f}",
            _share(sum(times), total),
            f"{sum(times) / len(times):.3f}",
            f"{max(times):.2f}",
        )
        for kind, times in sorted(kinds.items(), key=lambda item: -sum(item[1]))
    ]
    yield ""
    yield from columns([("kind", "steps", "seconds", "share", "mean", "longest"), *rows])


def _by_stage(ran: Sequence[Span]) -> Iterator[str]:
    """Where the compiles' time went; what no stage is, such as the start of the process, stands last."""
    compiled = [span for span in ran if span.kind == "compile" and span.stages]
    if not compiled:
        return
    stages: dict[str, float] = {}
    for span in compiled:
        for name, began, ended in span.stages:
            stages[name] = stages.get(name, 0.0) + ended - began
    total = sum(span.seconds for span in compiled)
    stages["other"] = max(0.0, total - sum(stages.values()))
    rows = [(name, f"{seconds:.2f}", _share(seconds, total)) for name, seconds in stages.items()]
    yield ""
    yield from columns([("stage of compile", "seconds", "share"), *rows])


def _top(title: str, spans: Sequence[Span], key: Callable[[Span], float], text: Callable[[Span], str]) -> Iterator[str]:
    if not spans:
        return
    yield ""
    yield title
    chosen = sorted(spans, key=lambda span: (-key(span), span.name))[:_SHOWN]
    width = max(len(text(span)) for span in chosen)
    for span in chosen:
        yield f"  {text(span):>{width}}  {span.name}{'' if span.result == BUILT else f' ({span.result})'}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "0 %"
