"""Failures of steps as people read them: a block each, and what is the same in many images once."""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from doit.exceptions import TaskFailed

from kiln.doit_plugin.tasks import StepTask, shown
from kiln.engine.build import Finished
from kiln.errors import KilnError, MemoryLimitError

_TRACE_LINES = 12
"""of a traceback whose whole is in the log"""
_PRINTED_LINES = 4
_TELLING = re.compile(r"\b(error|assert\w*|fatal|abort\w*|terminate called)\b", re.IGNORECASE)


class StepFailed(TaskFailed):  # type: ignore[misc]  # doit has no types
    """A step failed; `finished` says how, where it ran. The message is what doit's own reporters print."""

    def __init__(self, error: Exception, finished: Finished | None) -> None:
        self.known = error if isinstance(error, KilnError) else KilnError(f"{type(error).__name__}: {error}")
        self.finished = finished
        self.trace = finished.trace if finished is not None else None
        if finished is None and error is not self.known:
            self.trace = "".join(traceback.format_exception(error))
        stage = f"\n  stage: {self.known.stage}" if self.known.stage else ""
        super().__init__(f"{self.known}{stage}")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is told of a step that failed."""

    name: str
    error: KilnError
    trace: Sequence[str] = ()
    """the last lines of the traceback of an error that was not made for people"""
    printed: Sequence[str] = ()
    """what its process printed before it died"""
    declared: Sequence[str] = ()
    """the kernel's lines, in kernels.yaml and in its source"""
    log: str | None = None
    """the file with all that it printed"""
    seconds: float | None = None
    peak_memory: int | None = None
    """bytes; both None where nothing ran"""
    command: str = "doit -v 2"
    """what runs a step again, before its name"""

    @classmethod
    def of(cls, task: StepTask, fail: Any, command: str) -> Failure:
        """`fail` is what doit hands on: a StepFailed, or what doit itself found wrong with the task."""
        if not isinstance(fail, StepFailed):
            return cls(
                name=task.name, error=KilnError(fail.get_msg().strip()), declared=task.step.origin, command=command
            )
        log = fail.finished.log if fail.finished is not None else None
        trace = (fail.trace or "").strip().splitlines()
        if log is not None and len(trace) > _TRACE_LINES:
            trace = ["...", *trace[-_TRACE_LINES:]]
        # Whoever raises an error of another kind knows what matters of what was printed.
        died = not trace and type(fail.known) in (KilnError, MemoryLimitError)
        return cls(
            name=task.name,
            error=fail.known,
            trace=trace,
            printed=_telling(fail.finished.output) if died and fail.finished is not None else (),
            declared=task.step.origin,
            log=shown(log) if log is not None else None,
            seconds=fail.finished.seconds if fail.finished is not None else None,
            peak_memory=fail.finished.peak_memory if fail.finished is not None else None,
            command=command,
        )

    @property
    def reproduce(self) -> str:
        """The command that shows it again, with all that is printed."""
        return f"{self.command} {shlex.quote(self.name)}"

    @cached_property
    def text(self) -> str:
        """What went wrong, without what else there is to know of the step."""
        printed = ["  printed:", *(f"    {line}" for line in self.printed)] if self.printed else []
        return "\n".join([str(self.error), *printed, *self.trace])

    def block(self) -> str:
        """All of it."""
        lines = self.text.splitlines()
        lines += [f"stage: {self.error.stage}"] if self.error.stage else []
        lines += [f"declared: {', '.join(self.declared)}"] if self.declared else []
        lines += [f"log: {self.log}"] if self.log is not None else []
        lines += [f"reproduce: {self.reproduce}"]
        return "\n".join([f"FAILED {self.name}", *(f"  {line}" for line in lines)])


def _telling(output: str) -> list[str]:
    """Of what a process printed before it died: the first lines that speak of an error, or else the last ones."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return [line for line in lines if _TELLING.search(line)][:_PRINTED_LINES] or lines[-_PRINTED_LINES:]


@dataclass(kw_only=True)
class Group:
    """Failures that are one fault, or look like it."""

    first: Failure
    same: list[str] = field(default_factory=list)
    """the names of other steps with the same failure, but for their own names"""
    alike: list[str] = field(default_factory=list)
    """the names of other images of the kernel with a failure that differs in numbers: sizes, or lines of a PTX"""

    @property
    def count(self) -> int:
        return 1 + len(self.same) + len(self.alike)


class Groups:
    """All failures of a build."""

    def __init__(self) -> None:
        self.all: list[Group] = []
        self._by_shape: dict[tuple[object, ...], list[tuple[_Words, Group]]] = {}
        self.count = 0

    def add(self, failure: Failure) -> bool:
        """Enter a failure; whether it is the first of its group."""
        self.count += 1
        words = _Words(failure)
        # Of many failures only those are compared word by word that may be one.
        near = self._by_shape.setdefault((type(failure.error), failure.error.stage, words.shape), [])
        alike: Group | None = None
        for first, group in near:
            difference = words.difference(first)
            if difference == _NAMES:
                group.same.append(failure.name)
                return False
            # Another kernel's numbers may mean another thing.
            of_kernel = bool(failure.declared) and failure.declared == group.first.declared
            if difference == _NUMBERS and of_kernel and alike is None:
                alike = group
        if alike is not None:
            alike.alike.append(failure.name)
            return False
        self.all.append(Group(first=failure))
        near.append((words, self.all[-1]))
        return True


_NAMES, _NUMBERS = "names", "numbers"
"""how far two failures differ: in the images' own names at most, or in numbers too"""


class _Words:
    """A failure's text, word by word, and the words that are those of the image's own name."""

    def __init__(self, failure: Failure) -> None:
        image = failure.name.partition(":")[2]
        variant, _, target = image.partition("@")
        text = failure.text
        for name, place in ((image, "<image>"), (variant, "<variant>"), (target, "<target>")):
            text = text.replace(name, place) if name else text
        self._words = re.split(r"([^A-Za-z0-9]+)", text)
        self._own = re.findall(r"[A-Za-z0-9]+", variant)
        self._own += re.findall(r"\d\w*", target)
        own = set(self._own)
        self.shape = tuple("#" if word in own or word[-1:].isdigit() else word for word in self._words)

    def difference(self, other: _Words) -> str | None:
        """How far two texts of one shape differ; None for further than that."""
        found = _NAMES
        own = set(zip(self._own, other._own, strict=False))
        for word, theirs in zip(self._words, other._words, strict=True):
            if word != theirs and (word, theirs) not in own:
                if not (word.isdigit() and theirs.isdigit()):
                    return None
                found = _NUMBERS
        return found
