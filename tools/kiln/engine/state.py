"""What the last builds did, in one SQLite file: a row a step, committed when the step ends.

A build that is killed loses only what was in flight. A file that cannot be read is set aside with a warning: that costs
a rebuild, never an abort. Reading never writes, so listings are safe on any state.

The file keeps SQLite's rollback journal, which lies beside it only while a commit lasts. With a write-ahead log readers
would have to make files of their own; a commit here takes 0.1 ms, and what it costs to run a step is many times that.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from kiln.digests import FileDigests, FileState
from kiln.engine.rows import Row, Rows, sealed, whole
from kiln.errors import StateError, os_failure
from kiln.files import state_of

SCHEMA = 7
"""Stored as SQLite's user_version; a file of another schema is set aside like an unreadable one."""

_TABLES = """
CREATE TABLE steps (name TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, ctime_ns INTEGER, sha256 TEXT
) WITHOUT ROWID;
CREATE TABLE notes (owner TEXT, key TEXT, value TEXT, PRIMARY KEY (owner, key)) WITHOUT ROWID;
CREATE TABLE texts (digest TEXT PRIMARY KEY, text BLOB NOT NULL);
"""
_PUT_STEP = "INSERT OR REPLACE INTO steps VALUES (?, ?)"
_PUT_FILE = "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)"
_PUT_NOTE = "INSERT OR REPLACE INTO notes VALUES (?, ?, ?)"
_PUT_TEXT = "INSERT OR IGNORE INTO texts VALUES (?, ?)"

_TEXT_LIMIT = 256 << 10
"""characters: a longer text is not kept"""
_TEXTS_LIMIT = 64 << 20
"""bytes, packed, of all texts that are kept"""

_SURROUNDINGS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""SQLite's codes for a write that fails through no fault of the file"""

_Files = dict[str, tuple[FileState, str]]
_Notes = dict[str, dict[str, Any]]

T = TypeVar("T")


