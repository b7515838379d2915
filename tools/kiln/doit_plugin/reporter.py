"""Says what a build does: one line a finished step, one block a failure, one line at the end."""

from __future__ import annotations

import time
from typing import Any

from doit.exceptions import UnmetDependency
from doit.reporter import ConsoleReporter

from kiln.doit_plugin.tasks import StepTask, shown


class KilnReporter(ConsoleReporter):  # type: ignore[misc]  # doit has no types
    """The doit reporter `kiln`."""

    desc = "a line a finished step, failures as blocks, a summary"

    def __init__(self, outstream: Any, options: dict[str, Any]) -> None:
        super().__init__(outstream, options)
        self._began = time.monotonic()
        self._total = 0
        self._built = 0
        self._fresh = 0
        self._failed: dict[str, list[str]] = {}
        self._waiting: list[str] = []
        self._others: list[str] = []
        """users' own tasks that failed"""

    def initialize(self, tasks: Any, selected_tasks: Any) -> None:
        """Count the steps that the selected tasks need."""
        seen: set[str] = set()
        pending = list(selected_tasks)
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                pending += tasks[name].task_dep
        self._total = sum(isinstance(tasks[name], StepTask) for name in seen)

    def execute_task(self, task: Any) -> None:
        """A step is reported when it ends; a user's task when it starts, as doit does."""
        if not isinstance(task, StepTask):
            super().execute_task(task)

    def add_success(self, task: Any) -> None:
        """A step is done."""
        if isinstance(task, StepTask):
            self._built += 1
            self.write(f"[{self._done}/{self._total}] {task.name}\n")

    def skip_uptodate(self, task: Any) -> None:
        """Counted; a line each would bury what was done."""
        if isinstance(task, StepTask):
            self._fresh += 1
        elif not task.has_subtask:
            super().skip_uptodate(task)

    def add_failure(self, task: Any, fail: Any) -> None:
        """One block for a failure; the same one in further images is only counted, and listed at the end."""
        if not isinstance(task, StepTask):
            if not (task.has_subtask and isinstance(fail, UnmetDependency)):
                self._others.append(task.name)
                super().add_failure(task, fail)
            return
        if isinstance(fail, UnmetDependency):
            self._waiting.append(task.name)
            return
        text = fail.get_msg().strip()
        # The same fault in another image differs in the image's name alone.
        image = task.name.partition(":")[2]
        fault = text.replace(image, "<image>").replace(image.partition("@")[0], "<variant>") if image else text
        first = fault not in self._failed
        self._failed.setdefault(fault, []).append(task.name)
        if not first:
            return
        finished = getattr(fail, "finished", None)
        lines = [f"FAILED {task.name}", *(f"  {line}" for line in text.splitlines())]
        if trace := getattr(fail, "trace", None):
            lines += [f"  {line}" for line in trace.strip().splitlines()]
        if task.step.origin:
            lines.append(f"  declared: {', '.join(task.step.origin)}")
        if finished is not None and finished.log is not None:
            lines.append(f"  log: {shown(finished.log)}")
        lines.append(f"  reproduce: doit -v 2 {task.name}")
        self.write("\n".join(lines) + "\n")

    def complete_run(self) -> None:
        """The summary; doit's own repeats the output of users' tasks that failed."""
        super().complete_run()
        for names in self._failed.values():
            if len(names) > 1:
                self.write(f"the failure of {names[0]} is also that of {_some(names[1:])}\n")
        if self._waiting:
            self.write(f"not built, because what they need failed: {_some(self._waiting)}\n")
        failed = sum(len(names) for names in self._failed.values())
        parts = [f"{self._built} built", f"{self._fresh} up to date", f"{failed} failed"]
        if self._waiting:
            parts.append(f"{len(self._waiting)} not tried")
        if self._others:
            parts.append(f"{len(self._others)} other tasks failed ({_some(self._others)})")
        self.write(f"{', '.join(parts)} in {time.monotonic() - self._began:.1f} s\n")

    @property
    def _done(self) -> int:
        failed = sum(len(names) for names in self._failed.values())
        return self._built + self._fresh + failed + len(self._waiting)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")
