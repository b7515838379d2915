"""doit's task loader: dodo.py's rules and kernels.yaml in, doit tasks out, and only those that the selection needs."""

from __future__ import annotations

import fnmatch
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from doit.cmd_base import DodoTaskLoader
from doit.exceptions import InvalidCommand, InvalidDodoFile
from doit.task import Task

from kiln.doit_plugin.backend import StateBackend
from kiln.doit_plugin.owner import check_owner
from kiln.doit_plugin.rules import Rule, collect
from kiln.doit_plugin.tasks import Freshness, StepTask, group_task, shown
from kiln.engine.build import Build
from kiln.engine.lock import build_lock
from kiln.engine.state import State
from kiln.engine.step import Step
from kiln.errors import KilnError, ManifestError, did_you_mean
from kiln.library import Library, read_manifest
from kiln.manifest.model import Manifest

MANIFEST = "kernels.yaml"
BUILD_FOLDER = "build"
"""where kernels.yaml cannot be read and so names none"""
PRIVATE_FOLDER = ".kiln"
"""in the build folder: state, lock, temporary files, logs of failures"""
STATE = "state.sqlite"

_CHANGING = ("clean", "forget", "ignore", "reset-dep")
"""Commands of doit that change what builds rely on. They act on a group's direct subtasks only: a variant's name is
replaced by those of its images."""


_PRINTING = ("list", "info", "size")
"""Commands of doit that print, and change nothing that has to be left in order"""

_BUILD_DIR = {
    "section": "Kiln",
    "name": "build_dir",
    "short": "",
    "long": "build-dir",
    "type": str,
    "default": None,
    "help": "folder for what is built, relative to the current one [default: what kernels.yaml says, or build]",
}


class KilnLoader(DodoTaskLoader):  # type: ignore[misc]  # doit has no types
    """The doit loader `kiln`."""

    cmd_options = (*DodoTaskLoader.cmd_options, _BUILD_DIR)
    namespace: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        # doit goes to the folder of dodo.py before it asks for anything; paths of the command line are of this one.
        self._started = Path.cwd()
        self._options: Mapping[str, Any] = {}
        self._manifest: Manifest | KilnError | None = None
        self.build: Build | None = None
        self.library: Library | None = None
        """what the manifest asks for, once it is loaded; None for a dodo.py without rules"""
        self._lock = ExitStack()
        self.makers: dict[str, tuple[Rule, Callable[[], Step]]] = {}
        """every step that the manifest asks for, selected or not: its name, its rule, and how to make it"""

    def setup(self, opt_values: Mapping[str, Any]) -> None:
        """Take the command's options, and load dodo.py."""
        self._options = opt_values
        if opt_values.get("build_dir") is not None:
            _check_build_dir(opt_values["build_dir"])
        super().setup(opt_values)

    def _folder(self) -> Path:
        """The absolute path of the build folder. What is wrong with the manifest is told when tasks are loaded."""
        if self._manifest is None:
            try:
                with _kept_for_good():
                    self._manifest = read_manifest(Path(MANIFEST))
            except KilnError as error:
                self._manifest = error
        if self._options.get("build_dir") is not None:
            return Path(os.path.normpath(self._started / self._options["build_dir"]))
        declared = BUILD_FOLDER if isinstance(self._manifest, KilnError) else self._manifest.build
        return Path(os.path.normpath(Path.cwd() / declared))

    def load_doit_config(self) -> dict[str, Any]:
        """Kiln's defaults for doit's options, under those of dodo.py's DOIT_CONFIG."""
        dep_file = self._folder() / PRIVATE_FOLDER / STATE if collect(self.namespace) else None
        defaults = {
            "backend": "kiln",
            **({"dep_file": shown(dep_file)} if dep_file else {}),
            "reporter": "kiln",
            "num_process": len(os.sched_getaffinity(0)),
            # One kernel that does not compile must not keep the others from being built.
            "continue": True,
        }
        config: dict[str, Any] = super().load_doit_config()
        return {**defaults, **config}

    def load_tasks(self, cmd: Any, pos_args: list[str]) -> list[Task]:
        """The tasks that `pos_args` select and need, or all; user tasks of dodo.py always."""
        rules = collect(self.namespace)
        self.namespace = {name: value for name, value in self.namespace.items() if not hasattr(value, "kiln_rule")}
        own: list[Task] = super().load_tasks(cmd, pos_args)
        if not rules:
            return own
        folder = self._folder()
        if isinstance(self._manifest, KilnError):
            raise InvalidDodoFile(str(self._manifest)) from self._manifest
        assert self._manifest is not None  # the folder was asked for
        _check_folder(folder, self._manifest, self._options.get("build_dir"))
        if cmd.get_name() == "forget" and not (pos_args or self._options.get("forget_all") or self._names_defaults()):
            raise InvalidCommand("say what to forget: the names of tasks, or --all")
        private, backend = folder / PRIVATE_FOLDER, cmd.dep_manager.backend
        state = backend.state if isinstance(backend, StateBackend) else State(private / STATE)
        self.build = Build(state=state, root=folder, folder=private, size=1)
        library = self.library = Library(manifest=self._manifest, build=folder, state=state)
        if cmd.get_name() in _PRINTING:
            # What reads the output may have seen enough: `doit list | head`.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if cmd.get_name() == "list" and not pos_args and not self._options.get("subtasks"):
            # All that such a list shows; the 24,000 steps of 2,000 variants for 4 targets take a second to make.
            return [*self._overview(rules, library, self.build), *own]
        self.makers = {name: (rule, make) for rule in rules for name, make in rule.steps(library)}
        if cmd.get_name() == "size":
            # What it is asked for are no tasks.
            return own
        groups = _groups(rules, library, list(self.makers))
        self._check(pos_args, own, groups)
        if cmd.get_name() in _CHANGING:
            pos_args[:] = _expand(pos_args, groups)
            self._hold_lock(self.build)
        with _kept_for_good():
            return [*self._tasks(pos_args, groups, self.build), *own]

    def _names_defaults(self) -> bool:
        """Whether dodo.py says which tasks are meant where none is named."""
        return "default_tasks" in self.namespace.get("DOIT_CONFIG", {})

    def outputs(self) -> set[str]:
        """What all steps of the manifest make, relative to the build folder."""
        return {output for _, make in self.makers.values() for output in make().outputs}

    def _hold_lock(self, build: Build) -> None:
        """Keep the build folder from builds until this process ends: the command changes what they rely on."""
        if build.root.exists():
            hold_lock(self._lock, build)
            build.state.refresh()

    def _overview(self, rules: Sequence[Rule], library: Library, build: Build) -> list[Task]:
        """The groups, and the steps that stand alone; the steps of a group are made when somebody asks after it."""
        tasks: list[Task] = []
        for kind in dict.fromkeys(rule.kind for rule in rules):
            own = [rule for rule in rules if rule.kind == kind]
            if [rule.pattern for rule in own] == [kind]:
                ((name, make),) = own[0].steps(library)
                tasks.append(StepTask(name, make(), build, doc=own[0].doc, group=None))
            else:
                tasks.append(group_task(kind, [], partial(_all_steps_fresh, own, library, build), doc=own[0].doc))
        return tasks

    def _tasks(self, selection: Sequence[str], groups: dict[str, list[str]], build: Build) -> list[Task]:
        """Steps and groups that the selection needs; everything where the selection is not made of such names alone."""
        makers = self.makers
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
                made[name] = StepTask(name, steps[name], build, doc=rule.doc, group=group)
        docs = {rule.kind: rule.doc for rule, _ in reversed(makers.values())}
        listed: list[Task] = []
        for name, members in groups.items():
            if all(member in made for member in members):
                kind, _, variant = name.partition(":")
                doc = f"{variant} for every target" if variant else docs[kind]
                group = kind if variant else None
                fresh = partial(_all_fresh, [made[member] for member in members])
                listed.append(group_task(name, members, fresh, doc=doc, group=group))
        # A group before its members, as doit itself lists them.
        order = {name: index for index, name in enumerate([*dict.fromkeys(rule_kind(name) for name in makers)])}
        everything = [*listed, *made.values()]
        return sorted(everything, key=lambda task: order[rule_kind(task.name)])

    def _check(self, selection: Sequence[str], own: Sequence[Task], groups: dict[str, list[str]]) -> None:
        """Refuse a name that is no task before anything is done, with the names that come near."""
        names = {*self.makers, *groups, *(task.name for task in own)}
        # A user's task may take options and positional arguments: what stands behind its name is its own affair.
        for argument in selection:
            if argument in {task.name for task in own}:
                return
            if argument.startswith("-"):
                raise InvalidCommand(
                    f"{argument} stands behind the name of a task, and that task takes no options: write options of "
                    "doit before all names"
                )
            if argument in names:
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