class State:
    """The state of one build folder. `path` need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        """what people should know: a file that cannot be read and is going to be set aside, or that was"""
        self._told = 0
        """how many of them `untold` has given out"""
        self._writer: sqlite3.Connection | None = None

    # -- reading ------------------------------------------------------------------------------------------------------

    @cached_property
    def _rows(self) -> Rows:
        """A build that has something to do asks for a few rows first, and for all while its first step runs: 30,000
        take 0.1 s."""
        return Rows(
            one=lambda name: self._asked(partial(_read_row, name), None),
            every=lambda: self._asked(_read_rows, {}),
        )

    @cached_property
    def _files(self) -> _Files:
        return self._asked(_read_files, {})

    @cached_property
    def _notes(self) -> _Notes:
        return self._asked(_read_notes, {})

    def read(self) -> None:
        """Read everything that was not read yet. Nothing is written before, for a damaged file is made anew of it."""
        self._rows.read()
        _ = self._files, self._notes

    def _asked(self, ask: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What the file says; `nothing` where there is no file, or none that can be read."""
        if not self._is_read:
            self._is_read, self._found = True, self.stamp()
        try:
            if self.path.is_symlink():
                raise ValueError("it is a symbolic link, and Kiln follows none inside the build folder")
            return _read(self.path, ask) if not self._unreadable and self.path.exists() else nothing
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            if not self._unreadable:
                self._unreadable = self.is_lost = True
                self.warnings.append(
                    f"{self.path}: the record of earlier builds cannot be read ({error}); "
                    f"the next build sets it aside as {self._aside.name} and builds anew what it cannot vouch for"
                )
            return nothing

    def refresh(self) -> None:
        """Forget what was read, if another process has written since. To be asked before anything is written."""
        if self._is_read and self._found != self.stamp():
            # The same object as before: others hold it.
            files = self.files
            self.warnings.clear()
            self._told = 0
            self._unreadable = self._is_read = self.is_lost = False
            self._sizes = None
            for table in ("_rows", "_files", "_notes"):
                self.__dict__.pop(table, None)
            files.renew(self._files)

    def untold(self) -> list[str]:
        """The warnings that have not been asked for yet; a write that meets damage adds one."""
        new = self.warnings[self._told :]
        self._told = len(self.warnings)
        return new

    def stamp(self) -> FileState | None:
        """What tells that a build has written since; None while there is no file."""
        try:
            return state_of(self.path.lstat())
        except OSError:
            return None

    is_lost = False
    """whether what earlier builds recorded could not be read, as far as it was asked for"""
    _found: FileState | None = None
    """the stamp when the file was first read"""
    _is_read = False
    _unreadable = False

    @property
    def _aside(self) -> Path:
        return self.path.with_name(self.path.name + ".unreadable")

    @property
    def _journal(self) -> Path:
        return _journal_of(self.path)

    @property
    def rows(self) -> Mapping[str, Row]:
        """step name -> what is known of it"""
        return self._rows

    @cached_property
    def files(self) -> FileDigests:
        """The digests of source files and tools, through the stat cache; `commit_files` keeps what was learned."""
        return FileDigests(self._files)

    @property
    def notes(self) -> Mapping[str, Mapping[str, Any]]:
        """what callers noted, by owner and key"""
        return self._notes

    # -- writing ------------------------------------------------------------------------------------------------------

    def lacks_text(self, digest: str) -> bool:
        """Whether `keep_texts` has not had what the digest is of. The first time takes a look at all that are kept."""
        return digest not in self._texts

    @property
    def _texts(self) -> dict[str, int]:
        """The sizes of the texts that are kept, by digest, oldest first; no build that has nothing to do asks."""
        if self._sizes is None:
            self._sizes = dict(self._ask("SELECT digest, coalesce(length(text), 0) FROM texts ORDER BY rowid"))
        return self._sizes

    _sizes: dict[str, int] | None = None

    def text(self, digest: str) -> str | None:
        """What a digest is of, as `keep_texts` had it; None where it is not kept."""
        found = self._ask("SELECT text FROM texts WHERE digest = ?", digest)
        try:
            return zlib.decompress(found[0][0]).decode("utf-8", "surrogateescape") if found else None
        except (zlib.error, TypeError, ValueError):
            return None

    def _ask(self, question: str, *arguments: str) -> list[tuple[Any, ...]]:
        """What the file answers; nothing where it cannot be read. It is not written to."""
        self.read()
        if self._unreadable or not self.path.exists():
            return []
        try:
            if self._writer is not None:
                return self._writer.execute(question, arguments).fetchall()
            with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                return connection.execute(question, arguments).fetchall()
        except (sqlite3.Error, OSError):
            return []

    def _connection(self) -> sqlite3.Connection:
        if self._writer is None:
            self.read()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._unreadable:
                # The journal goes first, or SQLite would roll it back into the file that takes this one's place.
                self._journal.unlink(missing_ok=True)
                self.path.replace(self._aside)
                self._unreadable = False
            if not self.path.exists():
                self._create()
            self._writer = _open(self.path)
        return self._writer

    def _create(self) -> None:
        """Make the file with all that is known but for texts; killed on the way, it leaves none."""
        self._sizes = {}
        new = self.path.with_name(self.path.name + ".new")
        for path in (new, self._journal):
            path.unlink(missing_ok=True)
        steps, files, notes = self._rows, self._files, self._notes
        with closing(_open(new)) as connection:
            connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={SCHEMA};")
            connection.executemany(_PUT_STEP, [(name, sealed(row.to_json())) for name, row in steps.items()])
            connection.executemany(_PUT_FILE, [(path, *state, sha) for path, (state, sha) in files.items()])
            connection.executemany(
                _PUT_NOTE,
                [(owner, key, json.dumps(value)) for owner, values in notes.items() for key, value in values.items()],
            )
            connection.execute("COMMIT")
        new.replace(self.path)

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            connection = self._connection()
            try:
                _commit(connection, statement, rows)
            except sqlite3.DatabaseError as error:
                if _code(error) in _SURROUNDINGS:
                    raise
                # Damaged in a place that reading did not touch: what was read is written anew.
                self.close()
                self._unreadable = True
                _commit(self._connection(), statement, rows)
                self.warnings.append(
                    f"{self.path} was damaged ({error}); it was set aside as {self._aside.name} and made anew"
                )
        except OSError as error:
            raise os_failure("the record of this build cannot be written", error, self.path) from error
        except sqlite3.Error as error:
            full = _code(error) == sqlite3.SQLITE_FULL
            raise StateError(
                f"{'no space left on the disk: ' if full else ''}the record of this build cannot be written: {error}",
                where=str(self.path),
                remedy="make room there and run again; finished work is kept"
                if full
                else "make the build folder writable, or remove it if another user made it, and run again",
            ) from error

    def record(self, name: str, row: Row) -> None:
        """Commit a step's row: once this returns, killing the process does not lose it. Raises StateError."""
        self._write(_PUT_STEP, [(name, sealed(row.to_json()))])
        self._rows[name] = row

    def invalidate(self, name: str) -> None:
        """Make a step stale, and keep hold of the files that it published."""
        if name in self.rows and self.rows[name].valid:
            self.record(name, replace(self.rows[name], valid=False))

    def drop(self, name: str) -> None:
        """Forget a step that no longer exists."""
        if name in self.rows:
            self._write("DELETE FROM steps WHERE name = ?", [(name,)])
            del self._rows[name]

    def commit_files(self) -> None:
        """Keep the digests of files that were read since the state was opened."""
        learned = self.files.learned
        if learned:
            # A path that is no UTF-8 cannot be kept as text: such a file is read again in every build.
            kept = {path: entry for path, entry in learned.items() if path.isascii() or _is_text(path)}
            self._write(_PUT_FILE, [(path, *state, sha) for path, (state, sha) in kept.items()])
            self._files.update(learned)
            learned.clear()

    def note(self, owner: str, key: str, value: Any) -> None:
        """Keep a caller's value."""
        self._write(_PUT_NOTE, [(owner, key, json.dumps(value))])
        self._notes.setdefault(owner, {})[key] = value

    def keep_texts(self, texts: Mapping[str, str]) -> None:
        """Keep what digests are of, for people to compare with later. Raises StateError.

        What is too long is left out, and what no step's record speaks of any more goes when there is too much.
        """
        packed = {
            digest: zlib.compress(text.encode("utf-8", "surrogateescape"))
            for digest, text in texts.items()
            if len(text) <= _TEXT_LIMIT and self.lacks_text(digest)
        }
        if not packed:
            return
        self._write(_PUT_TEXT, list(packed.items()))
        self._texts.update({digest: len(data) for digest, data in packed.items()})
        if sum(self._texts.values()) > _TEXTS_LIMIT:
            self._drop_texts(packed.keys())

    def _drop_texts(self, new: Collection[str]) -> None:
        """Make room: first what is not spoken of, then the oldest, down to half of what there may be."""
        used = {digest for row in self.rows.values() for digest in row.components.values()}.union(new)
        left, gone = sum(self._texts.values()), list[str]()
        for digest, size in sorted(self._texts.items(), key=lambda item: item[0] in used):
            if left <= _TEXTS_LIMIT // 2 and digest in used:
                break
            gone.append(digest)
            left -= size
        self._write("DELETE FROM texts WHERE digest = ?", [(digest,) for digest in gone])
        for digest in gone:
            del self._texts[digest]

    def drop_notes(self, owner: str) -> None:
        """Forget what was noted for an owner."""
        if owner in self.notes:
            self._write("DELETE FROM notes WHERE owner = ?", [(owner,)])
            del self._notes[owner]

    def close(self) -> None:
        """Close the file; the state can still be read."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _is_text(path: str) -> bool:
    return path.encode("utf-8", "ignore").decode() == path


def _journal_of(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def _read(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    """Ask a state file that exists. Raises OSError, sqlite3.Error, ValueError or TypeError when it is damaged."""
    with path.open("rb") as file:
        # The SQLite file format, section 1.3: its versions to write and to read are 2 with a write-ahead log.
        header = file.read(20)
        if header[18:] != b"\1\1":
            raise ValueError("its header is none that Kiln writes")
        # SQLite takes what is missing of the last page for zeros. A page size of 1 stands for 65536.
        page = max(int.from_bytes(header[16:18], "big"), 512)
        if file.seek(0, os.SEEK_END) % page and not _journal_of(path).exists():
            raise ValueError("its end is missing")
    try:
        return _answer(path, "ro", ask)
    except sqlite3.OperationalError:
        journal = _journal_of(path)
        if not journal.exists():
            raise
        # A build was killed in a commit. To undo that is to write: here in a copy, by the next build in place.
        with tempfile.TemporaryDirectory() as folder:
            for source in (journal, path):
                shutil.copyfile(source, Path(folder, source.name))
            return _answer(Path(folder, path.name), "rw", ask)


def _answer(path: Path, mode: str, ask: Callable[[sqlite3.Connection], T]) -> T:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)) as connection:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found != SCHEMA:
            raise ValueError(f"it has schema {found}, and this Kiln reads schema {SCHEMA}")
        return ask(connection)


def _read_row(name: str, connection: sqlite3.Connection) -> str | None:
    return whole(connection.execute("SELECT name, row FROM steps WHERE name = ?", (name,))).get(name)


def _read_rows(connection: sqlite3.Connection) -> dict[str, str]:
    return whole(connection.execute("SELECT name, row FROM steps"))


def _read_files(connection: sqlite3.Connection) -> _Files:
    files: _Files = {
        path: ((size, mtime, inode, ctime), sha)
        for path, size, mtime, inode, ctime, sha in connection.execute("SELECT * FROM files")
    }
    if not all(isinstance(path, str) and isinstance(sha, str) for path, (_, sha) in files.items()):
        raise ValueError("a file's entry is damaged")
    return files


def _read_notes(connection: sqlite3.Connection) -> _Notes:
    notes: _Notes = {}
    for owner, key, value in connection.execute("SELECT owner, key, value FROM notes"):
        notes.setdefault(owner, {})[key] = json.loads(value)
    return notes


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    # A commit that the system has taken outlives the process. Against a loss of power it would take a flush to the
    # disk for each step and each output; what is torn then is found when it is read, and costs a rebuild.
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error that is Python's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _commit(connection: sqlite3.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(statement, rows)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
