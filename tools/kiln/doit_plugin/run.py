"""doit's run command for Kiln: steps overlap in children of the fork server, users' own tasks run as doit runs them."""

from __future__ import annotations

import signal
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from doit.cmd_run import Run as DoitRun
from doit.cmd_run import opt_num_process
from doit.control import TaskControl
from doit.exceptions import InvalidCommand, TaskFailed, UnmetDependency
from doit.runner import FAILURE, Runner
from doit.task import Stream

from kiln.doit_plugin.loader import MANIFEST, KilnLoader, hold_lock, warn
from kiln.doit_plugin.owner import claim
from kiln.doit_plugin.tasks import StepTask
from kiln.engine.build import Build, Finished
from kiln.errors import KilnError


class StepFailed(TaskFailed):  # type: ignore[misc]  # doit has no types
    """A step failed; `finished` says how. Its message is what reporters print."""

    def __init__(self, error: Exception, finished: Finished | None) -> None:
        known = isinstance(error, KilnError)
        super().__init__(str(error) if known else f"{type(error).__name__}: {error}")
        self.finished = finished
        self.trace = finished.trace if finished else None if known else "".join(traceback.format_exception(error))


class StepRunner(Runner):  # type: ignore[misc]  # doit has no types
    """Keeps the pool full: takes ready tasks from doit's dispatcher, and gives back those that ended."""

    final_result: int

    def __init__(self, build: Build, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._build = build
        self._warned: set[str] = set()

    def run_tasks(self, task_dispatcher: Any) -> None:
        """Run what the dispatcher hands out, until nothing is left or, without --continue, something failed."""
        generator, completed, exhausted = task_dispatcher.generator, None, False
        while True:
            while self._build.free and not exhausted and not self._stop_running:
                try:
                    node = generator.send(completed)
                except StopIteration:
                    exhausted = True
                    break
                completed = None
                if node == "hold on":
                    break
                if not self._begin(node, task_dispatcher.tasks):
                    completed = node
            if not self._build.running:
                return
            finished = self._build.finish()
            completed = task_dispatcher.nodes[finished.name]
            self._end(completed, finished)

    def _begin(self, node: Any, tasks: Any) -> bool:
        """Whether the node's task now runs in the pool; otherwise it is over already."""
        if not self.select_task(node, tasks):
            return False
        task = node.task
        if not isinstance(task, StepTask):
            self.process_task_result(node, self.execute_task(task))
            return False
        try:
            self._build.start(task.name, task.step)
        except Exception as error:
            # A fault in one rule, or in Kiln, costs that step only.
            self._build.fail(task.name)
            self._handle_task_error(node, StepFailed(error, None))
            return False
        task.executed = True
        self.reporter.execute_task(task)
        self._warn(task)
        return True

    def _warn(self, task: StepTask) -> None:
        """Say what the step has to say, once for all that say the same: the images of a kernel share it."""
        warning = task.step.warning()
        if warning is not None and warning not in self._warned:
            self._warned.add(warning)
            warn(f"warning: {warning}")

    def _end(self, node: Any, finished: Finished) -> None:
        if finished.output and self.stream.effective_verbosity(None) == 2:
            self.reporter.write(f"{finished.name} printed:\n{finished.output.rstrip()}\n")
        if finished.error is not None:
            self._handle_task_error(node, StepFailed(finished.error, finished))
            return
        node.run_status = "successful"
        self.reporter.add_success(node.task)

    def _handle_task_error(self, node: Any, base_fail: Any) -> None:
        if isinstance(base_fail, UnmetDependency):
            # Nothing is wrong with this task: it keeps its record, and the exit code stays that of the failure.
            node.run_status = "failure"
            self.reporter.add_failure(node.task, base_fail)
            self.final_result = self.final_result or FAILURE
            return
        super()._handle_task_error(node, base_fail)


def _terminate(number: int, frame: object) -> None:
    """End by an exception, once: a second signal must not break what the first has begun to clean up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


class Run(DoitRun):  # type: ignore[misc]  # doit has no types
    """doit's `run`, over Kiln's engine."""

    cmd_options = tuple(
        {**option, "help": "how many steps run at once [default: the number of cores]"}
        if option is opt_num_process
        else option
        for option in DoitRun.cmd_options
    )

    def _execute(
        self,
        outfile: Any,
        verbosity: int | None = None,
        always: bool = False,
        continue_: bool = False,
        reporter: Any = "kiln",
        num_process: int = 0,
        par_type: str = "process",
        single: bool = False,
        auto_delayed_regex: bool = False,
        force_verbosity: bool = False,
        failure_verbosity: int = 0,
        pdb: bool = False,
    ) -> int:
        loader = self.loader
        if not isinstance(loader, KilnLoader) or loader.build is None:
            # A dodo.py without rules is plain doit.
            result: int = super()._execute(
                outfile, verbosity, always, continue_, "console" if reporter == "kiln" else reporter, 0, par_type,
                single, auto_delayed_regex, force_verbosity, failure_verbosity, pdb,
            )  # fmt: skip
            return result
        self.control = TaskControl(self.task_list, auto_delayed_regex=auto_delayed_regex)
        self.control.process(self.sel_tasks)
        if single:
            for name in self.control.selected_tasks:
                task = self.control.tasks[name]
                for member in task.task_dep if task.has_subtask else [name]:
                    self.control.tasks[member].task_dep = []
        build = loader.build
        if num_process < 1:
            raise InvalidCommand(f"-n is {num_process}: it is how many steps run at once, 1 or more")
        build.size = num_process
        # A terminated build ends like an interrupted one: children dead, temporary files gone, finished work kept.
        signal.signal(signal.SIGTERM, _terminate)
        with ExitStack() as stack:
            stream = outfile
            if isinstance(outfile, str):
                stream = stack.enter_context(Path(outfile).open("w", encoding="utf-8"))
            kind = self.reporters[reporter] if isinstance(reporter, str) else reporter
            chosen = kind(stream, {"failure_verbosity": failure_verbosity}) if isinstance(kind, type) else kind
            runner = StepRunner(build, self.dep_manager, chosen, continue_, always, Stream(verbosity, force_verbosity))
            try:
                hold_lock(stack, build)
                claim(build.lock.parent, Path.cwd(), MANIFEST)
                stack.enter_context(build)
                build.sweep(set(loader.makers), loader.outputs)
                for warning in build.state.warnings:
                    warn(warning)
                code: int = runner.run_all(self.control.task_dispatcher())
                build.state.commit_files()
                build.state.close()
            except KilnError as error:
                warn(str(error))
                code = 2
            except KeyboardInterrupt:
                warn("stopped; what was finished is kept")
                code = 128 + signal.SIGINT
            return code
