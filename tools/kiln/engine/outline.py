"""The outline of the last build: what it went by and what it left, in one file that tells at once what is still fresh.

The state says what the inputs of each step were; to compare them, all that they are made from has to be read again. The
outline has, in place of that, the questions that were asked on the way and their answers. It is a shortcut and no
record: one that is damaged, foreign or older than the state is as good as none.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from os import lstat
from pathlib import Path
from typing import Any

from kiln.engine.rows import Output
from kiln.files import FOR_ALL, FileState, Question, holds

_MAGIC = b"kiln outline 1 "
"""before the marshal format's name and the sha256 of what follows; the number is the schema"""

_NONE = ("no answer", None)

Kept = tuple[tuple[str, ...], tuple[str | int, ...]]
"""the names of the steps that a step comes after, and of each of its outputs the path, the size and the ctime in ns"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one owner, such as a kernel, brings to the graph."""

    subjects: tuple[str, ...]
    """what its steps are about, such as images: all of them, fresh or not"""
    questions: tuple[Question, ...]
    """what its steps were made from, but for what all have in common"""
    kept: bytes
    """marshal of step name -> Kept; only the steps that were fresh in the end"""

    @classmethod
    def of(cls, subjects: Iterable[str], questions: Iterable[Question], steps: Mapping[str, Kept]) -> Part:
        """With the steps that are fresh."""
        return cls(subjects=tuple(subjects), questions=tuple(sorted(questions)), kept=marshal.dumps(dict(steps)))

    def steps(self) -> dict[str, Kept]:
        """The steps that were fresh in the end."""
        found: dict[str, Kept] = marshal.loads(self.kept)
        return found


@dataclass(kw_only=True)
class Outline:
    """What a build went by and what it left."""

    identity: Any
    """plain data that tells this graph from others: whose it is, and what its rules are"""
    stamp: FileState | None
    """of the state's file when the build ended: any other build since then has moved it"""
    extra: Any
    """plain data of whoever makes the graph"""
    answers: dict[Question, tuple[str | None, FileState | None]]
    for_all: tuple[Question, ...]
    """what all parts depend on"""
    parts: dict[str, Part]
    """by owner, in the order of declaration; FOR_ALL for steps that depend on every part"""
    moved: bool = False
    """whether a file was read again because its time stamps moved, and held the same bytes"""
    _known: dict[Question, bool] = field(default_factory=dict)

    # -- asking

    def holds_for(self, owner: str) -> bool:
        """Whether all that a part was made from is as it was."""
        return self._holds_for_all and (owner == FOR_ALL or self._all_hold(self.parts[owner].questions))

    @cached_property
    def _holds_for_all(self) -> bool:
        # Asked once: a large library has a thousand parts, and as many questions that are everybody's.
        return self._all_hold(self.for_all)

    def holds(self, question: Question) -> bool:
        """Whether a question has the answer that it had."""
        if question not in self._known:
            noted = self.answers.get(question)
            if noted is None:
                return False
            self._known[question], state = holds(question, noted)
            if self._known[question] and state != noted[1]:
                self.answers[question] = noted[0], state
                self.moved = True
        return self._known[question]

    def _all_hold(self, questions: Iterable[Question]) -> bool:
        return all(map(self.holds, questions))

    def reached(self, owner: str, names: Iterable[str], root: str) -> set[str] | None:
        """The names, and those of the steps that they come after; None unless all of them are fresh.

        `root` is the build folder.
        """
        if not self.holds_for(owner):
            return None
        steps, found, pending = self.parts[owner].steps(), set[str](), list(names)
        while pending:
            name = pending.pop()
            if name in found:
                continue
            kept = steps.get(name)
            if kept is None or not intact(root, kept[1]):
                return None
            found.add(name)
            pending += kept[0]
        return found

    # -- the file

    @classmethod
    def load(cls, path: Path) -> Outline | None:
        """The outline in a file; None where there is none that this Python can read."""
        try:
            with path.open("rb") as file:
                head, data = file.readline(200), file.read()
            if head != _head(data):
                return None
            identity, stamp, extra, listed, for_all, parts = marshal.loads(data)
        except (OSError, EOFError, ValueError, TypeError):
            return None
        questions = [question for question, _ in listed]
        return cls(
            identity=identity,
            stamp=stamp,
            extra=extra,
            answers=dict(listed),
            for_all=tuple(questions[index] for index in for_all),
            parts={
                owner: Part(subjects=subjects, questions=tuple(questions[index] for index in asked), kept=kept)
                for owner, subjects, asked, kept in parts
            },
        )

    def save(self, path: Path) -> None:
        """Put the outline in place of the last one. One that cannot be written is not missed."""
        used = dict.fromkeys(self._questions())
        # A question without an answer is of a step that is not kept.
        listed = [(question, self.answers.get(question, _NONE)) for question in used]
        numbers = {question: number for number, question in enumerate(used)}
        parts = [
            (owner, part.subjects, [numbers[question] for question in part.questions], part.kept)
            for owner, part in self.parts.items()
        ]
        data = marshal.dumps(
            (self.identity, self.stamp, self.extra, listed, [numbers[each] for each in self.for_all], parts)
        )
        new = path.with_name(f"{path.name}.new")
        with suppress(OSError):
            # Whoever writes at the same time spoils a file that its digest then gives away.
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
            with os.fdopen(handle, "wb") as file:
                file.write(_head(data))
                file.write(data)
            new.replace(path)

    def _questions(self) -> Iterator[Question]:
        yield from self.for_all
        for part in self.parts.values():
            yield from part.questions


def kept_outputs(outputs: Iterable[Output], ctimes: Mapping[str, int]) -> tuple[str | int, ...]:
    """A step's outputs as `Kept` has them.

    `ctimes` has, by path, a later ctime than that of the record at which an output still held the same bytes.
    """
    return tuple(
        value
        for output in outputs
        for value in (output.path, output.size, max(output.ctime_ns, ctimes.get(output.path, 0)))
    )


def _head(data: bytes) -> bytes:
    # The format of marshal is that of byte code, which changes with Python's minor version.
    tag = f"{sys.implementation.cache_tag} {hashlib.sha256(data).hexdigest()}\n"
    return _MAGIC + tag.encode()


def intact(root: str, outputs: tuple[str | int, ...]) -> bool:
    """Whether files have the size and the ctime that they had; a ctime cannot be set."""
    # Most of the time of a build that has nothing to do is spent here.
    values = iter(outputs)
    try:
        for path, size, ctime_ns in zip(values, values, values, strict=True):
            found = lstat(f"{root}/{path}")
            if found.st_ctime_ns != ctime_ns or found.st_size != size:
                return False
    except OSError:
        return False
    return True
