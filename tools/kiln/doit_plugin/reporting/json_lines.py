"""Says what a build does, for machines: one JSON object a line; docs/json-lines.md says what is in each."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from doit.exceptions import UnmetDependency

from kiln import __version__
from kiln.doit_plugin.reporting.counting import CountingReporter, Result
from kiln.doit_plugin.reporting.failures import Failure
from kiln.doit_plugin.tasks import StepTask, shown

SCHEMA = 1
"""goes up when a field goes away or means another thing; new events and new fields leave it as it is"""


class JsonLines(CountingReporter):
    """Writes the events of a build to `outstream`, each at once."""

    desc = "for machines: what `--json` switches on"

    def begun(self, names: list[str]) -> None:
        """The first line."""
        self._tell("start", schema=SCHEMA, kiln=__version__, total=self.total, size=self.size)

    def step_started(self, task: StepTask) -> None:
        """A step runs in a child."""
        self._tell("step_started", name=task.name)

    def step_ended(self, task: StepTask, result: Result, failure: Failure | None, *, is_first: bool) -> None:
        """How it ended, and what is known of it."""
        row = task.build.state.rows.get(task.name) if result in ("built", "cached") else None
        seconds = row.seconds if row is not None else None
        peak_memory = row.peak_memory if row is not None else None
        if failure is not None:
            seconds, peak_memory = failure.seconds, failure.peak_memory
        outputs = [
            {"path": shown(task.build.root / output.path), "size": output.size, "sha256": output.sha256}
            for output in (row.outputs if row is not None else ())
        ]
        self._tell(
            "step_ended", name=task.name, result=result, seconds=seconds, peak_memory=peak_memory, outputs=outputs
        )
        if failure is not None:
            error = failure.error
            self._tell(
                "failure",
                name=task.name,
                stage=error.stage,
                message=error.what,
                where=None if error.where is None else str(error.where),
                expected=error.expected,
                actual=error.actual,
                remedy=error.remedy,
                printed="\n".join(failure.printed) or None,
                trace="\n".join(failure.trace) or None,
                declared=list(failure.declared),
                log=failure.log,
                reproduce=failure.reproduce,
            )

    def printed(self, name: str, output: str) -> None:
        """What a step printed, where -v 2 asks for it."""
        self._tell("printed", name=name, output=output)

    def execute_task(self, task: Any) -> None:
        """A user's task is told as well; groups are not."""
        super().execute_task(task)
        if not isinstance(task, StepTask) and task.actions:
            self._tell("task_started", name=task.name)

    def add_success(self, task: Any) -> None:
        """The same for its end."""
        super().add_success(task)
        if not isinstance(task, StepTask) and task.actions:
            self._tell("task_ended", name=task.name, result="done", message=None)

    def add_failure(self, task: Any, fail: Any) -> None:
        """The same for its failure."""
        super().add_failure(task, fail)
        if not isinstance(task, StepTask) and task.actions:
            result = "not_tried" if isinstance(fail, UnmetDependency) else "failed"
            self._tell("task_ended", name=task.name, result=result, message=fail.get_msg().strip())

    def complete_run(self) -> None:
        """The last line."""
        super().complete_run()
        self._tell("end", stopped=self.stopped, **asdict(self.counts()), tasks_failed=len(self.others))

    def write(self, text: str) -> None:
        """What doit's own reporter says of users' tasks is no JSON."""
        sys.stderr.write(text)

    def _tell(self, event: str, **fields: Any) -> None:
        self.put(json.dumps({"event": event, **fields}) + "\n")
