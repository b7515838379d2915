"""doit tasks for steps: what doit lists, selects, cleans and forgets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

from doit.task import Task

from kiln.engine.build import Build
from kiln.engine.leftovers import remove
from kiln.engine.step import Step
from kiln.errors import KilnError


def shown(path: Path) -> str:
    """A path as people write it: relative to the project where it lies below it. doit matches targets by this text."""
    return _shown(path, os.getcwd())  # noqa: PTH109  # ten times as fast, and asked for every output


@cache
def _shown(path: Path, here: str) -> str:
    # Thousands of steps show the same few sources and the same build folder.
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


class Freshness:
    """doit's `uptodate` question for a step; its repr is the answer that `doit info` prints."""

    def __init__(self, build: Build, name: str, step: Step) -> None:
        self._build = build
        self._name = name
        self._step = step
        self._reasons: tuple[str, ...] = ()

    def __call__(self) -> bool:
        try:
            self._reasons = self._build.status(self._name, self._step).reasons
        except Exception as error:
            # The run command asks again and reports it as this task's failure; listings show it as a reason.
            self._reasons = (str(error) if isinstance(error, KilnError) else f"{type(error).__name__}: {error}",)
        return not self._reasons

    def __repr__(self) -> str:
        return "; ".join(self._reasons) or "fresh"


class StepTask(Task):  # type: ignore[misc]  # doit has no types
    """A doit task that stands for one step."""

    is_restored = False
    """whether the cache had what it makes, and nothing ran"""

    def __init__(self, name: str, step: Step, build: Build, *, doc: str, group: str | None) -> None:
        self.step = step
        self.build = build
        meta = {
            "declared": list(step.origin),
            "sources": [shown(path) for path in step.sources],
        }
        super().__init__(
            name,
            # Kiln's run command runs the step. doit's reporters show a task that has an action.
            actions=[f"doit {name}"],
            targets=[f"{shown(build.root)}/{output}" for output in step.outputs],
            task_dep=list(step.after),
            uptodate=[Freshness(build, name, step)],
            subtask_of=group,
            doc=doc,
            meta={key: value for key, value in meta.items() if value} or None,
        )

    def clean(self, outstream: TextIO, dryrun: bool) -> None:
        """Remove the outputs that are there, and the folders that this empties."""
        root = self.build.root
        there = [output for output in self.step.outputs if (root / output).exists()]
        for output in there:
            outstream.write(f"{self.name} - removing file '{shown(root / output)}'\n")
        if not dryrun:
            remove(root, there)


def group_task(
    name: str, members: Sequence[str], fresh: Callable[[], bool], *, doc: str, group: str | None = None
) -> Task:
    """A task without actions that stands for others; `fresh` says whether all of them are."""
    return Task(
        name,
        actions=None,
        task_dep=list(members),
        uptodate=[fresh],
        subtask_of=group,
        has_subtask=True,
        doc=doc,
    )
