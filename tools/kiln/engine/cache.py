"""What steps made, kept by the digest of all that they were made from: for other trees, branches and clean builds.

Nothing here knows where entries lie: a `Cache` is two calls, and `local_cache` is one. A step's key is made of its
inputs and of the roles of its outputs, and of no name or path, so that equal work is done once.

What a step found out while it ran is an input too, and cannot be in the key that is asked first. So under that key lies
what earlier runs found, and each of those, with the digests of today, leads to a further key.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kiln.digests import FileDigests, digest_bytes, digest_json
from kiln.engine.rows import Output, Row
from kiln.engine.step import Found, Step
from kiln.errors import KilnError

_SCHEMA = 1
"""part of each key: raised when entries mean something else than before"""
_ALTERNATIVES = 16
"""how many of the things that runs found are kept for one key, the latest first"""
_LARGEST = 16 << 20
"""bytes of a step's outputs that are kept: more is a package of what has entries of its own, and one for each edit
would push those out"""
_COUNTS = "cache.json"
"""in the build's private folder: what the last build that asked the cache got of it"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What lies under one key: the outputs of a step, or else what runs with the same inputs have found."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    """role of an output -> its bytes"""
    found: tuple[Found, ...] = ()
    seconds: float = 0.0
    peak_memory: int = 0
    """both as in the step's row: what it cost where it ran"""


class Cache(Protocol):
    """A store of entries. Neither call fails: what cannot be had is a miss, and what cannot be kept is not."""

    def get(self, key: str) -> Entry | None:
        """The entry, whole and as it was put, or None."""

    def put(self, key: str, entry: Entry) -> None:
        """Keep an entry, in place of one that has the key."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What a step made once with the inputs that it has now."""

    entry: Entry
    found: Found
    """what the run had found"""
    inputs: Mapping[str, str]
    """all that led to the entry: what was asked, and the digests of what was found"""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often a cache had what a step makes, and how often it did not."""

    hits: int = 0
    misses: int = 0


def key_of(inputs: Mapping[str, str], roles: Sequence[str]) -> str:
    """The key of the outputs that follow from these inputs."""
    return digest_json({"schema": _SCHEMA, "inputs": dict(inputs), "roles": list(roles)})


class StepCache:
    """A cache as one build uses it: by steps and rows. `root` is the build folder, `warn` tells people something."""

    def __init__(self, store: Cache, *, root: Path, files: FileDigests, warn: Callable[[str], None]) -> None:
        self._store = store
        self._root = root
        self._files = files
        self._warn = warn
        self._waiting: list[tuple[tuple[str, ...], Row]] = []
        self._is_keeping = True
        self.counts = Counts()

    def get(self, step: Step, asked: Mapping[str, str]) -> Hit | None:
        """What a step with these inputs made once; `asked` are those without what a run finds."""
        hit = self._look_up(step, asked)
        counts = self.counts
        self.counts = Counts(hits=counts.hits + (hit is not None), misses=counts.misses + (hit is None))
        return hit

    def _look_up(self, step: Step, asked: Mapping[str, str]) -> Hit | None:
        entry = self._store.get(key_of(asked, step.cached))
        if entry is not None and entry.files:
            return Hit(entry=entry, found={}, inputs=asked) if entry.files.keys() == set(step.cached) else None
        for found in entry.found if entry is not None else ():
            # Of a file that cannot be read now nobody can say that it is what was read then.
            with suppress(KilnError, OSError):
                inputs = {**asked, **step.found(found)}
                alternative = self._store.get(key_of(inputs, step.cached))
                if alternative is not None and alternative.files.keys() == set(step.cached):
                    return Hit(entry=alternative, found=found, inputs=inputs)
        return None

    def keep(self, step: Step, row: Row) -> None:
        """Have what a step has just made kept, by the next `flush`."""
        if step.cached and self._is_keeping and sum(output.size for output in row.outputs) <= _LARGEST:
            self._waiting.append((step.cached, row))

    def flush(self) -> None:
        """Put what waits into the cache, unless a file that the digests speak of was replaced since they were made.

        A compiler that is updated while it compiles makes one thing, and the digest says another. In a tree that costs
        a rebuild; here it would be believed for ever.
        """
        waiting, self._waiting = self._waiting, []
        if not waiting or not self._is_keeping:
            return
        if moved := self._files.moved(self._root):
            self._is_keeping = False
            self._warn(
                f"warning: {moved} was changed while the build ran: nothing more of this build is kept in the cache, "
                "and the next one makes anew what that concerns"
            )
            return
        for roles, row in waiting:
            contents = [_read(self._root / output.path, output) for output in row.outputs]
            files = {role: data for role, data in zip(roles, contents, strict=True) if data is not None}
            if len(files) == len(roles):
                entry = Entry(files=files, seconds=row.seconds, peak_memory=row.peak_memory)
                self._store.put(key_of(row.components, roles), entry)
                if row.found:
                    self._add_alternative(roles, row)

    def _add_alternative(self, roles: tuple[str, ...], row: Row) -> None:
        """Note beside what earlier runs found what this one did. Two builds at once may lose one: that is a miss."""
        key = key_of({name: value for name, value in row.components.items() if name not in row.found}, roles)
        known = self._store.get(key)
        if known is None or row.found not in known.found[:1]:
            others = [each for each in known.found if each != row.found] if known is not None else []
            self._store.put(key, Entry(found=(row.found, *others)[:_ALTERNATIVES]))


def _read(path: Path, output: Output) -> bytes | None:
    """A published file's bytes; None when it is not what was published any more."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
            data = file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return None
    return data if digest_bytes(data) == output.sha256 else None


def note_counts(private: Path, counts: Counts) -> None:
    """Note in a build's private folder what the cache gave. For people only: where it cannot be written, it is not."""
    new = private / f"{_COUNTS}.new"
    with suppress(OSError):
        new.write_text(json.dumps({"hits": counts.hits, "misses": counts.misses}) + "\n", "utf-8")
        new.replace(private / _COUNTS)


def read_counts(private: Path) -> Counts | None:
    """What `note_counts` noted last; None where it did not."""
    try:
        noted = json.loads((private / _COUNTS).read_text("utf-8"))
        return Counts(hits=int(noted["hits"]), misses=int(noted["misses"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
