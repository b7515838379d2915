"""The trace of the last build that did something: what ran when and where, a line of JSON for each step that ended.

A build writes it as it goes, so that one that is killed leaves what it did until then. Nothing relies on it: where it
cannot be written, there is none.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from kiln.engine.jobs import Ended
from kiln.engine.rows import Output
from kiln.engine.step import kind_of
from kiln.stages import Stage

TRACE = "trace.jsonl"
"""in the private folder of a build"""
_SCHEMA = 1

BUILT, FAILED, STOPPED, RESTORED = "built", "failed", "stopped", "from cache"


@dataclass(frozen=True, kw_only=True)
class Span:
    """One step. Times are seconds since the build began to load its graph."""

    name: str
    result: str
    """BUILT, FAILED, STOPPED with the build, or RESTORED from the cache"""
    slot: int | None
    """which of the places in the pool, from 0; None for one that was restored, and took none"""
    asked: float
    """when the build handed it out; the fork server may first have to import what it needs"""
    began: float
    """when its process was there"""
    ended: float
    done: float
    """when it was published and recorded"""
    cpu: float = 0.0
    """processor time in seconds"""
    peak: int = 0
    """bytes: the largest resident set of its process"""
    size: int = 0
    """bytes: of the largest file that it made, which of an image is the image"""
    stages: tuple[Stage, ...] = ()

    @property
    def kind(self) -> str:
        """`compile` of `compile:<image>`"""
        return kind_of(self.name)

    @property
    def seconds(self) -> float:
        """How long its process took."""
        return self.ended - self.began


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A build, as far as it was written down."""

    unix: float
    """when it began, in seconds since 1970"""
    slots: int
    """how many steps could run at once"""
    entered: float
    """when it had loaded its graph"""
    ended: float
    """when it ended; of one that was killed, when its last step was done"""
    was_killed: bool
    spans: tuple[Span, ...]
    """in the order in which they were done"""


class Recorder:
    """Writes the trace of one build; `size` says how many steps run at once. The file is begun by the first step."""

    def __init__(self, path: Path, size: Callable[[], int]) -> None:
        self._path = path
        self._size = size
        self._began = time.monotonic()
        self._entered = self._began
        self._file: IO[str] | None = None
        self._is_on = True
        self._running: dict[str, tuple[int, float]] = {}
        """the slot of each step that runs, and when it was handed out"""
        self._left: dict[str, tuple[int, float]] = {}
        """the same of each that runs no more, and is not published yet"""

    def enter(self) -> None:
        """The graph is loaded."""
        self._entered = time.monotonic()

    def start(self, name: str, asked: float) -> None:
        """A step was handed to the pool, when the monotonic clock said `asked`."""
        used = {slot for slot, _ in self._running.values()}
        slot = next(number for number in range(len(used) + 1) if number not in used)
        self._running[name] = slot, asked

    def leave(self, name: str) -> None:
        """A step runs no more: its slot is for the next one."""
        self._left[name] = self._running.pop(name)

    def end(self, ended: Ended, outputs: Iterable[Output], *, failed: bool) -> int:
        """What a step made that has left is published; the slot that it had."""
        slot, asked = self._left.pop(ended.name)
        self._ran(ended, slot, asked, outputs, FAILED if failed else BUILT)
        return slot

    def rode(self, ended: Ended, slot: int, outputs: Iterable[Output]) -> None:
        """What a step's call made after another's, in the same process, is published."""
        self._ran(ended, slot, ended.began, outputs, BUILT)

    def _ran(self, ended: Ended, slot: int, asked: float, outputs: Iterable[Output], result: str) -> None:
        # One that could not be started has no times of its own.
        began = ended.began or asked
        self._write(
            Span(
                name=ended.name,
                result=result,
                slot=slot,
                asked=asked,
                began=began,
                ended=began + ended.seconds,
                done=time.monotonic(),
                cpu=ended.cpu_seconds,
                peak=ended.peak_memory,
                size=_largest(outputs),
                stages=ended.stages,
            )
        )
        self._flush()

    def restored(self, name: str, began: float, outputs: Iterable[Output]) -> None:
        """What a step makes came from the cache, which was asked when the monotonic clock said `began`."""
        now = time.monotonic()
        size = _largest(outputs)
        self._write(
            Span(name=name, result=RESTORED, slot=None, asked=began, began=began, ended=now, done=now, size=size)
        )

    def close(self) -> None:
        """The build has ended; what still runs was stopped."""
        now = time.monotonic()
        for name, (slot, asked) in {**self._left, **self._running}.items():
            self._write(Span(name=name, result=STOPPED, slot=slot, asked=asked, began=asked, ended=now, done=now))
        self._running.clear()
        self._left.clear()
        if self._file is not None:
            self._put({"end": self._time(now)})
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _write(self, span: Span) -> None:
        stages = [[stage, self._time(began), self._time(ended)] for stage, began, ended in span.stages]
        times = {name: self._time(getattr(span, name)) for name in ("asked", "began", "ended", "done")}
        self._put({**vars(span), **times, "cpu": round(span.cpu, 6), "stages": stages})

    def _time(self, clock: float) -> float:
        return round(max(0.0, clock - self._began), 6)

    def _put(self, line: dict[str, Any]) -> None:
        if self._file is None and self._is_on:
            self._file = self._open()
        if self._file is not None:
            try:
                self._file.write(json.dumps(line) + "\n")
            except OSError:
                self._give_up()

    def _flush(self) -> None:
        if self._file is not None:
            try:
                self._file.flush()
            except OSError:
                self._give_up()

    def _give_up(self) -> None:
        """A disk that is full is the build's affair, and will be told there."""
        assert self._file is not None
        with suppress(OSError):
            self._file.close()
        self._file, self._is_on = None, False

    def _open(self) -> IO[str] | None:
        head = {
            "kiln trace": _SCHEMA,
            "unix": time.time() - (time.monotonic() - self._began),
            "slots": self._size(),
            "entered": self._time(self._entered),
        }
        try:
            # A file of its own: whoever reads the last trace goes on with that one, and no link is followed.
            self._path.unlink(missing_ok=True)
            file = self._path.open("x", encoding="utf-8")
            file.write(json.dumps(head) + "\n")
        except OSError:
            self._is_on = False
            return None
        return file


