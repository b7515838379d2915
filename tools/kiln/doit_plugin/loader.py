"""doit's task loader: dodo.py's rules and kernels.yaml in, doit tasks out, and only those that the selection needs."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_base import DodoTaskLoader
from doit.exceptions import InvalidCommand, InvalidDodoFile
from doit.task import Task

from kiln.doit_plugin.backend import StateBackend
from kiln.doit_plugin.rules import Rule, collect
from kiln.doit_plugin.tasks import StepTask, group_task
from kiln.engine.build import Build
from kiln.engine.state import State
from kiln.engine.step import Step
from kiln.errors import KilnError, did_you_mean
from kiln.library import Library

MANIFEST = "kernels.yaml"
BUILD_FOLDER = "build"
PRIVATE_FOLDER = ".kiln"
"""below the build folder: state, lock, temporary files, logs of failures"""

_EXPANDING = ("clean", "forget", "ignore", "reset-dep")
"""commands of doit that act on a group's direct subtasks only: a variant's name is replaced by those of its images"""


class KilnLoader(DodoTaskLoader):  # type: ignore[misc]  # doit has no types
    """The doit loader `kiln`."""

    namespace: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.build: Build | None = None
        self.known: set[str] = set()
        """the names of all steps that the manifest asks for, selected or not"""
        self.library: Library | None = None

    def load_doit_config(self) -> dict[str, Any]:
        """Kiln's defaults for doit's options, under those of dodo.py's DOIT_CONFIG."""
        defaults = {
            "backend": "kiln",
            "dep_file": str(Path(BUILD_FOLDER) / PRIVATE_FOLDER / "state.sqlite"),
            "reporter": "kiln",
            "num_process": len(os.sched_getaffinity(0)),
            # One kernel that does not compile must not keep the others from being built.
            "continue": True,
        }
        config: dict[str, Any] = super().load_doit_config()
        return {**defaults, **config}

    def load_tasks(self, cmd: Any, pos_args: list[str]) -> list[Task]:
        """The tasks that `pos_args` select and need, or all; user tasks of dodo.py always."""
        namespace: dict[str, Any] = self.namespace
        rules = collect(namespace)
        self.namespace = {name: value for name, value in namespace.items() if not hasattr(value, "kiln_rule")}
        tasks: list[Task] = super().load_tasks(cmd, pos_args)
        if not rules:
            return tasks
        backend = cmd.dep_manager.backend
        build_folder = Path(BUILD_FOLDER).absolute()
        private = build_folder / PRIVATE_FOLDER
        state = backend.state if isinstance(backend, StateBackend) else State(private / "state.sqlite")
        self.build = Build(state=state, root=build_folder, folder=private, size=1)
        try:
            self.library = Library.load(Path(MANIFEST), build_folder, state)
        except KilnError as error:
            raise InvalidDodoFile(str(error)) from error
        makers = {name: (rule, make) for rule in rules for name, make in rule.steps(self.library)}
        self.known = set(makers)
        groups = _groups(rules, self.library, list(makers))
        self._check(pos_args, tasks, makers, groups)
        if cmd.get_name() in _EXPANDING:
            pos_args[:] = _expand(pos_args, groups)
        return [*self._tasks(pos_args, makers, groups, {task.name for task in tasks}), *tasks]

    def _tasks(
        self,
        selection: Sequence[str],
        makers: dict[str, tuple[Rule, Callable[[], Step]]],
        groups: dict[str, list[str]],
        own: set[str],
    ) -> list[Task]:
        """Steps and groups that the selection needs; everything where the selection is not made of such names alone."""
        assert self.build is not None
        wanted: Iterable[str] = makers
        if selection and all(name in makers or name in groups for name in selection):
            wanted = _expand(selection, groups)
        steps: dict[str, Step] = {}
        pending = list(wanted)
        while pending:
            name = pending.pop()
            if name not in steps:
                steps[name] = makers[name][1]()
                pending += steps[name].after
        made: dict[str, Task] = {}
        for name in makers:
            if name in steps:
                rule = makers[name][0]
                group = rule.kind if rule.kind in groups else None
                made[name] = StepTask(name, steps[name], self.build, doc=rule.doc, group=group)
        listed: list[Task] = []
        for name, members in groups.items():
            if all(member in made for member in members):
                kind, _, variant = name.partition(":")
                docs = [rule.doc for rule, _ in makers.values() if rule.kind == kind]
                doc = f"{variant} for every target" if variant else docs[0]
                group = kind if variant else None
                listed.append(group_task(name, [made[member] for member in members], doc=doc, group=group))
        # A group before its members, as doit itself lists them.
        order = {name: index for index, name in enumerate([*dict.fromkeys(rule_kind(name) for name in makers)])}
        everything = [*listed, *made.values()]
        return sorted(everything, key=lambda task: order[rule_kind(task.name)])

    def _check(
        self,
        selection: Sequence[str],
        own: Sequence[Task],
        makers: dict[str, Any],
        groups: dict[str, list[str]],
    ) -> None:
        """Refuse a name that is no task before anything is done, with the names that come near."""
        names = {*makers, *groups, *(task.name for task in own)}
        # A user's task may take options and positional arguments: what stands behind its name is its own affair.
        for argument in selection:
            if argument in {task.name for task in own}:
                return
            if argument.startswith("-") or argument in names:
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


def rule_kind(name: str) -> str:
    """`compile` of `compile:softmax_fp16_2048@sm_90a`"""
    return name.partition(":")[0]


def _groups(rules: Sequence[Rule], library: Library, names: Sequence[str]) -> dict[str, list[str]]:
    """Group -> the steps it stands for: `compile` for all images, `compile:<variant>` for those of one variant."""
    groups: dict[str, list[str]] = {}
    for kind in dict.fromkeys(rule.kind for rule in rules):
        members = [name for name in names if rule_kind(name) == kind]
        if members != [kind]:
            groups[kind] = members
        if any(rule.pattern == f"{kind}:<image>" for rule in rules):
            for image in library.manifest.images:
                groups.setdefault(f"{kind}:{image.variant.id}", []).append(f"{kind}:{image.id}")
    return groups


def _expand(selection: Iterable[str], groups: dict[str, list[str]]) -> list[str]:
    return [name for selected in selection for name in groups.get(selected, [selected])]
