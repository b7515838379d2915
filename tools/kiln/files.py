"""What a build asks of files and the environment while it loads: asked through here, so that the answers can be noted.

A build that has noted all that it went by need not go through it again while the answers stay the same. So whatever the
parent of a build reads before it knows which steps are stale, it reads with these functions, and with no others.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

FileState = tuple[int, int, int, int]
"""size in bytes, mtime in ns, inode, ctime in ns: while these stand still a file is taken to hold the same bytes"""

Question = tuple[str, str]
"""what was asked, one of the keys of `_ANSWERS`, and of what: a path or a name"""

Noted = tuple[str | None, FileState | None]
"""An answer, None where there is none: no such file, variable or program. With it, the state of the file or folder that
it was read off: while that stands still, so does the answer. None where there is no state, or none to rely on."""

FOR_ALL = ""
"""who asks for what all have in common"""

_SETTLED = 100_000_000
"""ns: the clock of a file system ticks in steps of some ms, so a younger file may change and keep its time stamps"""

K = TypeVar("K")
T = TypeVar("T")


@dataclass(kw_only=True)
class Notes:
    """What was asked, and by whom."""

    answers: dict[Question, Noted] = field(default_factory=dict)
    asked: dict[str, set[Question]] = field(default_factory=dict)
    """whoever asked, such as a kernel -> what"""
    unsteady: set[Question] = field(default_factory=set)
    """what had one answer and then another: somebody edits while the build loads"""


_notes: Notes | None = None
_owner = FOR_ALL
_listening: list[set[Question]] = []
"""of each `Memo` that is looking for a value: what was asked for it"""


@contextmanager
def noted_in(notes: Notes) -> Iterator[None]:
    """Note in `notes` all that is asked, for `FOR_ALL` unless `asked_by` says otherwise."""
    global _notes
    before, _notes = _notes, notes
    try:
        yield
    finally:
        _notes = before


@contextmanager
def unnoted() -> Iterator[None]:
    """Note nothing of what is asked."""
    global _notes
    before, _notes = _notes, None
    try:
        yield
    finally:
        _notes = before


@contextmanager
def asked_by(owner: str) -> Iterator[None]:
    """Note that `owner` asks, and nobody around it."""
    global _owner
    before, _owner = _owner, owner
    try:
        yield
    finally:
        _owner = before


class Memo(Generic[K, T]):
    """Values by key, each found once. Whoever asks for a value again has asked for all that it was found with."""

    def __init__(self) -> None:
        self._known: dict[K, tuple[T, set[Question]]] = {}

    def get(self, key: K, find: Callable[[], T]) -> T:
        """The key's value, with `find` if it is not known. What `find` raises is not remembered."""
        if key in self._known:
            value, asked = self._known[key]
        else:
            asked = set()
            _listening.append(asked)
            try:
                value = find()
            finally:
                _listening.pop()
            self._known[key] = value, asked
        for each in (*_listening, *_of_owner()):
            each |= asked
        return value


def _of_owner() -> list[set[Question]]:
    return [] if _notes is None else [_notes.asked.setdefault(_owner, set())]


def _note(kind: str, subject: str, answer: str | None, state: FileState | None = None) -> None:
    if _notes is None and not _listening:
        return
    question = (kind, subject)
    for each in (*_listening, *_of_owner()):
        each.add(question)
    if _notes is None:
        return
    known = _notes.answers.get(question)
    if known is None or (known[0] == answer and known[1] is None):
        _notes.answers[question] = answer, state
    elif known[0] != answer:
        _notes.unsteady.add(question)


# -- files and folders


def read(path: Path, most: int = -1) -> bytes:
    """A file's bytes, at most so many. Raises OSError."""
    name = _absolute(path)
    try:
        with open(name, "rb") as file:  # noqa: PTH123  # a name
            state = _settled(os.fstat(file.fileno()))
            data = file.read(most)
    except OSError:
        _note("bytes", name, None)
        raise
    if _notes is not None or _listening:
        _note("bytes", name, hashlib.sha256(data).hexdigest(), state)
    return data


def note_bytes(path: Path, digest: str | None, state: FileState | None) -> None:
    """Note that a file's bytes are gone by, which somebody has read elsewhere; None for one that cannot be read.

    `state` is from before that, if it is settled.
    """
    _note("bytes", _absolute(path), digest, state)


def is_file(path: Path) -> bool:
    """Whether a file is there, links followed."""
    return _ask("kind", path) == "file"


def is_dir(path: Path) -> bool:
    """Whether a folder is there, links followed."""
    return _ask("kind", path) == "folder"


def exists(path: Path) -> bool:
    """Whether anything is there, links followed."""
    return _ask("kind", path) is not None


