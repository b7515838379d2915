"""How long a build still takes, by what its steps took before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from kiln.engine.rows import Row
from kiln.engine.step import kind_of

_SAMPLE = 300
"""rows of a kind that are read to tell what a step takes that is not known: to read all would take longer than that"""


class Estimate:
    """What is left of a build of the steps `names`, of which `size` run at once.

    A step that never ran, or that
    nobody has asked after yet, is expected to take as long as its kind does on average.
    """

    def __init__(self, rows: Mapping[str, Row], names: Iterable[str], size: int) -> None:
        self._rows = rows
        self._size = size
        self._kinds = Counter(map(kind_of, names))
        """how many steps of each kind are left, without those below"""
        self._asked: dict[str, float] = {}
        """what those take that wait or run, and have been recorded"""
        self._sum = 0.0
        self._taken: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        read: Counter[str] = Counter()
        for name in rows:
            if self._kinds[kind_of(name)] and read[kind_of(name)] < _SAMPLE:
                read[kind_of(name)] += 1
                self._learn(name, rows[name].seconds)

    def _learn(self, name: str, seconds: float) -> None:
        self._taken[kind_of(name)] += 1
        self._seconds[kind_of(name)] += seconds

    def waits(self, name: str) -> None:
        """The step is stale, and waits or runs."""
        row = self._rows.get(name)
        if row is not None and name not in self._asked:
            self._kinds[kind_of(name)] -= 1
            self._asked[name] = row.seconds
            self._sum += row.seconds

    def is_over(self, name: str, seconds: float | None = None) -> None:
        """The step needs no more time; `seconds` are what it took, where it ran."""
        if name in self._asked:
            self._sum -= self._asked.pop(name)
        else:
            self._kinds[kind_of(name)] -= 1
        if seconds is not None:
            self._learn(name, seconds)

    def left(self, running: Mapping[str, float]) -> float | None:
        """Seconds until the last step ends, where `running` have run for so long; None while nothing is known."""
        if not self._taken:
            return None
        rest = {name: max(0.0, self._expected(name) - elapsed) for name, elapsed in running.items()}
        done = sum(self._expected(name) - rest[name] for name in running)
        waiting = sum(count * self._mean(kind) for kind, count in self._kinds.items())
        return max([(self._sum + waiting - done) / self._size, *rest.values()])

    def _expected(self, name: str) -> float:
        return self._asked[name] if name in self._asked else self._mean(kind_of(name))

    def _mean(self, kind: str) -> float:
        return self._seconds[kind] / self._taken[kind] if self._taken[kind] else 0.0
