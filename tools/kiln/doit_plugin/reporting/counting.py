"""Counts what becomes of the steps of a build; reporters that are made of it say so."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from doit.exceptions import UnmetDependency
from doit.reporter import ConsoleReporter

from kiln.doit_plugin.build_folder import warn
from kiln.doit_plugin.reporting.failures import Failure, Groups
from kiln.doit_plugin.selection import needed
from kiln.doit_plugin.tasks import StepTask

Result = Literal["built", "cached", "failed", "not_tried"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the steps that were asked for, and what it took."""

    built: int
    cached: int
    up_to_date: int
    failed: int
    not_tried: int
    wall_seconds: float
    cpu_seconds: float
    """of this process and of all that it has started and waited for"""


class CountingReporter(ConsoleReporter):  # type: ignore[misc]  # doit has no types
    """The part of a reporter that keeps count. Two are made of it: for people, and for machines."""

    size = 1
    """how many steps run at once"""
    command = "doit -v 2"
    """what runs a step again and shows all that is printed, before its name"""
    stopped = False
    """whether a signal ended the build"""
    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, outstream: Any, options: dict[str, Any]) -> None:
        super().__init__(outstream, options)
        self.began = self.clock()
        self.total = 0
        """how many steps are asked for"""
        self._counted: set[str] = set()
        """those of them that doit has a task for"""
        self.results: dict[Result, int] = {"built": 0, "cached": 0, "failed": 0, "not_tried": 0}
        self.fresh = 0
        self.groups = Groups()
        self.running: dict[str, float] = {}
        """steps that run -> when they started"""
        self.waiting_for_failed: list[str] = []
        self.others: list[str] = []
        """users' own tasks that failed"""

    # -- what is for the children to say

    def begun(self, names: list[str]) -> None:
        """The build begins; `names` are the steps that doit has a task for, of those that are asked for."""

    def step_is_fresh(self, task: StepTask) -> None:
        """A step is up to date."""

    def step_waits(self, task: StepTask) -> None:
        """A step is stale, and waits for its turn."""

    def step_started(self, task: StepTask) -> None:
        """A step runs."""

    def step_ended(self, task: StepTask, result: Result, failure: Failure | None, *, is_first: bool) -> None:
        """A step is over that was not up to date. `is_first` says whether its failure is none of those before."""

    def printed(self, name: str, output: str) -> None:
        """What a step printed, for people who asked for it with -v 2."""

    def tick(self) -> float | None:
        """To be called again and again; returns the seconds after which it wants to be called at the latest."""
        return None

    def put(self, text: str) -> None:
        """Write at once, for what reads a pipe waits for it. When nobody reads any more, the build goes on."""
        try:
            self.outstream.write(text)
            self.outstream.flush()
        except OSError as error:
            # What comes after, and what Python still holds of this, goes nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.outstream.fileno())
            os.close(nowhere)
            warn(f"the output cannot be written any more ({error.strerror}); the build goes on without")

    def warn(self, text: str) -> None:
        """Tell people what is no step's own affair, on standard error."""
        warn(text)

    # -- what doit tells

    def initialize(self, tasks: Any, selected_tasks: Any) -> None:
        """Count the steps that the selected tasks need."""
        names = [name for name in needed(tasks, selected_tasks) if isinstance(tasks[name], StepTask)]
        self._counted = set(names)
        self.total = self.fresh + len(names)
        self.begun(names)

    def add_fresh(self, count: int) -> None:
        """Steps that are needed, and were found fresh before doit had a task for them."""
        self.fresh += count

    def execute_task(self, task: Any) -> None:
        """A step, or a user's task, starts."""
        if isinstance(task, StepTask):
            self.running[task.name] = self.clock()
            self.step_started(task)
        else:
            super().execute_task(task)

    def add_success(self, task: Any) -> None:
        """A step is done."""
        if isinstance(task, StepTask):
            self._end(task, "cached" if task.is_restored else "built")

    def skip_uptodate(self, task: Any) -> None:
        """Counted; a line each would bury what was done."""
        if isinstance(task, StepTask):
            self._count(task)
            self.fresh += 1
            self.step_is_fresh(task)
        elif not task.has_subtask:
            super().skip_uptodate(task)

    def add_failure(self, task: Any, fail: Any) -> None:
        """A step failed, or was not tried because one before it did."""
        if isinstance(task, StepTask):
            if isinstance(fail, UnmetDependency):
                self.waiting_for_failed.append(task.name)
                self._end(task, "not_tried")
            else:
                failure = Failure.of(task, fail, self.command)
                self._end(task, "failed", failure)
        elif not (task.has_subtask and isinstance(fail, UnmetDependency)):
            self.others.append(task.name)
            super().add_failure(task, fail)

    def _count(self, task: StepTask) -> None:
        """That a step is the `setup` of a user's task shows when that task runs."""
        if task.name not in self._counted:
            self._counted.add(task.name)
            self.total += 1

    def _end(self, task: StepTask, result: Result, failure: Failure | None = None) -> None:
        self._count(task)
        self.running.pop(task.name, None)
        self.results[result] += 1
        is_first = failure is not None and self.groups.add(failure)
        self.step_ended(task, result, failure, is_first=is_first)

    @property
    def done(self) -> int:
        """How many steps are over, one way or another."""
        return self.fresh + sum(self.results.values())

    def counts(self) -> Counts:
        """To be asked at the end, when what was started has ended."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return Counts(
            built=self.results["built"],
            cached=self.results["cached"],
            up_to_date=self.fresh,
            failed=self.results["failed"],
            not_tried=self.total - self.done + self.results["not_tried"],
            wall_seconds=self.clock() - self.began,
            cpu_seconds=sum(each.ru_utime + each.ru_stime for each in used),
        )
