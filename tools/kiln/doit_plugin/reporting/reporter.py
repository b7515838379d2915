"""Says what a build does, for people: a live board on a terminal, lines elsewhere; blocks for failures, a summary."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from kiln.doit_plugin.reporting.counting import CountingReporter, Result
from kiln.doit_plugin.reporting.failures import Failure, Group
from kiln.doit_plugin.reporting.wording import some
from kiln.doit_plugin.tasks import StepTask
from kiln.engine.estimate import Estimate

_SILENCE = 60.0
"""seconds without a line, after which one says what still runs"""
_QUICK = 0.3
"""seconds that a build may take without a board: one that comes and goes at once is a flicker"""


class KilnReporter(CountingReporter):
    """The doit reporter `kiln`."""

    desc = "a board on a terminal, else a line a finished step; failures as blocks, a summary"

    def __init__(self, outstream: Any, options: dict[str, Any]) -> None:
        super().__init__(outstream, options)
        self._left: set[str] = set()
        """the steps that are not over, as long as there is nothing to estimate"""
        self._estimate: Estimate | None = None
        self._board: Any = None
        self._last = self.began
        """when a line was written last"""
        self._is_red = False
        if outstream.isatty():
            from kiln.doit_plugin.reporting.board import Board, is_live

            if is_live(outstream, os.environ):
                self._board = Board(outstream, self.put)
                self._is_red = not os.environ.get("NO_COLOR")

    def write(self, text: str) -> None:
        """Write above the board."""
        self._erase()
        self.put(text)
        self._last = self.clock()

    def warn(self, text: str) -> None:
        """Write on standard error, which may be the same terminal."""
        self._erase()
        super().warn(text)

    def begun(self, names: list[str]) -> None:
        """Keep the names for an estimate, if one is asked for."""
        self._left = set(names)

    def execute_task(self, task: Any) -> None:
        """A step is reported when it ends; a user's task when it starts, as doit does."""
        super().execute_task(task)
        if not isinstance(task, StepTask):
            # Its output is its own affair, and may come without a line of doit's in front.
            self._erase()

    def step_waits(self, task: StepTask) -> None:
        """Begin to estimate: the build has something to do."""
        if self._board is not None:
            if self._estimate is None:
                self._estimate = Estimate(task.build.state.rows, self._left, self.size)
            self._estimate.waits(task.name)

    def step_is_fresh(self, task: StepTask) -> None:
        """A step less for the estimate."""
        self._is_over(task.name, None)

    def step_ended(self, task: StepTask, result: Result, failure: Failure | None, *, is_first: bool) -> None:
        """A line where there is no board; a block for a failure that is none of those before."""
        row = task.build.state.rows.get(task.name) if result == "built" else None
        self._is_over(task.name, row.seconds if row is not None else None)
        if failure is not None and is_first:
            self.write(self._coloured(failure.block()))
        elif result in ("built", "cached") and self._board is None:
            self.write(f"[{self.done}/{self.total}] {task.name}{' from cache' if result == 'cached' else ''}\n")

    def _is_over(self, name: str, seconds: float | None) -> None:
        if self._estimate is not None:
            self._estimate.is_over(name, seconds)
        else:
            self._left.discard(name)

    def printed(self, name: str, output: str) -> None:
        """What a step printed, as a block."""
        self.write(f"{name} printed:\n{output.rstrip()}\n")

    def tick(self) -> float | None:
        """Draw the board, or break a long silence."""
        now = self.clock()
        if self._board is not None:
            if now - self.began > _QUICK:
                self._board.draw(now, self._lines)
            return 0.1
        if not self.running:
            return None
        if now - self._last >= _SILENCE:
            elapsed = self._elapsed()
            longest = sorted(elapsed, key=lambda name: -elapsed[name])
            shown = ", ".join(f"{name} for {elapsed[name]:.0f} s" for name in longest[:3])
            more = f" and {len(longest) - 3} more" if len(longest) > 3 else ""
            self.write(f"[{self.done}/{self.total}] still running: {shown}{more}\n")
        return max(0.1, self._last + _SILENCE - now)

    def _lines(self, height: int) -> Sequence[str]:
        from kiln.doit_plugin.reporting.board import clock, running_lines

        words: dict[Result, str] = {"built": "built", "cached": "from cache", "failed": "failed"}
        counts = [f"{self.results[result]} {word}" for result, word in words.items() if self.results[result]]
        elapsed = self._elapsed()
        left = self._estimate.left(elapsed) if self._estimate is not None else None
        counts.append(clock(self.clock() - self.began))
        if left is not None and left >= 1:
            counts.append(f"about {clock(left)} to go")
        return [f"[{self.done}/{self.total}] {', '.join(counts)}", *running_lines(elapsed, height)]

    def _elapsed(self) -> dict[str, float]:
        now = self.clock()
        return {name: now - started for name, started in self.running.items()}

    def _erase(self) -> None:
        if self._board is not None:
            self._board.erase()

    def _coloured(self, block: str) -> str:
        head, _, rest = block.partition("\n")
        return f"\x1b[1;31m{head}\x1b[0m\n{rest}\n" if self._is_red else f"{block}\n"

    def complete_run(self) -> None:
        """The summary; doit's own repeats the output of users' tasks that failed."""
        self._erase()
        super().complete_run()
        for group in self.groups.all:
            self._tell_others(group)
        if self.waiting_for_failed:
            self.write(f"not built, because what they need failed: {some(self.waiting_for_failed)}\n")
        counts = self.counts()
        parts = [f"{counts.built} built", f"{counts.up_to_date} up to date", f"{counts.failed} failed"]
        if counts.cached:
            parts.insert(1, f"{counts.cached} from cache")
        if counts.not_tried:
            parts.append(f"{counts.not_tried} not tried")
        if self.others:
            parts.append(f"{len(self.others)} other tasks failed ({some(self.others)})")
        self.write(f"{', '.join(parts)} in {counts.wall_seconds:.1f} s ({counts.cpu_seconds:.1f} s CPU)\n")

    def _tell_others(self, group: Group) -> None:
        if group.same:
            self.write(f"the failure of {group.first.name} is also that of {some(group.same)}\n")
        if group.alike:
            self.write(f"the failure of {group.first.name}, with other numbers, is also that of {some(group.alike)}\n")