def is_entry(path: Path) -> bool:
    """Whether a folder has an entry of that name, and be it a link that leads nowhere."""
    return _ask("entry", path) is not None


def real(path: Path, *, strict: bool = False) -> Path:
    """The path with all links followed. Raises OSError and RuntimeError as `Path.resolve` does."""
    found = path.resolve(strict=strict)
    _note("real", _absolute(path), str(found))
    return found


def names(folder: Path) -> tuple[str, ...]:
    """The names in a folder, in order, with a slash behind those of folders; none where there is no folder.

    Without those of Python's own caches, which come and go.
    """
    name = _absolute(folder)
    try:
        state = _settled(os.stat(name))  # noqa: PTH116  # a name
    except OSError:
        state = None
    found = _listed(name)
    _note("names", name, None if found is None else _digest_of_names(found), state)
    return tuple(found or ())


def below(folder: Path, suffix: str = "") -> list[Path]:
    """The files below a folder whose names end with `suffix`, in order; links to folders are not followed."""
    found: list[Path] = []
    for name in names(folder):
        path = folder / name
        if name.endswith("/"):
            found += below(path, suffix)
        elif name.endswith(suffix):
            found.append(path)
    return sorted(found)


# -- the environment


def variable(name: str) -> str | None:
    """A variable of the environment, None where it is not set."""
    return _ask_for("variable", name)


def which(program: str) -> str | None:
    """The program of that name on PATH, or at that path; None where there is none."""
    return _ask_for("program", program)


def find_package(name: str, folders: Sequence[str] | None = None) -> Path | None:
    """The folder of an installed package, in `folders` or where this Python looks; nothing is imported for that."""
    if folders is None:
        spec = importlib.util.find_spec(name)
    else:
        spec = importlib.machinery.PathFinder.find_spec(name, folders)
    home = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    for entry in sys.path if folders is None else folders:
        # What lies further on does not count; a file or folder that comes up before does.
        for candidate in (Path(entry, name), Path(entry, f"{name}.py")):
            exists(candidate)
        if home == Path(entry, name):
            break
    return home


# -- asking anew


def holds(question: Question, noted: Noted) -> tuple[bool, FileState | None]:
    """Whether a question still has the answer that was noted, and the state that it is now read off."""
    kind, subject = question
    answer, before = noted
    if kind not in ("bytes", "names"):
        return _ANSWERS[kind](subject) == answer, None
    try:
        found = os.stat(subject)  # noqa: PTH116  # a name
    except OSError:
        return answer is None, None
    if before is not None and (found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns) == before:
        return True, before
    state = _settled(found)
    return _ANSWERS[kind](subject) == answer, state


def _ask(kind: str, path: Path) -> str | None:
    return _ask_for(kind, _absolute(path))


def _ask_for(kind: str, subject: str) -> str | None:
    answer = _ANSWERS[kind](subject)
    _note(kind, subject, answer)
    return answer


def _absolute(path: Path) -> str:
    return os.path.abspath(path) if ".." not in path.parts else str(path.absolute())  # noqa: PTH100  # as it is spelled


def state_of(found: os.stat_result) -> FileState:
    """What tells that a file has changed."""
    # ctime, which nobody can set, tells when a file is replaced by one of the same size and with an old mtime.
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def is_settled(found: os.stat_result) -> bool:
    """Whether the file, asked now, would show by its state that it changed from now on."""
    return abs(time.time_ns() - max(found.st_ctime_ns, found.st_mtime_ns)) > _SETTLED


def _settled(found: os.stat_result) -> FileState | None:
    return state_of(found) if is_settled(found) else None


def _kind(name: str) -> str | None:
    try:
        mode = os.stat(name).st_mode  # noqa: PTH116  # a name
    except (OSError, ValueError):
        return None
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def _listed(name: str) -> list[str] | None:
    try:
        with os.scandir(name) as entries:
            found = [
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
                if entry.name != "__pycache__"
            ]
    except OSError:
        return None
    return sorted(found)


def _digest_of_names(found: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(found).encode("utf-8", "surrogateescape")).hexdigest()


def _names(name: str) -> str | None:
    found = _listed(name)
    return None if found is None else _digest_of_names(found)


def _bytes(name: str) -> str | None:
    try:
        with open(name, "rb") as file:  # noqa: PTH123  # a name
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


_ANSWERS: dict[str, Callable[[str], str | None]] = {
    "bytes": _bytes,
    "names": _names,
    "kind": _kind,
    "entry": lambda name: "entry" if os.path.lexists(name) else None,
    "real": os.path.realpath,
    "variable": os.environ.get,
    "program": shutil.which,
}
