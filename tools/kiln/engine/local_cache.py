"""The cache in a folder of the user's: one file an entry, checked whole on every hit, the least used removed first.

Many builds use the folder at once, and none waits for another: an entry is written beside its place and renamed, and
is the same whoever writes it. What is wrong with the folder costs its entries, never the build. The folder may be a
link that its user made; below it no link is followed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kiln.engine.cache import Counts, Entry
from kiln.engine.cache_entry import pack, unpack
from kiln.errors import StateError, no_space

FOLDER_VARIABLE, SIZE_VARIABLE = "KILN_CACHE", "KILN_CACHE_SIZE"
OFF = "off"
DEFAULT_LIMIT = 5 << 30
"""bytes"""

_VERSION = "v1"
"""the folder, in the user's, that holds all that this module writes"""
_TOTALS, _LOCK = "totals.json", "lock"
_SHARD = re.compile(r"[0-9a-f]{2}")
_NEW, _ASIDE = ".new", ".damaged"
"""ends of names: of files that are being written, and of entries that were found damaged"""
_LEFT = 3600.0
"""seconds after which a file that is being written is one that a killed build left"""
_ROOM = 0.9
"""the part of the limit that is left in use when it was passed: so not every build has to look through the folder"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the cache is, and how many bytes it may have."""

    folder: Path
    limit: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a cache holds, and what it gave to all builds since it was cleared."""

    entries: int
    size: int
    """bytes"""
    counts: Counts


def settings(environment: Mapping[str, str]) -> Settings | None:
    """Where the user wants the cache; None for nowhere. Raises StateError for what means no size or no folder."""
    limit = _limit(environment.get(SIZE_VARIABLE, ""))
    named = environment.get(FOLDER_VARIABLE, "")
    if named == OFF:
        return None
    if named.startswith("~"):
        raise StateError(
            f"{FOLDER_VARIABLE} is {named!r}, and no shell has made a home folder of the ~",
            expected="the path of a folder, or off",
            actual=named,
            remedy="write the whole path",
        )
    if named:
        return Settings(folder=Path(named).absolute(), limit=limit)
    # XDG Base Directory Specification: a relative path there is to be ignored.
    above = Path(environment.get("XDG_CACHE_HOME", ""))
    if not above.is_absolute():
        above = Path(environment.get("HOME", ""), ".cache")
    return Settings(folder=above / "kiln", limit=limit) if above.is_absolute() else None


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if found is None:
        raise StateError(
            f"{SIZE_VARIABLE} is {text!r}, which is no size",
            expected="bytes, or a number with K, M or G behind it: 500M, 5G",
            actual=text,
        )
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


class LocalCache:
    """A `cache.Cache` in a folder, which need not exist. `warn` tells people something; once for each that is wrong."""

    def __init__(self, where: Settings, *, warn: Callable[[str], None]) -> None:
        self.folder = where.folder
        self.limit = where.limit
        self._warn = warn
        self._is_on = True
        self._is_writing = True
        self._has_warned_of_damage = False
        self._written = 0
        """bytes since the folder's size was looked after"""

    # -- the two calls

    def get(self, key: str) -> Entry | None:
        """The entry, or None: also when it is damaged, which sets it aside."""
        if not self._is_on:
            return None
        try:
            with self._shard(key) as shard:
                return self._get(key, shard)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error)
            return None

    def _get(self, key: str, shard: int) -> Entry | None:
        name = key[2:]
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=shard)
        except OSError as error:
            if error.errno == errno.ELOOP:
                self._set_aside(key, shard, "is a symbolic link")
                return None
            raise
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("is no regular file")
            with open(descriptor, "rb", closefd=False) as file:
                entry = unpack(key, file.read())
            # The time of its last use, by which eviction goes; a cache that cannot be written has none.
            with suppress(OSError):
                os.utime(descriptor)
            return entry
        except ValueError as error:
            self._set_aside(key, shard, str(error))
            return None
        finally:
            os.close(descriptor)

    def put(self, key: str, entry: Entry) -> None:
        """Keep the entry, if it can be kept."""
        if not (self._is_on and self._is_writing):
            return
        data = pack(key, entry)
        if len(data) > self.limit:
            return
        try:
            with self._shard(key, make=True) as shard:
                _replace(key[2:], data, shard)
        except FileNotFoundError:
            # Somebody clears the cache at this moment.
            return
        except OSError as error:
            self._stop_writing(error)
            return
        self._written += len(data)
        if self._written > self.limit // 8:
            self.tidy()

    # -- what is wrong with the folder

    def _give_up(self, error: OSError) -> None:
        self._is_on = False
        self._warn(f"warning: {self._fault(error)}; this build goes without it")

    def _stop_writing(self, error: OSError) -> None:
        self._is_writing = False
        self._warn(f"warning: {self._fault(error)}; this build keeps nothing more there")

    def _fault(self, error: OSError) -> str:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return f"something other than a folder stands in the cache {self.folder}, and no link is followed there"
        what = "no space left for" if no_space(error) else "it is not possible to use"
        reason = "" if no_space(error) else f" ({os.strerror(error.errno or 0)})"
        return f"{what} the cache {self.folder}{reason}; {FOLDER_VARIABLE} names another folder, or off"

    def _set_aside(self, key: str, shard: int, why: str) -> None:
        """Put an entry that is none where it is not found again, for whoever wants to know how it came to be."""
        name = key[2:]
        with suppress(OSError):
            os.rename(name, name + _ASIDE, src_dir_fd=shard, dst_dir_fd=shard)
        if not self._has_warned_of_damage:
            self._has_warned_of_damage = True
            path = self.folder / _VERSION / key[:2] / name
            self._warn(f"warning: {path} {why}; it is set aside as {path.name}{_ASIDE}, and what it held is made anew")

    # -- folders

    @contextmanager
    def _shard(self, key: str, *, make: bool = False) -> Iterator[int]:
        """The open folder that holds the key's entry. Raises OSError."""
        with self._top(make=make) as top:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(key[:2], 0o777, dir_fd=top)
            with _folder(key[:2], top) as shard:
                yield shard

    @contextmanager
    def _top(self, *, make: bool = False) -> Iterator[int]:
        if make:
            # What lies there is linked into programs: it is nobody else's to write, unless its user made it so.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        user = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(_VERSION, 0o777, dir_fd=user)
            with _folder(_VERSION, user) as top:
                yield top
        finally:
            os.close(user)

    # -- size

    def close(self, counts: Counts | None = None) -> None:
        """End a build's use: keep to the limit, and add to the totals what the cache gave."""
        if self._is_on and (self._written or (counts is not None and counts != Counts())):
            self.tidy(counts)

    def tidy(self, counts: Counts | None = None) -> None:
        """Remove what was used least when the limit is passed. Where another build is at it, it is left to that."""
        counts = counts or Counts()
        with suppress(OSError), self._top() as top, _locked(top) as is_ours:
            if not is_ours:
                return
            before = _read_totals(top)
            size = before[0] + self._written if before[0] is not None else None
            if size is None or size > self.limit:
                size = self._evict(top)
            self._written = 0
            totals = {"size": size, "hits": before[1] + counts.hits, "misses": before[2] + counts.misses}
            _replace(_TOTALS, json.dumps(totals).encode(), top)

    def _evict(self, top: int) -> int:
        """Remove the least used until there is room; the bytes that are left."""
        files = sorted(_files(top))
        size = sum(file.size for file in files)
        enough = self.limit if size <= self.limit else int(self.limit * _ROOM)
        for file in files:
            is_new = file.name.endswith(_NEW)
            if time.time() - file.mtime > _LEFT if is_new else size > enough:
                with suppress(OSError):
                    _remove(file, top)
                    size -= file.size
        return size

    def summary(self) -> Summary:
        """What there is. Raises OSError when the folder cannot be read; one that does not exist is empty."""
        try:
            with self._top() as top:
                files = [file for file in _files(top) if not file.name.endswith((_NEW, _ASIDE))]
                _, hits, misses = _read_totals(top)
        except FileNotFoundError:
            files, hits, misses = [], 0, 0
        size = sum(file.size for file in files)
        return Summary(entries=len(files), size=size, counts=Counts(hits=hits, misses=misses))

    def clear(self) -> int:
        """Remove every entry and the totals, and nothing else; how many entries went. Raises OSError."""
        removed = 0
        with suppress(FileNotFoundError), self._top() as top:
            for file in list(_files(top)):
                with suppress(FileNotFoundError):
                    _remove(file, top)
                    removed += not file.name.endswith((_NEW, _ASIDE))
            with suppress(FileNotFoundError):
                os.unlink(_TOTALS, dir_fd=top)
        return removed