@contextmanager
def _kept_for_good() -> Iterator[None]:
    """Make objects that live as long as the process.

    Python's collector would look through them again and again, for half of the time that it takes to make them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _all_steps_fresh(rules: Sequence[Rule], library: Library, build: Build) -> bool:
    return all(Freshness(build, name, make())() for rule in rules for name, make in rule.steps(library))


def _all_fresh(tasks: Sequence[Task]) -> bool:
    return all(check() for task in tasks for check, _, _ in task.uptodate)


def _check_build_dir(text: str) -> None:
    """Refuse an option that can hardly mean the folder that it names."""
    if not text.strip():
        raise InvalidCommand("--build-dir names no folder: leave it out to build where kernels.yaml says")
    if text.startswith("~"):
        raise InvalidCommand(
            f"--build-dir is {text!r}: a shell makes a home folder of ~ at the start of a word that has no quotes, and "
            "nobody did here; put a space before it in place of =, or write the whole path"
        )


def _check_folder(folder: Path, manifest: Manifest, option: str | None) -> None:
    """Refuse a build folder that holds what people write: what a build does not know there, it may remove.

    `option` is what `--build-dir` says, which goes before the manifest.
    """
    real = folder.resolve()
    sources = (*manifest.files, *dict.fromkeys(kernel.source for kernel in manifest.kernels))
    inside = [path for path in sources if path.resolve().is_relative_to(real)]
    if inside:
        error = ManifestError(
            "the build folder would hold sources",
            where="--build-dir" if option is not None else manifest.build_position or manifest.position,
            expected="a folder that holds what is built, and nothing else",
            actual=f"{shown(folder)}, with {shown(inside[0])} in it",
            remedy="name another folder: `build:` in kernels.yaml, or `doit --build-dir DIR`",
        )
        raise InvalidDodoFile(str(error))
    try:
        check_owner(folder / PRIVATE_FOLDER, Path.cwd(), MANIFEST)
    except KilnError as other:
        raise InvalidDodoFile(str(other)) from other


def hold_lock(stack: ExitStack, build: Build) -> None:
    """Enter the build folder's lock. Raises InvalidDodoFile, which doit takes for an error before a run."""
    try:
        stack.enter_context(build_lock(build.lock, waiting=warn))
    except KilnError as error:
        raise InvalidDodoFile(str(error)) from error


def warn(text: str) -> None:
    """Tell people something that is no task's own affair."""
    sys.stderr.write(f"kiln: {text}\n")


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
