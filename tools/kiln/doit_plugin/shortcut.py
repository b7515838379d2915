"""The short way through a build: by the outline of the last one, which steps are fresh, and which kernels to load."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kiln
from kiln.doit_plugin.rules import Rule, trusted_patterns
from kiln.engine.aside import Aside
from kiln.engine.build import Build
from kiln.engine.outline import Kept, Outline, Part, intact, kept_outputs
from kiln.engine.state import State
from kiln.engine.step import Step, kind_of
from kiln.files import FOR_ALL, Notes, Question, asked_by, below, read

if TYPE_CHECKING:
    from kiln.manifest.model import Manifest

OUTLINE = "outline"
"""in the private folder"""

_PROGRAM = os.path.dirname(os.path.abspath(sys.argv[0]))  # noqa: PTH100, PTH120  # as Python has it
"""The folder of what runs doit, while nobody has gone to another folder. It stands on Python's path, as the current one
does: how doit was started makes no difference."""

_BUILD_KEY = re.compile(rb"^build:[ \t]*([^\s#'\"]+)", re.MULTILINE)


def likely_build_folder(manifest: Path, default: str) -> str:
    """What the manifest probably says of its build folder: the outline that lies there tells whether it is so."""
    try:
        found = _BUILD_KEY.search(manifest.read_bytes())
    except OSError:
        return default
    return found[1].decode("utf-8", "replace") if found else default


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line says of a build beside names of tasks: an outline is of such a build alone."""

    is_declared: bool
    """whether it leaves the build folder to kernels.yaml"""
    targets: str | None
    """those that it asks for; None: all"""
    unlocked: bool
    """whether releases may be made by another toolchain than kiln.lock has"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a selection names, by whom the steps belong to."""

    parts: Mapping[str, Sequence[str]]
    """kernel -> the names of steps"""
    library: Sequence[str]
    """steps that stand for many images"""