# -- files by the folder that they are in


@dataclass(frozen=True, kw_only=True, order=True)
class _File:
    mtime: float
    shard: str
    name: str
    size: int


@contextmanager
def _folder(name: str, above: int) -> Iterator[int]:
    """An open folder; no link is followed. Raises OSError."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _replace(name: str, data: bytes, folder: int) -> None:
    """Write a file whole or not at all. Raises OSError."""
    new = f"{name[:8]}-{os.getpid()}-{secrets.token_hex(8)}{_NEW}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(new, flags, 0o666, dir_fd=folder), "wb") as file:
            file.write(data)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise


def _remove(file: _File, top: int) -> None:
    """Raises OSError."""
    with _folder(file.shard, top) as shard:
        os.unlink(file.name, dir_fd=shard)


def _files(top: int) -> Iterator[_File]:
    """All files that entries are or were; links count as files of their own, and lead nowhere."""
    for name in sorted(os.listdir(top)):
        if not _SHARD.fullmatch(name):
            continue
        with suppress(OSError), _folder(name, top) as shard, os.scandir(shard) as entries:
            for entry in entries:
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if not stat.S_ISDIR(found.st_mode):
                        yield _File(mtime=found.st_mtime, shard=name, name=entry.name, size=found.st_size)


@contextmanager
def _locked(top: int) -> Iterator[bool]:
    """Whether nobody else looks after the folder now. Raises OSError."""
    lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=top)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def _read_totals(top: int) -> tuple[int | None, int, int]:
    """Bytes, hits and misses; no number of bytes where nobody has counted, or nobody can tell."""
    try:
        with os.fdopen(os.open(_TOTALS, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=top), "rb") as file:
            table = json.load(file)
        return int(table["size"]), int(table["hits"]), int(table["misses"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, 0, 0
