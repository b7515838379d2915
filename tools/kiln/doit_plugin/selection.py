"""What names on a command line stand for: steps, groups of them, tasks of dodo.py; and which steps these need."""

from __future__ import annotations

import fnmatch
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doit.control import TaskControl
from doit.exceptions import InvalidCommand
from doit.task import DelayedLoaded, Task

from kiln.doit_plugin.rules import Rule
from kiln.engine.step import Step, kind_of
from kiln.errors import did_you_mean

if TYPE_CHECKING:
    # A build that has nothing to do makes no steps.
    from kiln.library import Library


def groups_of(rules: Sequence[Rule], library: Library, names: Sequence[str]) -> dict[str, list[str]]:
    """Group -> the steps it stands for: `compile` for all images, `compile:<variant>` for those of one variant."""
    groups: dict[str, list[str]] = {}
    for kind in dict.fromkeys(rule.kind for rule in rules):
        members = [name for name in names if kind_of(name) == kind]
        if members not in ([], [kind]):
            groups[kind] = members
        if any(rule.pattern == f"{kind}:<image>" for rule in rules):
            for image in library.manifest.images:
                groups.setdefault(f"{kind}:{image.variant.id}", []).append(f"{kind}:{image.id}")
    return groups


def expand(selection: Iterable[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The names with the steps of each group in its place."""
    return [name for selected in selection for name in groups.get(selected, [selected])]


def check_names(selection: Sequence[str], steps: Iterable[str], own: Sequence[Task]) -> None:
    """Refuse a name that is no task before anything is done, with the names that come near. Raises InvalidCommand.

    `steps` are the names of all steps and of their groups, `own` the tasks of dodo.py.
    """
    names, targets = {*steps, *(task.name for task in own)}, {target for task in own for target in task.targets}
    # Those of `create_after` make their subtasks, under whatever names, when they run.
    delayed = {task.name for task in own if task.loader is not None}
    # A user's task may take options and positional arguments: what stands behind its name is its own affair.
    for argument in selection:
        if argument in {task.name for task in own}:
            return
        if argument.startswith("-"):
            raise InvalidCommand(
                f"{argument} stands behind the name of a task, and that task takes no options: write options of "
                "doit before all names"
            )
        if argument in names or argument in targets or argument.partition(":")[0] in delayed:
            continue
        if "*" in argument:
            if not fnmatch.filter(names, argument):
                raise InvalidCommand(f"{argument!r} matches no task; `doit list --all` shows every name")
            continue
        if "/" in argument or Path(argument).suffix:
            # A path may be a step's output; doit knows those, and says so when it does not.
            continue
        hint = did_you_mean(argument, sorted(names)) or "`doit list --all` shows every name"
        raise InvalidCommand(f"there is no task {argument!r}: {hint}")


def named_early(control: TaskControl) -> dict[str, Task]:
    """Subtasks that are named before a task of `create_after` has made them, with what doit has in their place."""
    # What doit has in place of outputs that may come later is called otherwise, and doit tells of those itself.
    return {
        name: task
        for name in control.selected_tasks
        if (task := control.tasks[name]).loader is not None and ":" in name and name.partition(":")[0] in control.tasks
    }


def check_made(early: Mapping[str, Task], control: TaskControl) -> None:
    """Refuse names of `early` that no task has come to have; doit runs nothing for them, and says nothing."""
    for name, stand_in in early.items():
        if control.tasks[name] is stand_in and stand_in.loader is DelayedLoaded:
            task = name.partition(":")[0]
            made = sorted(other for other in control.tasks if other.startswith(f"{task}:") and other not in early)
            hint = did_you_mean(name, made) or (f"it has made {', '.join(made[:6])}" if made else "it has made none")
            raise InvalidCommand(f"{task} has made no task {name!r}: {hint}")


def steps_of(wanted: Iterable[str], makers: Mapping[str, tuple[Rule, Callable[[], Step]]]) -> dict[str, Step] | None:
    """The steps of some names, with those that they come after; None where there is no such step."""
    steps: dict[str, Step] = {}
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if name not in makers:
            return None
        if name not in steps:
            steps[name] = makers[name][1]()
            pending += steps[name].after
    return steps


def selected(control: TaskControl, selection: Sequence[str]) -> list[str]:
    """The tasks that are named, by themselves, by a pattern or by an output; in the place of a group, its members."""
    control.process(selection)
    names: list[str] = []
    for name in control.selected_tasks:
        task = control.tasks[name]
        names += task.task_dep if task.has_subtask else [name]
    return list(dict.fromkeys(names))


def needed(tasks: Mapping[str, Task], names: Iterable[str]) -> list[str]:
    """The named tasks and all that they come after, each once."""
    found = dict.fromkeys(names)
    pending = deque(found)
    while pending:
        new = [name for name in tasks[pending.popleft()].task_dep if name not in found]
        found.update(dict.fromkeys(new))
        pending += new
    return list(found)


def named_by(task: Task) -> tuple[str, ...]:
    """The names of the tasks that a user's task depends on."""
    return (*task.task_dep, *task.setup_tasks, *task.calc_dep)


def needs_steps(task: Task, rules: Sequence[Rule], root: Path) -> bool:
    """Whether a user's task needs steps of Kiln, or may."""
    kinds = {rule.kind for rule in rules}
    names = (*named_by(task), *task.wild_dep)
    return (
        task.loader is not None
        or any("*" in name or kind_of(name) in kinds for name in names)
        or any(Path(os.path.abspath(path)).is_relative_to(root) for path in task.file_dep)  # noqa: PTH100  # not its links
    )