def _largest(outputs: Iterable[Output]) -> int:
    return max((output.size for output in outputs), default=0)


def read_trace(path: Path) -> Trace | None:
    """The trace in a file; None where there is none that this Kiln wrote. A line that is cut short counts as none."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_no_link) as file:
            head, *lines = (_parsed(line) for line in file)
            unix, slots, entered = head["unix"], head["slots"], head["entered"]
            if head["kiln trace"] != _SCHEMA:
                return None
    except (OSError, ValueError, KeyError):
        return None
    numbers = isinstance(unix, int | float) and isinstance(entered, int | float)
    if not numbers or not isinstance(slots, int) or slots < 1:
        return None
    spans = tuple(span for line in lines if (span := _span(line)) is not None)
    ends = [line["end"] for line in lines if isinstance(line.get("end"), int | float)]
    last = max((span.done for span in spans), default=entered)
    return Trace(
        unix=unix,
        slots=slots,
        entered=entered,
        ended=max(last, *ends) if ends else last,
        was_killed=not ends,
        spans=spans,
    )


def _no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW)


def _parsed(line: str) -> dict[str, Any]:
    with suppress(ValueError):
        value = json.loads(line)
        if isinstance(value, dict):
            return value
    return {}


def _span(line: dict[str, Any]) -> Span | None:
    try:
        stages = tuple((str(name), float(began), float(ended)) for name, began, ended in line["stages"])
        span = Span(**{**line, "stages": stages})
    except (KeyError, TypeError, ValueError):
        return None
    numbers = (span.asked, span.began, span.ended, span.done, span.cpu, span.peak, span.size)
    if not isinstance(span.name, str) or not all(isinstance(number, int | float) for number in numbers):
        return None
    is_slot = isinstance(span.slot, int) if span.result != RESTORED else span.slot is None
    is_ordered = 0 <= span.asked <= span.began <= span.ended
    return span if is_slot and is_ordered and span.result in (BUILT, FAILED, STOPPED, RESTORED) else None