class Shortcut:
    """An outline that is this graph's, and up to date with the state; what it says of files is asked when needed."""

    def __init__(self, outline: Outline, rules: Sequence[Rule], root: Path) -> None:
        self.outline = outline
        self._rules = rules
        self.root = root
        self._root = os.path.relpath(root)
        self.library: Sequence[str] = outline.extra["library"]
        """the names of the steps that stand for many images"""
        self.is_partial = False
        """whether only the kernels that are not fresh are loaded"""

    @classmethod
    def find(
        cls,
        rules: Sequence[Rule],
        root: Path,
        private: Path,
        manifest: Path,
        asked: Asked,
    ) -> Shortcut | None:
        """The outline of the last build in the folder `root`; None where there is none to rely on."""
        outline = Outline.load(private / OUTLINE)
        if outline is None or "library" not in outline.extra:
            # None, or one of an older Kiln.
            return None
        if outline.identity != identity(rules, root, asked):
            return None
        if asked.is_declared and not outline.holds(("bytes", str(manifest.absolute()))):
            return None
        return cls(outline, rules, root)

    def is_of(self, state: State) -> bool:
        """Whether no build has written since the outline was made."""
        return self.outline.stamp is not None and self.outline.stamp == state.stamp()

    @property
    def holds_for_all(self) -> bool:
        """Whether kernels.yaml, the tools and all else that every kernel depends on are as they were."""
        return self.outline.holds_for(FOR_ALL)

    @property
    def names(self) -> set[str]:
        """The names of all steps."""
        return {name for names in self._everything().parts.values() for name in names} | set(self.library)

    def names_of(self, owners: Iterable[str]) -> set[str]:
        """The names of the steps of some kernels."""
        return {name for owner in owners for name in _names(self._rules, self.outline.parts[owner].subjects)}

    def wanted(self, selection: Sequence[str]) -> Wanted | None:
        """What the selection names; for an empty one, what is made where nothing is named.

        None when some of it is neither a step nor a group.
        """
        if not selection:
            left_out = {rule.kind for rule in self._rules if not rule.default}
            library = [name for name in self.library if kind_of(name) not in left_out]
            return Wanted(parts=self._everything().parts, library=library)
        parts: dict[str, list[str]] = {}
        library = []
        for name in dict.fromkeys(selection):
            kind, _, subject = name.partition(":")
            own = [each for each in self.library if name in (each, kind_of(each))]
            library += own
            found = bool(own)
            if kind in self._image_kinds:
                for owner, subjects in self._subjects().items():
                    chosen = _chosen(subjects, subject)
                    found = found or bool(chosen)
                    if chosen:
                        parts.setdefault(owner, []).extend(f"{kind}:{each}" for each in chosen)
            if not found:
                return None
        return Wanted(parts=parts, library=library)

    def fresh(
        self, wanted: Wanted, meanwhile: Callable[[list[str]], None] = lambda moved: None
    ) -> tuple[set[str], list[str]]:
        """The steps that are fresh, with those that they come after; and the kernels of the others.

        FOR_ALL is among these where a step for many images is not fresh: then nothing is said of others of that kind.

        To look at all that was built takes long in a large library. Where it is known before that some kernels were
        edited, a child looks, and `meanwhile` is called with these.
        """
        parts, library = {owner: [*names] for owner, names in wanted.parts.items()}, set[str]()
        if not self._follow(wanted.library, parts, library):
            parts = {owner: [*names] for owner, names in self._everything().parts.items()}
            library = {FOR_ALL}
        moved = [owner for owner in parts if not self.outline.holds_for(owner)]
        reached: dict[str, list[str] | None] = dict.fromkeys(moved)
        others = {owner: names for owner, names in parts.items() if owner not in reached}
        if moved and others:
            looking = Aside(partial(self._reached, others))
            meanwhile(moved)
            reached |= looking.answer()
        else:
            reached |= self._reached(others)
        fresh, stale = set[str](), list[str]()
        for owner in parts:
            found = reached[owner]
            if found is None:
                stale.append(owner)
            else:
                fresh.update(found)
        if library and (stale or FOR_ALL in library):
            return fresh, [*stale, FOR_ALL]
        return fresh | library, stale

    def _reached(self, parts: Mapping[str, Sequence[str]]) -> dict[str, list[str] | None]:
        """Of each kernel the steps and those that they come after; None unless all of them are fresh."""
        found = {owner: self.outline.reached(owner, names, self._root) for owner, names in parts.items()}
        return {owner: None if names is None else list(names) for owner, names in found.items()}

    def _follow(self, library: Sequence[str], parts: dict[str, list[str]], fresh: set[str]) -> bool:
        """Add steps for many images to `fresh`, and the images' steps that they come after to `parts`.

        False when one of the former is not fresh, whatever the latter are.
        """
        if not library:
            return True
        steps, pending, after = self.outline.parts[FOR_ALL].steps(), list(library), set[str]()
        while pending:
            name = pending.pop()
            if name in fresh:
                continue
            if name not in steps or not intact(self._root, steps[name][1]):
                return False
            fresh.add(name)
            for each in steps[name][0]:
                (after.add if kind_of(each) in self._image_kinds else pending.append)(each)
        for owner, subjects in self._subjects().items() if after else ():
            names = _names(self._rules, subjects)
            parts.setdefault(owner, []).extend(name for name in names if name in after or _stands_for(name) in after)
        return self.holds_for_all

    @property
    def groups(self) -> list[str]:
        """The names of the groups of all steps of a kind, of those that are made where nothing is named."""
        there = {*self._image_kinds, *map(kind_of, self.library)}
        return [kind for kind in dict.fromkeys(rule.kind for rule in self._rules if rule.default) if kind in there]

    @property
    def _image_kinds(self) -> list[str]:
        return [rule.kind for rule in self._rules if rule.pattern.endswith("<image>")]

    def _subjects(self) -> dict[str, tuple[str, ...]]:
        return {owner: part.subjects for owner, part in self.outline.parts.items() if owner != FOR_ALL}

    def _everything(self) -> Wanted:
        parts = {owner: _names(self._rules, subjects) for owner, subjects in self._subjects().items()}
        return Wanted(parts=parts, library=self.library)


def _stands_for(name: str) -> str:
    """`compile:@sm_80` for the step of an image: in the outline, all of a kind for one target."""
    kind, _, subject = name.partition(":")
    return f"{kind}:@{subject.partition('@')[2]}"


def _names(rules: Sequence[Rule], images: Sequence[str]) -> list[str]:
    return [f"{rule.kind}:{image}" for rule in rules if rule.pattern.endswith("<image>") for image in images]


def library_names(rules: Sequence[Rule], manifest: Manifest) -> list[str]:
    """The names of the steps that stand for many images."""
    return [name for rule in rules if rule.applies(manifest) for name, _ in rule.shared(manifest)]


def _chosen(subjects: Sequence[str], name: str) -> Sequence[str]:
    """The images that a name without its kind stands for: all, those of one variant, or one."""
    if not name:
        return subjects
    if "@" in name:
        return [name] if name in subjects else []
    start = f"{name}@"
    return [subject for subject in subjects if subject.startswith(start)]


