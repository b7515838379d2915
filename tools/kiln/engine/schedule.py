"""Which step starts next: the longest first, and only while the memory that steps take fits into what is free."""

from __future__ import annotations

import bisect
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kiln.engine.rows import Row
from kiln.engine.step import kind_of

_UNKNOWN_PEAK = 512 << 20
"""bytes that a step is expected to take while nothing is known of its kind"""
_SAMPLE = 300
"""how many rows of a kind are read to tell what a step that never ran may take: to read all may take longer than it"""
_LOOKED_AT = 100
"""how many steps of a kind are asked whether they fit; among thousands that do not, the next hardly does"""


@dataclass(kw_only=True)
class _Kind:
    """The waiting steps of one kind, and the most that is known of any."""

    known: list[tuple[float, int, str]] = field(default_factory=list)
    """-seconds, place in the order of arrival, name; sorted"""
    unknown: deque[tuple[int, str]] = field(default_factory=deque)
    """place and name"""
    seconds: float = 0.0
    peak: int = 0
    is_sampled: bool = False
    """whether what is recorded counts for the most; until then only what has run"""


class Schedule:
    """Steps that wait for a place in the pool. What earlier builds recorded of them says what they will take.

    One that never ran is expected to take as long, and as much memory, as the largest of its kind; one of a kind that
    never ran goes first of all.
    """

    def __init__(self, rows: Mapping[str, Row], memory: int | None) -> None:
        self._rows = rows
        self._memory = memory
        self._kinds: defaultdict[str, _Kind] = defaultdict(_Kind)
        self._waiting = 0
        self._arrived = 0

    def __len__(self) -> int:
        return self._waiting

    def learn(self, name: str, row: Row) -> None:
        """Take note of what a step took."""
        kind = self._kinds[kind_of(name)]
        kind.seconds = max(kind.seconds, row.seconds)
        kind.peak = max(kind.peak, row.peak_memory)

    def add(self, name: str) -> None:
        """Let a step wait for its turn."""
        self._arrived += 1
        self._waiting += 1
        kind, row = self._kinds[kind_of(name)], self._rows.get(name)
        if row is None:
            kind.unknown.append((self._arrived, name))
        else:
            bisect.insort(kind.known, (-row.seconds, self._arrived, name))

    def clear(self) -> None:
        """Let nothing wait any more."""
        self._waiting = 0
        for kind in self._kinds.values():
            kind.known.clear()
            kind.unknown.clear()

    def next(self, running: Iterable[str]) -> str | None:
        """Take the step that should start beside those that run; None when none waits or none fits.

        When nothing runs, the longest starts whatever it is expected to take: waiting would make no room for it.
        """
        running = list(running)
        free = None
        if running and self._memory is not None:
            free = self._memory - sum(self._peak(name) for name in running)
        best: tuple[float, int, _Kind, int | None] | None = None
        for kind in self._kinds.values():
            for found in (self._first_unknown(kind, free), self._first_known(kind, free)):
                if found is not None and (best is None or found[:2] < best[:2]):
                    best = found
        if best is None:
            return None
        _, _, kind, index = best
        self._waiting -= 1
        return kind.unknown.popleft()[1] if index is None else kind.known.pop(index)[2]

    def _first_unknown(self, kind: _Kind, free: int | None) -> tuple[float, int, _Kind, None] | None:
        """-seconds and place of the step of a kind that goes first among those that never ran, if it fits."""
        if not kind.unknown:
            return None
        place, name = kind.unknown[0]
        self._sample(name)
        if free is not None and self._peak(name) > free:
            return None
        # Of two that should take equally long, the one that nobody has seen may take longer.
        return (-kind.seconds or -float("inf")), -1 if kind.seconds else place, kind, None

    def _first_known(self, kind: _Kind, free: int | None) -> tuple[float, int, _Kind, int] | None:
        for index, (seconds, place, name) in enumerate(kind.known[:_LOOKED_AT]):
            if free is None or self._peak(name) <= free:
                return seconds, place, kind, index
        return None

    def _peak(self, name: str) -> int:
        row = self._rows.get(name)
        return (row.peak_memory if row is not None else 0) or self._sample(name).peak or _UNKNOWN_PEAK

    def _sample(self, name: str) -> _Kind:
        """The step's kind, with the most that is recorded; only what never ran needs it, and to find it takes long."""
        kind = self._kinds[kind_of(name)]
        if not kind.is_sampled:
            kind.is_sampled = True
            for other in islice((other for other in self._rows if kind_of(other) == kind_of(name)), _SAMPLE):
                self.learn(other, self._rows[other])
        return kind
