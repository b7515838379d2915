"""doit's task loader: dodo.py's rules and kernels.yaml in, doit tasks out, and only those that the selection needs."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doit.cmd_base import DodoTaskLoader
from doit.exceptions import InvalidCommand, InvalidDodoFile
from doit.task import Task

from kiln.doit_plugin.backend import StateBackend
from kiln.doit_plugin.build_folder import (
    BUILD_FOLDER,
    MANIFEST,
    PRIVATE_FOLDER,
    STATE,
    check_folder,
    check_place,
    hold_lock,
)
from kiln.doit_plugin.main import build_words
from kiln.doit_plugin.options import BUILD_DIR, TARGETS, UNLOCKED, check_build_dir
from kiln.doit_plugin.rules import Rule, collect
from kiln.doit_plugin.selection import check_names, expand, groups_of, named_by, needs_steps, steps_of
from kiln.doit_plugin.shortcut import (
    OUTLINE,
    Asked,
    Outcome,
    Shortcut,
    Wanted,
    library_names,
    likely_build_folder,
    save,
)
from kiln.doit_plugin.tasks import Freshness, StepTask, group_task, shown
from kiln.engine.build import Build
from kiln.engine.interrupts import as_python_does, leave_at_once
from kiln.engine.lock import is_locked
from kiln.engine.machine import cores
from kiln.engine.outline import Outline
from kiln.engine.state import State
from kiln.engine.step import Step, kind_of
from kiln.errors import KilnError
from kiln.files import FOR_ALL, Noted, Notes, Question, asked_by, noted_in

if TYPE_CHECKING:
    # Imported when it is needed: a build that has nothing to do makes no steps.
    from kiln.doit_plugin.release_tasks import Place
    from kiln.library import Library
    from kiln.manifest.model import Manifest


RELEASE = "release"
"""the step with tasks beside it: `release:verify`, `release:sm_90a`"""
_SETTINGS = ("pyproject.toml", "doit.cfg")
"""where doit looks for a project's settings"""

_CHANGING = ("clean", "forget", "ignore", "reset-dep", "verify")
"""Commands that change what builds rely on. They act on a group's direct subtasks only: a variant's name is
replaced by those of its images."""


_PRINTING = ("list", "info", "size", "explain")
"""Commands of doit that print, and change nothing that has to be left in order"""