def identity(rules: Sequence[Rule], root: Path, asked: Asked) -> Any:
    """What an outline must be of: this project and its build folder, these rules, and this Python."""
    started = {"", os.getcwd(), _PROGRAM}  # noqa: PTH109  # as text
    return (
        os.getcwd(),  # noqa: PTH109  # as text
        str(root),
        (asked.is_declared, asked.targets, asked.unlocked),
        (sys.version, sys.prefix, tuple(entry for entry in sys.path if entry not in started)),
        tuple((rule.pattern, *rule.place) for rule in rules),
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a build did."""

    kernels: Mapping[str, Sequence[str]]
    """those that were loaded -> their images"""
    library: Sequence[str]
    """the names of the steps that stand for many images"""
    good: Mapping[str, Step]
    """the steps that are fresh now, of those that were asked"""
    ran: set[str]
    """the names of those of them that were not fresh before"""
    bad: set[str]
    """the names of the others that were asked"""
    asked: Asked


def save(
    rules: Sequence[Rule], build: Build, private: Path, notes: Notes, before: Shortcut | None, outcome: Outcome
) -> None:
    """Write the outline of a build that has ended; `notes` has what it asked, `before` is what it began with."""
    # Of one that does not hold for all, nothing would count the next time.
    old = before.outline if before is not None and before.holds_for_all else None
    if old is None or not _alike(old, old.for_all, notes):
        old = None
        _note_own_code(notes)
    for_all = notes.asked.get(FOR_ALL, set()) | set(old.for_all if old is not None else ())
    answers = {**(old.answers if old is not None else {}), **notes.answers}
    steady = answers.keys() - notes.unsteady
    is_of_all = bool(outcome.kernels) and not (before is not None and before.is_partial)
    if not for_all <= steady or (old is None and not is_of_all):
        # Somebody edits what all kernels depend on; the next build loads all of them. What this one has not loaded it
        # cannot name, and a build removes what no outline and no manifest names.
        return
    trusted = trusted_patterns(rules)
    images: dict[str, Sequence[str]] = {}
    if old is not None:
        images |= {owner: part.subjects for owner, part in old.parts.items()}
    images |= {**outcome.kernels, FOR_ALL: ()}
    library = outcome.library
    groups: Mapping[str, int] = {}
    if not outcome.good.keys().isdisjoint(library):
        groups = Counter(_stands_for(name) for subjects in images.values() for name in _names(rules, subjects))
    loaded = {*outcome.kernels, FOR_ALL}
    # Made from other things than the outline says, whichever kernel has seen that.
    changed = {owner for owner, part in old.parts.items() if not _alike(old, part.questions, notes)} if old else set()
    if changed:
        # What stands for many images goes by all of them.
        changed.add(FOR_ALL)
    parts: dict[str, Part] = {}
    for owner, subjects in images.items():
        asked = notes.asked.get(owner, set()) if owner != FOR_ALL else set[Question]()
        known = old.parts.get(owner) if old is not None and owner not in changed else None
        if known is not None and owner not in loaded and not asked:
            parts[owner] = known
            continue
        names = _names(rules, subjects) if owner != FOR_ALL else library
        kept = {
            name: _kept(build, name, outcome.good[name], groups if owner == FOR_ALL else {})
            for name in names
            if name in outcome.good and _is_of(trusted, name)
        }
        # What came after a step that ran was compared with what that made before.
        ran = outcome.ran if owner == FOR_ALL else outcome.ran.intersection(names)
        if known is not None and old is not None and not ran:
            if not asked and not kept and outcome.bad.isdisjoint(names):
                parts[owner] = known
                continue
            if owner == FOR_ALL or old.holds_for(owner):
                kept = {**{name: each for name, each in known.steps().items() if name not in outcome.bad}, **kept}
                asked = asked | set(known.questions)
        parts[owner] = Part.of(subjects, asked, kept if asked <= steady else {})
    Outline(
        identity=identity(rules, build.root, outcome.asked),
        stamp=build.state.stamp(),
        extra={"library": tuple(library), "trusted": trusted},
        answers=answers,
        for_all=tuple(sorted(for_all)),
        parts=parts,
    ).save(private / OUTLINE)


def _note_own_code(notes: Notes) -> None:
    """Another Kiln may tell otherwise what is stale: with it the next build asks everything."""
    with asked_by(FOR_ALL):
        for path in below(Path(kiln.__file__).parent, ".py"):
            if ("bytes", str(path)) not in notes.answers:
                read(path)


def _alike(old: Outline, questions: Iterable[Question], notes: Notes) -> bool:
    """Whether what has been asked anew has the answers that an outline has."""
    return all(
        notes.answers[question][0] == old.answers[question][0] for question in questions if question in notes.answers
    )


def _is_of(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns is that of a step."""
    kind = kind_of(name)
    return name in patterns or any(f"{kind}:<{what}>" in patterns for what in ("image", "target", "bundle"))


def _kept(build: Build, name: str, step: Step, groups: Mapping[str, int]) -> Kept:
    """What the outline has of a fresh step; `groups` are the words of `_stands_for`: for how many steps each is."""
    row = build.state.rows[name]
    ctimes = {}
    for output in row.outputs:
        known = build.state.files.known(f"{build.root}/{output.path}")
        if known is not None and known[1] == output.sha256:
            ctimes[output.path] = known[0][3]
    whole = {word for word, count in Counter(map(_stands_for, step.after)).items() if groups.get(word) == count}
    single = [each for each in step.after if _stands_for(each) not in whole]
    return (*single, *sorted(whole)), kept_outputs(row.outputs, ctimes)
