"""doit's command `explain`: whether a step is fresh, and if not, what changed since it ran, old and new."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.control import TaskControl
from doit.exceptions import InvalidCommand

from kiln.doit_plugin.build_folder import warn
from kiln.doit_plugin.commands.changes import change_lines, changes_shown, faults_shown, input_lines, title
from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.reporting.wording import printable, some
from kiln.doit_plugin.selection import selected
from kiln.doit_plugin.tasks import StepTask
from kiln.engine.build import Build
from kiln.engine.explain import Explainer, Explanation
from kiln.engine.step import Step

_INPUTS = {
    "section": "Kiln",
    "name": "inputs",
    "short": "",
    "long": "inputs",
    "type": bool,
    "default": False,
    "help": "list what each step depends on, too",
}
_JSON = {**_INPUTS, "name": "as_json", "long": "json", "help": "print one JSON object; see docs/explain-and-trace.md"}
_SCHEMA = 1

FRESH, STALE, FOLLOWS = "fresh", "stale", "may follow"


class Explain(DoitCmdBase):  # type: ignore[misc]  # doit has no types
    """Explains steps. It writes nothing."""

    name = "explain"
    doc_purpose = "say whether steps are fresh, and what changed since they ran"
    doc_usage = "[TASK ...]"
    doc_description = (
        "A step is stale when something that it depends on is not what it was when it ran, or an output does not hold "
        "what was built: what it was and what it is stand side by side. A fresh step that comes after a stale one runs "
        "again if that makes other bytes than before. A group, or a variant, stands for its steps, and steps with the "
        "same answer are shown once. Without a name all steps are explained. Nothing is written."
    )
    cmd_options = (_INPUTS, _JSON)

    def _execute(self, pos_args: list[str], inputs: bool, as_json: bool) -> int:
        loader = self.loader
        if not isinstance(loader, KilnLoader) or loader.build is None:
            raise InvalidCommand("this dodo.py has no rules of Kiln's, and so nothing that can be explained")
        tasks, others = self._selected(pos_args)
        if others and not tasks:
            raise InvalidCommand(
                f"{others[0]} is no step of Kiln's, but dodo.py's own task: try `doit info {others[0]}`"
            )
        steps = {task.name: task.step for task in self.task_list if isinstance(task, StepTask)}
        explainer = Explainer(loader.build, steps)
        found = [explainer.explain(task.name, with_inputs=inputs) for task in tasks]
        for warning in loader.build.state.untold():
            warn(warning)
        for name in others:
            warn(f"{name} is no step of Kiln's, but dodo.py's own task: try `doit info {name}`")
        if as_json:
            shown = {"kiln explain": _SCHEMA, "steps": [_as_json(each, loader.build) for each in found]}
            self.outstream.write(json.dumps(shown) + "\n")
        else:
            self.outstream.write(printable("\n".join(_lines(found, steps, loader.build))) + "\n")
        return 0

    def _selected(self, selection: Sequence[str]) -> tuple[list[StepTask], list[str]]:
        """The steps that are named, or all of them; and other tasks that are named."""
        control = TaskControl(self.task_list)
        every = [task.name for task in self.task_list if isinstance(task, StepTask)]
        tasks = [control.tasks[name] for name in (selected(control, selection) if selection else every)]
        steps = [task for task in tasks if isinstance(task, StepTask)]
        return steps, [task.name for task in tasks if not isinstance(task, StepTask)]


def _state(step: Explanation) -> str:
    return STALE if step.is_stale else FOLLOWS if step.runs_before else FRESH


def _lines(found: Sequence[Explanation], steps: Mapping[str, Step], build: Build) -> Iterator[str]:
    """A block for each answer, the stale ones first, and a line with how many there are of each."""
    blocks: dict[tuple[str, ...], list[str]] = {}
    bodies: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for step in sorted(found, key=lambda each: (STALE, FOLLOWS, FRESH).index(_state(each))):
        body = list(_body(step, steps[step.name], build))
        # The same answer for another image differs in the image's names alone.
        key = (_state(step), *(_nameless(line, step.name) for line in body))
        blocks.setdefault(key, []).append(step.name)
        bodies.setdefault(key, (_state(step), body))
    for key, names in blocks.items():
        state, body = bodies[key]
        yield f"{names[0]}: {state}"
        if len(names) > 1:
            yield f"  and so {'are' if len(names) > 2 else 'is'} {some(names[1:])}"
        yield from (f"  {line}" if line else "" for line in body)
        yield ""
    counts = {state: sum(_state(step) == state for step in found) for state in (STALE, FOLLOWS, FRESH)}
    parts = [f"{counts[STALE]} stale", f"{counts[FRESH]} fresh"]
    if counts[FOLLOWS]:
        parts.insert(1, f"{counts[FOLLOWS]} may follow")
    yield ", ".join(parts)


def _nameless(line: str, name: str) -> str:
    subject = name.partition(":")[2]
    variant, _, target = subject.partition("@")
    if not target:
        return line
    return line.replace(subject, "<image>").replace(variant, "<variant>").replace(f"/{target}/", "/<target>/")


def _body(step: Explanation, declared: Step, build: Build) -> Iterator[str]:
    if step.reason is not None:
        yield from step.reason.splitlines()
    for change in changes_shown(step.changes):
        yield from change_lines(change)
    yield from faults_shown(step.faults, build.root)
    if step.is_stale and declared.origin:
        yield f"declared: {', '.join(declared.origin)}"
    if step.runs_before:
        yield (
            f"{some(step.runs_before, 3)} {'run' if len(step.runs_before) > 1 else 'runs'} first"
            f"{'' if step.is_stale else ': this runs too if that makes other bytes than before'}"
        )
    if step.inputs:
        yield "it depends on"
        yield from (f"  {line}" for line in input_lines(step.inputs))


def _as_json(step: Explanation, build: Build) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": step.name,
        "state": _state(step).replace(" ", "_"),
        "reason": step.reason,
        "changes": [
            {
                "input": change.name,
                "title": title(change.name),
                "old": change.old,
                "new": change.new,
                "old_text": printable(change.old_text) if change.old_text is not None else None,
                "new_text": printable(change.new_text.body) if change.new_text is not None else None,
                "place": change.new_text.place if change.new_text is not None else None,
            }
            for change in step.changes
        ],
        "outputs": list(faults_shown(step.faults, build.root)),
        "runs_before": list(step.runs_before),
    }
    if step.inputs:
        shown["inputs"] = {each.name: each.new for each in step.inputs}
    return shown
