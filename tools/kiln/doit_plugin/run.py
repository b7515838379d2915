"""doit's run command for Kiln: steps overlap in children of the fork server, users' own tasks run as doit runs them."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from doit.cmd_run import Run as DoitRun
from doit.cmd_run import opt_num_process
from doit.control import TaskControl
from doit.exceptions import InvalidCommand, UnmetDependency
from doit.runner import FAILURE, Runner
from doit.task import Stream

from kiln.doit_plugin.build_folder import MANIFEST, hold_lock, warn
from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.main import KILN_BUILD
from kiln.doit_plugin.owner import claim
from kiln.doit_plugin.reporting.counting import CountingReporter
from kiln.doit_plugin.reporting.failures import StepFailed
from kiln.doit_plugin.selection import check_made, named_early, needed
from kiln.doit_plugin.stamp import write_stamp
from kiln.doit_plugin.tasks import StepTask
from kiln.engine.build import Build, Finished
from kiln.engine.cache import StepCache
from kiln.engine.interrupts import Interrupts
from kiln.engine.local_cache import LocalCache, settings
from kiln.engine.state import State
from kiln.engine.step import Step
from kiln.errors import KilnError


class StepRunner(Runner):  # type: ignore[misc]  # doit has no types
    """Keeps the pool full: takes ready tasks from doit's dispatcher, and gives back those that ended."""

    final_result: int

    def __init__(self, build: Build, interrupts: Interrupts, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._build = build
        self._interrupts = interrupts
        self._told: CountingReporter | None = self.reporter if isinstance(self.reporter, CountingReporter) else None
        self._warned: set[str] = set()
        self._nodes: dict[str, Any] = {}
        """doit's node of each step that waits or runs"""
        self._riders: Mapping[str, Mapping[str, Step]] = {}
        """step -> the steps that are asked for and ride on it"""

    def run_tasks(self, task_dispatcher: Any) -> None:
        """Run what the dispatcher hands out, until nothing is left or, without --continue, something failed.

        All that is ready is taken from it, so that the build can choose what starts next. That takes long in a large
        library: meanwhile steps start, and end.
        """
        completed: deque[Any] = deque()
        exhausted = False
        self._riders = _riders(task_dispatcher.tasks, task_dispatcher.selected_tasks)
        while True:
            held = False
            while not (exhausted or held or self._stop_running):
                self._look()
                try:
                    node = task_dispatcher.generator.send(completed.popleft() if completed else None)
                except StopIteration:
                    exhausted = True
                    break
                if node == "hold on":
                    held = not completed
                elif not self._wait_or_end(node, task_dispatcher.tasks):
                    completed.append(node)
                completed += self._start()
                if self._build.has_finished:
                    completed += self._finish()
            if self._stop_running:
                self._build.stop_waiting()
            completed += self._start()
            if self._build.running:
                completed += self._finish()
            elif exhausted or self._stop_running or not completed:
                return

    def _wait_or_end(self, node: Any, tasks: Any) -> bool:
        """Whether the node's task now waits for its turn in the pool; otherwise it is over already."""
        task = node.task
        if not self.select_task(node, tasks):
            self._build.drop_ahead(task.name)
            return False
        if not isinstance(task, StepTask):
            # Of a group nothing runs, and there are many.
            with self._interrupts.raising() if task.actions else nullcontext():
                failure = self.execute_task(task)
            self.process_task_result(node, failure)
            return False
        try:
            # With -a people ask for the run, not for what it makes.
            restored = not self.always_execute and self._build.restore(task.name, task.step)
        except Exception as error:
            self._fail(node, error)
            return False
        if restored:
            self._build.drop_ahead(task.name)
            task.executed = task.is_restored = True
            self._warn(task)
            self._succeed(node)
            return False
        if finished := self._build.finish_ahead(task.name, task.step):
            self._tell_start(task)
            self._tell_end(node, finished)
            return False
        self._build.wait_for(task.name)
        self._nodes[task.name] = node
        if self._told is not None:
            self._told.step_waits(task)
        return True

    def _start(self) -> list[Any]:
        """Start what may start; the nodes of what cannot."""
        failed = []
        while name := self._build.next():
            task = self._nodes[name].task
            try:
                self._build.start(name, task.step, self._riders.get(name))
            except Exception as error:
                failed.append(self._nodes.pop(name))
                self._fail(failed[-1], error)
                continue
            self._tell_start(task)
        return failed

    def _tell_start(self, task: StepTask) -> None:
        task.executed = True
        self.reporter.execute_task(task)
        self._warn(task)

    def _fail(self, node: Any, error: Exception) -> None:
        """A fault in one rule, or in Kiln, costs that step only."""
        # Ctrl-C reaches the tools that a digest asks, too: that they died is no fault of the step.
        self._interrupts.check()
        self._build.fail(node.task.name)
        self._handle_task_error(node, StepFailed(error, None))

    def _warn(self, task: StepTask) -> None:
        """Say what the step has to say, once for all that say the same: the images of a kernel share it."""
        warning = task.step.warning()
        if warning is not None and warning not in self._warned:
            self._warned.add(warning)
            teller(self.reporter)(f"warning: {warning}")

    def _finish(self) -> list[Any]:
        """The node of the next step that ends, and those of what could not start in its place."""
        while not self._build.finishes_within(self._look(), self._interrupts.wake):
            self._interrupts.clear()
        failed: list[Any] = []
        finished = self._build.finish(on_free=lambda: failed.extend(self._start()))
        node = self._nodes.pop(finished.name)
        self._tell_end(node, finished)
        return [node, *failed]

    def _tell_end(self, node: Any, finished: Finished) -> None:
        if finished.output and self.stream.effective_verbosity(None) == 2:
            if self._told is not None:
                self._told.printed(finished.name, finished.output)
            else:
                sys.stdout.write(f"{finished.name} printed:\n{finished.output.rstrip()}\n")
        if finished.error is not None:
            self._handle_task_error(node, StepFailed(finished.error, finished))
        else:
            self._succeed(node)

    def _look(self) -> float | None:
        """Between two things: end the build if it is to end, and let the reporter draw.

        Returns the seconds after which that is to be done again, None where there is no need.
        """
        self._interrupts.check()
        return self._told.tick() if self._told is not None else None

    def finish(self) -> int:
        """Report how it ended, when nothing runs any more."""
        self._build.end_children()
        if self._told is not None:
            self._told.stopped = self._interrupts.number is not None
        result: int = super().finish()
        return result

    def _succeed(self, node: Any) -> None:
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


def _riders(tasks: Mapping[str, Any], selected: Iterable[str]) -> Mapping[str, Mapping[str, Step]]:
    """step -> the steps that ride on it, of those that the selected tasks need."""
    found: dict[str, dict[str, Step]] = {}
    for task in map(tasks.__getitem__, needed(tasks, selected)):
        # With --single a task comes after none, and then it is done by itself.
        if isinstance(task, StepTask) and task.step.rides and task.task_dep == list(task.step.after):
            (first,) = task.step.after
            found.setdefault(first, {})[task.name] = task.step
    return found


_NO_CACHE = {
    "section": "Kiln",
    "name": "no_cache",
    "short": "",
    "long": "no-cache",
    "type": bool,
    "default": False,
    "help": "take nothing from the cache of earlier builds, and put nothing there",
}


_JSON = {
    **_NO_CACHE,
    "name": "as_json",
    "long": "json",
    "help": "print what happens as one JSON object a line, and nothing else",
}


_STAMP = {
    **_NO_CACHE,
    "name": "stamp",
    "long": "stamp",
    "type": str,
    "default": None,
    "help": "write FILE after a build without failures, FILE.d, a depfile with all that the build went by, and "
    "FILE.env, the names of the variables that it went by",
}


def teller(reporter: Any) -> Callable[[str], None]:
    """What tells people something beside what a reporter says of tasks."""
    return reporter.warn if isinstance(reporter, CountingReporter) else warn


@contextmanager
def _stdout_apart() -> Iterator[TextIO]:
    """Standard output as a stream of its own. What else writes there, a child as well, writes to standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        try:
            yield stream
        finally:
            sys.stdout.flush()
            os.dup2(stream.fileno(), 1)


def _cache(tell: Callable[[str], None]) -> LocalCache | None:
    """The user's cache, if there is to be one. Raises InvalidCommand for what cannot be meant."""
    try:
        where = settings(os.environ)
    except KilnError as error:
        raise InvalidCommand(str(error)) from error
    return None if where is None else LocalCache(where, warn=tell)


def _sorted_out(nodes: Mapping[str, Any]) -> tuple[dict[str, Step], set[str], set[str]]:
    """The steps that are fresh now, the names of those that ran for that, and the names of the others."""
    steps = {name: node for name, node in nodes.items() if isinstance(node.task, StepTask)}
    good = {name for name, node in steps.items() if node.run_status in ("up-to-date", "successful")}
    ran = {name for name in good if steps[name].run_status == "successful"}
    return {name: steps[name].task.step for name in good}, ran, steps.keys() - good


def _tell_of(state: State) -> None:
    """What people should know of the record of earlier builds, as far as it is news."""
    for warning in state.untold():
        warn(warning)


def _json_lines() -> type[CountingReporter]:
    """Imported when it is asked for."""
    from kiln.doit_plugin.reporting.json_lines import JsonLines

    return JsonLines


class Run(DoitRun):  # type: ignore[misc]  # doit has no types
    """doit's `run`, over Kiln's engine."""

    cmd_options = (
        *(option for option in DoitRun.cmd_options if option is not opt_num_process),
        {**opt_num_process, "help": "how many steps run at once [default: the number of cores]"},
        _NO_CACHE,
        _JSON,
        _STAMP,
    )
    _json_stream: TextIO | None = None
    """where `--json` writes"""

    def execute(self, params: Any, args: list[str]) -> int:
        """Load the tasks and run them; with `--json`, nothing but that reaches standard output on the way."""
        code: int
        if not params["as_json"]:
            code = super().execute(params, args)
            return code
        if params["reporter"] not in ("kiln", "console"):
            raise InvalidCommand("--json is a reporter of its own: leave out --reporter")
        with _stdout_apart() as self._json_stream:
            code = super().execute(params, args)
        return code

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
        no_cache: bool = False,
        as_json: bool = False,
        stamp: str | None = None,
    ) -> int:
        loader = self.loader
        if not isinstance(loader, KilnLoader) or loader.build is None:
            if as_json:
                raise InvalidCommand("--json tells of steps, and this dodo.py has no rules of Kiln's")
            if stamp is not None:
                raise InvalidCommand("--stamp is for what steps go by, and this dodo.py has no rules of Kiln's")
            # A dodo.py without rules is plain doit.
            result: int = super()._execute(
                outfile, verbosity, always, continue_, "console" if reporter == "kiln" else reporter, 0, par_type,
                single, auto_delayed_regex, force_verbosity, failure_verbosity, pdb,
            )  # fmt: skip
            return result
        self.control = TaskControl(self.task_list, auto_delayed_regex=auto_delayed_regex)
        self.control.process(self.sel_tasks)
        early = named_early(self.control)
        if single:
            for name in self.control.selected_tasks:
                task = self.control.tasks[name]
                for member in task.task_dep if task.has_subtask else [name]:
                    self.control.tasks[member].task_dep = []
        loader.check(lambda: needed(self.control.tasks, self.control.selected_tasks))
        build = loader.build
        if num_process < 1:
            raise InvalidCommand(f"-n is {num_process}: it is how many steps run at once, 1 or more")
        build.size = num_process
        interrupts = Interrupts()
        with ExitStack() as stack:
            stack.callback(interrupts.leave)
            # What doit has for it is of before closed streams were opened.
            stream = self._json_stream or outfile or sys.stdout
            if isinstance(outfile, str):
                stream = stack.enter_context(Path(outfile).open("w", encoding="utf-8"))
            kind = _json_lines() if as_json else self.reporters[reporter] if isinstance(reporter, str) else reporter
            chosen = kind(stream, {"failure_verbosity": failure_verbosity}) if isinstance(kind, type) else kind
            if isinstance(chosen, CountingReporter):
                chosen.began, chosen.size = loader.began, num_process
                chosen.add_fresh(len(loader.fresh))
                chosen.command = self._command(loader, stamp)
            tell = teller(chosen)
            cache = None if no_cache else _cache(tell)
            if loader.has_nothing_to_do:
                chosen.initialize({}, [])
                chosen.complete_run()
                return self._stamped(loader, stamp)
            told = (self.dep_manager, chosen, continue_, always, Stream(verbosity, force_verbosity))
            runner = StepRunner(build, interrupts, *told)
            try:
                if not loader.holds_lock:
                    hold_lock(stack, build)
                # What a write met on the way.
                stack.callback(_tell_of, build.state)
                # From here on there is what has to be left in order.
                interrupts.watch()
                loader.begin()
                claim(build.lock.parent, Path.cwd(), MANIFEST)
                if cache is not None:
                    build.cache = StepCache(cache, root=build.root, files=build.state.files, warn=tell)
                    # After the build has put there what it made last.
                    stack.callback(lambda used: cache.close(used.counts), build.cache)
                stack.enter_context(build)
                if loader.may_have_gone:
                    build.sweep(loader.known, loader.outputs)
                else:
                    build.clear()
                _tell_of(build.state)
                dispatcher = self.control.task_dispatcher()
                code: int = runner.run_all(dispatcher)
                build.state.commit_files()
                build.state.close()
                loader.save_outline(*_sorted_out(dispatcher.nodes))
                check_made(early, self.control)
                if code == 0:
                    code = self._stamped(loader, stamp)
            except KilnError as error:
                warn(str(error))
                code = 2
            except KeyboardInterrupt:
                warn("stopped; what was finished is kept")
                code = 128 + (interrupts.number or signal.SIGINT)
            return code

    def _command(self, loader: KilnLoader, stamp: str | None) -> str:
        """What people run a step again with, before its name; with a stamp the build is a part of another tool's, whose
        folder and Python theirs need not be."""
        program = KILN_BUILD if self.bin_name == KILN_BUILD else "doit"
        words = shlex.join([*loader.options, "-v", "2"])
        if stamp is None:
            return f"{program} {words}"
        return f"cd {shlex.quote(str(loader.started))} && {shlex.quote(sys.executable)} -m {program} {words}"

    def _stamped(self, loader: KilnLoader, stamp: str | None) -> int:
        """Write the stamp that was asked for; the exit code."""
        if stamp is not None:
            try:
                write_stamp(loader.started / stamp, loader.answers(), loader.began_ns)
            except KilnError as error:
                warn(str(error))
                return 2
        return 0