class KilnLoader(DodoTaskLoader):  # type: ignore[misc]  # doit has no types
    """The doit loader `kiln`."""

    cmd_options = (*DodoTaskLoader.cmd_options, BUILD_DIR, TARGETS, UNLOCKED)
    namespace: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        _open_streams()
        self.started = Path.cwd()
        """The folder that paths of the command line are of: doit goes to that of dodo.py before it asks anything."""
        self.began = time.monotonic()
        self.began_ns = time.time_ns()
        """the same moment, since the epoch"""
        self._options: Mapping[str, Any] = {}
        self._manifest: Manifest | KilnError | None = None
        self.build: Build | None = None
        self.library: Library | None = None
        """what the manifest asks for, once it is loaded; None for a dodo.py without rules"""
        self._stack = ExitStack()
        """what is held until this process ends"""
        self.makers: dict[str, tuple[Rule, Callable[[], Step]]] = {}
        """every step of the kernels that are loaded, selected or not: its name, its rule, and how to make it"""
        self.fresh: set[str] = set()
        """steps that the selection needs, and that are fresh by the outline of the last build: doit gets no task"""
        self.has_nothing_to_do = False
        """whether these are all"""
        self._notes = Notes()
        self._rules: Sequence[Rule] = ()
        self._shortcut: Shortcut | None = None
        self._loaded: Manifest | None = None
        self._ahead: list[str] = []
        self._partly: Manifest | None = None
        """the manifest with these kernels alone, where only they were edited; None where it cannot be read"""
        self._stale: Sequence[str] = ()
        """the kernels of the manifest that are loaded, where these are not all"""
        self.holds_lock = False
        """whether the build folder's lock is this process's already"""

    def setup(self, opt_values: Mapping[str, Any]) -> None:
        """Take the command's options, and load dodo.py."""
        self._options = opt_values
        leave_at_once()
        self._stack.enter_context(noted_in(self._notes))
        if opt_values.get("build_dir") is not None:
            check_build_dir(opt_values["build_dir"])
        super().setup(opt_values)
        self._rules = collect(self.namespace)
        if not self._rules:
            as_python_does()

    @property
    def options(self) -> list[str]:
        """The words of the command line that say which library is built, and where."""
        named = (("--build-dir", "build_dir"), ("--targets", "targets"))
        words = [word for option, name in named if (value := self._options.get(name)) for word in (option, value)]
        return [*words, *(["--unlocked"] if self._asked.unlocked else [])]

    def _folder(self) -> Path:
        """The absolute path of the build folder. What is wrong with the manifest is told when tasks are loaded."""
        if self._shortcut is not None:
            return self._shortcut.root
        option = self._options.get("build_dir")
        likely = option if option is not None else likely_build_folder(Path(MANIFEST), BUILD_FOLDER)
        folder = Path(os.path.normpath((self.started if option is not None else Path.cwd()) / likely))
        if self._manifest is None:
            self._shortcut = Shortcut.find(
                self._rules,
                folder,
                folder / PRIVATE_FOLDER,
                Path(MANIFEST),
                self._asked,
            )
            if self._shortcut is not None:
                return folder
        manifest = self._load_manifest()
        if option is not None:
            return folder
        declared = BUILD_FOLDER if isinstance(manifest, KilnError) else manifest.build
        return Path(os.path.normpath(Path.cwd() / declared))

    @property
    def _asked(self) -> Asked:
        options = self._options
        return Asked(
            is_declared=options.get("build_dir") is None,
            targets=options.get("targets"),
            unlocked=bool(options.get("unlocked")),
        )

    def private_folder(self) -> Path:
        """Kiln's own folder in the build folder, for commands that load no task. To be asked after `setup`."""
        return self._folder() / PRIVATE_FOLDER

    def _load_manifest(self) -> Manifest | KilnError:
        if self._manifest is None:
            from kiln.library import read_manifest

            try:
                with _kept_for_good():
                    self._manifest = self._narrowed(read_manifest(Path(MANIFEST)))
            except KilnError as error:
                self._manifest = error
        return self._manifest

    def _narrowed(self, manifest: Manifest) -> Manifest:
        """The manifest for the targets that are asked for. Raises ManifestError."""
        if self._options.get("targets") is None:
            return manifest
        from kiln.manifest.narrow import narrowed

        return narrowed(manifest, self._options["targets"].split(","), "--targets")

    def load_doit_config(self) -> dict[str, Any]:
        """Kiln's defaults for doit's options, under those of dodo.py's DOIT_CONFIG."""
        dep_file = self._folder() / PRIVATE_FOLDER / STATE if self._rules else None
        defaults = {
            "backend": "kiln",
            **({"dep_file": shown(dep_file)} if dep_file else {}),
            "reporter": "kiln",
            "num_process": cores(),
            # One kernel that does not compile must not keep the others from being built.
            "continue": True,
        }
        config: dict[str, Any] = super().load_doit_config()
        return {**defaults, **config}

    def load_tasks(self, cmd: Any, pos_args: list[str]) -> list[Task]:
        """The tasks that `pos_args` select and need, or all; user tasks of dodo.py always."""
        rules = self._rules
        self.namespace = {name: value for name, value in self.namespace.items() if not hasattr(value, "kiln_rule")}
        own: list[Task] = super().load_tasks(cmd, pos_args)
        if not rules:
            return own
        folder = self._folder()
        own += self._about_releases(cmd, pos_args, own)
        private, backend = folder / PRIVATE_FOLDER, cmd.dep_manager.backend
        state = backend.state if isinstance(backend, StateBackend) else State(private / STATE)
        self.build = Build(state=state, root=folder, folder=private, size=1)
        if cmd.execute_tasks:
            with _kept_for_good():
                tasks = self._shortened(pos_args, own, self.build)
            if tasks is not None:
                return [*tasks, *own]
        manifest = self._load_manifest()
        if isinstance(manifest, KilnError):
            raise InvalidDodoFile(str(manifest)) from manifest
        check_folder(folder, manifest, self._options.get("build_dir"))
        if cmd.get_name() == "forget" and not (pos_args or self._options.get("forget_all") or self._names_defaults()):
            raise InvalidCommand("say what to forget: the names of tasks, or --all")
        self._loaded = manifest
        library = self.library = self._library_of(manifest, self.build)
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
        groups = groups_of(rules, library, list(self.makers))
        check_names(pos_args, [*self.makers, *groups], own)
        if cmd.get_name() in _CHANGING:
            pos_args[:] = expand(pos_args, groups)
            self._hold_lock(self.build)
        with _kept_for_good():
            wanted: Iterable[str] = self.makers
            # `explain` is about the build that would be.
            is_about_a_build = cmd.execute_tasks or cmd.get_name() == "explain"
            asked = pos_args or (self._defaults() if is_about_a_build else [*self.makers])
            if all(name in self.makers or name in groups for name in asked):
                # A user's task that is not selected has to find what it names, too.
                theirs = [name for task in own for name in named_by(task) if name in self.makers or name in groups]
                wanted = expand([*asked, *theirs], groups)
            steps = steps_of(wanted, self.makers)
            if steps is None:
                raise InvalidDodoFile("a rule names a step in `after` that there is not")
            return [*self._tasks(steps, groups, self.build), *own]

    def _library_of(self, manifest: Manifest, build: Build) -> Library:
        from kiln.library import Library

        return Library(
            manifest=manifest,
            build=build.root,
            state=build.state,
            part=manifest.targets if self._asked.targets is not None else (),
            is_unlocked=self._asked.unlocked,
        )

    def _about_releases(self, cmd: Any, selection: Sequence[str], own: Sequence[Task]) -> list[Task]:
        """The tasks beside the step `release`: all of them for a listing; a build has those that are named."""
        if all(rule.pattern != RELEASE for rule in self._rules):
            return []
        chosen = selection or self._default_tasks or ()
        named = {*chosen, *(name for task in own for name in named_by(task))}
        if cmd.execute_tasks and not any(kind_of(name) == RELEASE and name != RELEASE for name in named):
            return []
        from kiln.doit_plugin.release_tasks import release_tasks

        if cmd.execute_tasks:
            targets = [name.removeprefix(f"{RELEASE}:") for name in named]
        else:
            manifest = self._load_manifest()
            targets = [] if isinstance(manifest, KilnError) else [*manifest.targets]
        words = build_words(cmd.bin_name, self._options["dodoFile"])
        tasks = release_tasks(partial(self._place, words), targets, is_unlocked=self._asked.unlocked)
        # Where nothing is named, doit runs all that there is.
        return [task for task in tasks if chosen or not cmd.execute_tasks or task.name in named]

    def _place(self, words: Sequence[str]) -> Place:
        """Where the release of this project is; `words` build as this process does."""
        from kiln import releases
        from kiln.doit_plugin.release_tasks import Place

        assert self.build is not None
        library = self.library
        if library is None:
            manifest = self._load_manifest()
            if isinstance(manifest, KilnError):
                raise manifest
            library = self._library_of(manifest, self.build)
        own = ["-n", str(self._options["num_process"]), *(["--no-cache"] if self._options["no_cache"] else [])]
        return Place.of(library, releases.names(library), started=self.started, words=[*words, *own])

    def _shortened(self, selection: Sequence[str], own: Sequence[Task], build: Build) -> list[Task] | None:
        """The tasks of what is not fresh by the outline of the last build. None where all kernels are to be loaded."""
        shortcut, options = self._shortcut, self._options
        check_place(build.root)
        if shortcut is None or not shortcut.is_of(build.state):
            self._shortcut = None
            return None
        chosen = selection or self._default_tasks or ()
        names = {task.name for task in own}
        # A name may be given twice, and doit takes no two tasks of one name.
        steps = [name for name in dict.fromkeys(chosen) if name not in names]
        wanted = shortcut.wanted(steps) if steps or not chosen else Wanted(parts={}, library=())
        is_plain = options.get("reporter") == "kiln" and not options.get("always") and not options.get("single")
        if wanted is None or not is_plain or any(needs_steps(task, self._rules, build.root) for task in own):
            return None
        read = self._read_ahead if shortcut.holds_for_all and not wanted.library else _nothing
        self.fresh, stale = shortcut.fresh(wanted, read)
        groups = [group_task(name, [], lambda: True, doc="") for name in steps or shortcut.groups]
        is_all = not own or (bool(chosen) and names.isdisjoint(chosen))
        if is_all and not stale and shortcut.is_of(build.state) and not is_locked(build.lock):
            self.has_nothing_to_do = True
            if shortcut.outline.moved:
                shortcut.outline.save(build.lock.parent / OUTLINE)
            return groups
        # From here on nobody else may build: what is fresh has to stay so.
        hold_lock(self._stack, build)
        self.holds_lock = True
        if not shortcut.is_of(build.state):
            self._shortcut, self.fresh = None, set()
            return None
        if not stale:
            return groups
        is_partial = shortcut.holds_for_all and not wanted.library
        tasks = self._partial(shortcut, wanted, stale, steps, build) if is_partial else None
        if tasks is None:
            build.vouched, self.fresh = self.fresh, set()
        return tasks

    def _read_ahead(self, kernels: list[str]) -> None:
        """Load some kernels alone."""
        from kiln.library import read_manifest

        self._ahead, self._partly = kernels, None
        # To be told as it is told where there is no outline.
        with suppress(KilnError):
            self._partly = self._narrowed(read_manifest(Path(MANIFEST), only=kernels))

    def _partial(
        self, shortcut: Shortcut, wanted: Wanted, stale: list[str], steps: Sequence[str], build: Build
    ) -> list[Task] | None:
        """The tasks of a selection of images' steps, with only the `stale` kernels loaded."""
        from kiln.library import Library

        if stale != self._ahead:
            self._read_ahead(stale)
        manifest = self._partly
        if manifest is None:
            return None
        library = Library(manifest=manifest, build=build.root, state=build.state)
        rules = [rule for rule in self._rules if rule.pattern.endswith("<image>")]
        self.makers = {name: (rule, make) for rule in rules for name, make in rule.steps(library)}
        needed = steps_of([name for owner in stale for name in wanted.parts[owner]], self.makers)
        if needed is None:
            # A rule of the project's own that comes after what stands for many images.
            return None
        shortcut.is_partial, self._loaded, self._stale = True, manifest, stale
        groups = groups_of(rules, library, list(self.makers))
        fresh = [name for name in steps if name not in self.makers and name not in groups]
        done = [group_task(name, [], lambda: True, doc="") for name in fresh]
        return [*done, *self._tasks(needed, groups, build)]

    def begin(self) -> None:
        """To be called with the lock: the outline goes on only while no other build has written since."""
        assert self.build is not None
        if self._shortcut is not None and not self._shortcut.is_of(self.build.state):
            self._shortcut = None

    @property
    def known(self) -> set[str]:
        """The names of all steps that the manifest asks for."""
        return {*self.makers, *(self._shortcut.names if self._shortcut is not None and not self._manifest else ())}

    @property
    def may_have_gone(self) -> bool:
        """Whether there may be a step that the manifest asks for no more: to look through the record takes long."""
        shortcut = self._shortcut
        # The others are those of the last build, which has looked.
        return shortcut is None or not shortcut.is_partial or not shortcut.names_of(self._stale) <= self.makers.keys()

    def save_outline(self, good: Mapping[str, Step], ran: set[str], bad: set[str]) -> None:
        """Write the outline of a build that has ended.

        `good` are the steps that are fresh now, `ran` the names of those that were not before, and `bad` the names of
        the other steps that it came to.
        """
        build, shortcut, manifest = self.build, self._shortcut, self._loaded
        assert build is not None
        if manifest is not None and manifest.native:
            # Which GPUs there are is asked of the drivers, at every start.
            return
        if shortcut is not None and shortcut.is_partial and build.state.is_lost:
            # The record had rows of the other kernels: the next build makes anew what it cannot vouch for.
            return
        library: Sequence[str] = ()
        if manifest is not None:
            library = library_names(self._rules, manifest)
        elif shortcut is not None:
            library = shortcut.library
        outcome = Outcome(
            kernels=_images_of(manifest) if manifest is not None else {},
            library=library,
            good={name: step for name, step in good.items() if name not in build.vouched},
            ran=ran,
            bad=bad,
            asked=self._asked,
        )
        save(self._rules, build, build.lock.parent, self._notes, shortcut, outcome)

    def answers(self) -> Mapping[Question, Noted]:
        """What the build that has ended went by, whichever part of it was looked at anew."""
        assert self.build is not None
        # What doit itself reads; of dodo.py the outline has what its rules say.
        settings = (Path(name).absolute() for name in (self._options["dodoFile"], *_SETTINGS))
        asked: dict[Question, Noted] = {
            ("kind", str(path)): ("file" if path.is_file() else None, None) for path in settings
        }
        outline = Outline.load(self.build.lock.parent / OUTLINE)
        if outline is not None and outline.stamp == self.build.state.stamp():
            return {**outline.answers, **asked}
        before = self._shortcut.outline.answers if self._shortcut is not None else {}
        return {**before, **self._notes.answers, **asked}

    def _names_defaults(self) -> bool:
        """Whether dodo.py says which tasks are meant where none is named."""
        return "default_tasks" in self.namespace.get("DOIT_CONFIG", {})

    @property
    def _default_tasks(self) -> Sequence[str] | None:
        """What dodo.py says of that; None where it says nothing."""
        named: Sequence[str] | None = self.namespace.get("DOIT_CONFIG", {}).get("default_tasks")
        return named

    def _defaults(self) -> Sequence[str]:
        """What is meant where no task is named: what dodo.py says, or the steps of all rules that are not apart."""
        if self._default_tasks is not None:
            return self._default_tasks
        return [name for name, (rule, _) in self.makers.items() if rule.default]

    def check(self, selected: Callable[[], Iterable[str]]) -> None:
        """Ask the rules of what is to be made whether it may be. Raises InvalidDodoFile, with what one of them says.

        `selected` tells the names, and is called where a rule asks.
        """
        library = self.library
        guarded = {name: rule.before for name, (rule, _) in self.makers.items() if rule.before is not None}
        if library is None or not guarded:
            return
        for name in selected():
            if before := guarded.get(name):
                try:
                    with asked_by(FOR_ALL):
                        before(library)
                except KilnError as error:
                    raise InvalidDodoFile(str(error)) from error

    def outputs(self) -> set[str]:
        """What all steps of the manifest make, relative to the build folder."""
        return {output for _, make in self.makers.values() for output in make().outputs}

    def _hold_lock(self, build: Build) -> None:
        """Keep the build folder from builds until this process ends: the command changes what they rely on."""
        if build.root.exists():
            hold_lock(self._stack, build)
            build.state.refresh()

    def _overview(self, rules: Sequence[Rule], library: Library, build: Build) -> list[Task]:
        """The groups, and the steps that stand alone; the steps of a group are made when somebody asks after it."""
        tasks: list[Task] = []
        for kind in dict.fromkeys(rule.kind for rule in rules):
            own = [rule for rule in rules if rule.kind == kind and rule.applies(library.manifest)]
            if not own:
                continue
            if [rule.pattern for rule in own] == [kind] and own[0].default:
                ((name, make),) = own[0].steps(library)
                tasks.append(StepTask(name, make(), build, doc=own[0].doc, group=None))
            else:
                tasks.append(group_task(kind, [], partial(_all_steps_fresh, own, library, build), doc=own[0].doc))
        return tasks

    def _tasks(self, steps: Mapping[str, Step], groups: dict[str, list[str]], build: Build) -> list[Task]:
        """Tasks for steps, and for the groups whose members are all among them."""
        makers = self.makers
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
        order = {name: index for index, name in enumerate([*dict.fromkeys(kind_of(name) for name in makers)])}
        everything = [*listed, *made.values()]
        return sorted(everything, key=lambda task: order[kind_of(task.name)])


def _nothing(kernels: list[str]) -> None:
    """What is read of kernels where all of them will be loaded."""


def _images_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """kernel -> the names of its images"""
    found: dict[str, list[str]] = {kernel.key: [] for kernel in manifest.kernels}
    for image in manifest.images:
        found[image.variant.kernel.key].append(image.id)
    return {key: tuple(images) for key, images in found.items()}


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


def _open_streams() -> None:
    """What is written to a standard stream that was closed (`>&-`) goes nowhere, not into the file that comes next."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which is this one. Children have it, too.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115, PTH123  # a number, to stay
