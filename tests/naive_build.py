"""What a build must run, found the naive way: every input is asked anew, from nothing, and compared by value.

It goes by what a test remembers of earlier builds, and not by Kiln's state, outline or cache. What is shared with a
build are the rules and what digests are made of.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from kiln.digests import digest_bytes
from kiln.doit_plugin.rules import collect
from kiln.engine.rows import Output, Row, Rows
from kiln.engine.state import State
from kiln.engine.step import Step, kind_of
from kiln.errors import KilnError
from kiln.library import Library
from random_rules import Kind, made


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered of a step's last good run."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, bytes]
    is_valid: bool = True
    """False once it was tried again, and failed"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a build must do, and what is to be remembered afterwards."""

    ran: set[str]
    failed: set[str]
    not_tried: set[str]
    fresh: set[str]
    outputs: set[str]
    """all files that the steps of the project make, also those that were not asked for"""
    records: Mapping[str, Record]
    keys: Mapping[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]]
    """of those that ran and go to the cache: their inputs, and the roles of their outputs"""


class Naive:
    """One project, and what is remembered of its builds; the current folder is the project's."""

    def __init__(self, kinds: Mapping[str, Kind], records: Mapping[str, Record], broken: set[str]) -> None:
        self._kinds = kinds
        self._records = dict(records)
        self._broken = broken
        self._root = Path("build").absolute()
        state = State(self._root / "no such state")
        # The digests that steps ask of what others made.
        self._rows = cast(Rows, state.rows)
        self._library = Library.load(Path("kernels.yaml"), self._root, state)
        for name, record in records.items():
            self._rows[name] = _row(record)
        self._makers: dict[str, Callable[[], Step]] = {}
        for rule in collect(runpy.run_path("dodo.py")):
            self._makers |= dict(rule.steps(self._library))
        self._results: dict[str, str] = {}
        self._keys: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]] = {}

    def plan(self, selection: Sequence[str]) -> Plan:
        """Of a build of the selection, all for an empty one."""
        for name in [*self._records]:
            if name not in self._makers:
                del self._records[name], self._rows[name]
        for name in self._makers:
            if not selection or any(name == each or name.startswith((f"{each}:", f"{each}@")) for each in selection):
                self._do(name)
        sets = {result: {name for name, own in self._results.items() if own == result} for result in _RESULTS}
        outputs = {path for make in self._makers.values() for path in make().outputs}
        return Plan(records=self._records, keys=self._keys, outputs=outputs, **sets)

    def _do(self, name: str) -> str:
        if name not in self._results:
            self._results[name] = self._done(name, self._makers[name]())
        return self._results[name]

    def _done(self, name: str, step: Step) -> str:
        before = {self._do(each) for each in step.after}
        if before & {"failed", "not_tried"}:
            return "not_tried"
        record = self._records.get(name)
        try:
            inputs = dict(step.inputs())
        except (KilnError, OSError):
            return self._fail(name)
        if record is not None and record.is_valid and record.inputs == inputs and self._is_there(record):
            return "fresh"
        if name in self._broken:
            return self._fail(name)
        read = [text.decode() for each in step.after for text in self._records[each].outputs.values()]
        texts = made(self._kinds[kind_of(name)], inputs, read)
        outputs = {path: text.encode() for path, text in zip(step.outputs, texts, strict=True)}
        self._records[name] = Record(inputs=inputs, outputs=outputs)
        self._rows[name] = _row(self._records[name])
        if step.cached:
            self._keys[name] = tuple(sorted(inputs.items())), step.cached
        return "ran"

    def _fail(self, name: str) -> str:
        if name in self._records:
            self._records[name] = replace(self._records[name], is_valid=False)
        return "failed"

    def _is_there(self, record: Record) -> bool:
        paths = {self._root / path: data for path, data in record.outputs.items()}
        return all(
            path.is_file() and not path.is_symlink() and path.read_bytes() == data for path, data in paths.items()
        )


_RESULTS = ("ran", "failed", "not_tried", "fresh")


def _row(record: Record) -> Row:
    outputs = tuple(
        Output(path=path, size=len(data), ctime_ns=0, sha256=digest_bytes(data))
        for path, data in record.outputs.items()
    )
    return Row(components=record.inputs, outputs=outputs, seconds=0.0, peak_memory=0, valid=record.is_valid)
