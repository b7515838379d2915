"""The errors that people read: what failed, where, what was expected, what was found, and what to do."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in a text file; line and column count from 1, as editors and compilers do."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class KilnError(Exception):
    """What failed, in a form that a person can act on.

    `str()` gives a line `<where>: <what>`, then an indented line each for expected, actual and remedy, where set.
    `stage` names the part of the work that failed: `front end`, `ptxas`, `objcopy`.
    """

    usual_stage: str | None = None
    """the stage that errors of a kind are of, unless they say another"""

    def __init__(
        self,
        what: str,
        *,
        where: Position | str | None = None,
        expected: str | None = None,
        actual: str | None = None,
        remedy: str | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.expected = expected
        self.actual = actual
        self.remedy = remedy
        self.stage = stage or self.usual_stage

    def __str__(self) -> str:
        head = self.what if self.where is None else f"{self.where}: {self.what}"
        details = (("expected", self.expected), ("actual", self.actual), ("remedy", self.remedy))
        return "\n".join([head, *(f"  {label}: {text}" for label, text in details if text)])

    def filled(self, *, where: Position | str | None = None, actual: str | None = None) -> KilnError:
        """The same error with what it left open: whoever catches it often knows more than whoever raised it."""
        parts = (self.what, self.where or where, self.expected, self.actual or actual, self.remedy, self.stage)
        return _rebuild(type(self), *parts)

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross the pipe from a child, so they pickle with all their parts."""
        return (_rebuild, (type(self), self.what, self.where, self.expected, self.actual, self.remedy, self.stage))


def _rebuild(
    kind: type[KilnError],
    what: str,
    where: Position | str | None,
    expected: str | None,
    actual: str | None,
    remedy: str | None,
    stage: str | None,
) -> KilnError:
    return kind(what, where=where, expected=expected, actual=actual, remedy=remedy, stage=stage)


class ManifestError(KilnError):
    """kernels.yaml says something that Kiln cannot take."""


class ClosureError(KilnError):
    """The slice of a kernel's source could not be cut or executed."""

    usual_stage = "slice"


class UncutError(ClosureError):
    """Only a run can tell what the kernel needs; importing its file as a whole may do."""


class ToolchainError(KilnError):
    """A tool is missing or is not what the build needs."""


class CompileError(KilnError):
    """A compiler refused a kernel."""


class ImageError(KilnError):
    """A built image is not what was declared, or cannot be read."""

    usual_stage = "check"


class PackagingError(KilnError):
    """Images could not be turned into a library."""


class ReleaseError(KilnError):
    """A release cannot be made, or is not what it says of itself."""


class ChoicesError(KilnError):
    """A file of choices says something that it cannot, or cannot be read or written."""


class MemoryLimitError(KilnError):
    """A step took more memory than it may have, or than there is."""


class LockError(KilnError):
    """kiln.lock says something that it cannot, or cannot be read or written."""


class StateError(KilnError):
    """The build folder, its records or its lock are in the way."""


_REMEDIES = {
    errno.ENOSPC: "make room there and run again; finished work is kept",
    errno.EDQUOT: "make room in your quota there and run again; finished work is kept",
    errno.EACCES: "give yourself the rights to it, or remove it if another user made it, and run again",
    errno.EPERM: "give yourself the rights to it, or remove it if another user made it, and run again",
    errno.EROFS: "make its file system writable, or build elsewhere",
    errno.EXDEV: "keep the whole build folder on one file system",
}


def no_space(error: OSError) -> bool:
    """Whether the system refused because a disk or a quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def os_failure(what: str, error: OSError, where: Path | str) -> StateError:
    """What the system refused, in the words of a build; `where` is for an `error` that names no file."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StateError(
        f"no space left on the disk: {what}" if no_space(error) else f"{what}: {reason}",
        where=str(error.filename or where),
        remedy=_REMEDIES.get(error.errno or 0),
    )


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'blocks'?` for the closest of `known`, or None when nothing is close."""
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name) for name in close)}?" if close else None
