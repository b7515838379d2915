"""What the last builds did, in one SQLite file: a row a step, committed when the step ends.

A build that is killed loses only what was in flight. A file that cannot be read is set aside with a warning: that costs
a rebuild, never an abort. Reading never writes, so listings are safe on any state.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kiln.digests import FileDigests, FileState, digest_json
from kiln.errors import StateError

SCHEMA = 1
"""Stored as SQLite's user_version; a file of another schema is set aside like an unreadable one."""

_TABLES = """
CREATE TABLE steps (name TEXT PRIMARY KEY, digest TEXT NOT NULL, row TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, sha256 TEXT) WITHOUT ROWID;
CREATE TABLE doit (task TEXT, key TEXT, value TEXT, PRIMARY KEY (task, key)) WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True)
class Output:
    """One published file: its path relative to the build folder, and what it held when it was published."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is known of a step's last good run."""

    components: Mapping[str, str]
    outputs: tuple[Output, ...]
    seconds: float
    """wall-clock time of the step's child"""
    peak_memory: int
    """bytes: the child's largest resident set"""
    valid: bool = True
    """False once the step failed or was forgotten: its outputs are still ours to replace or to remove"""

    @property
    def digest(self) -> str:
        return digest_json(self.components) if self.valid else ""

    def to_json(self) -> str:
        outputs = [[output.path, output.size, output.mtime_ns, output.sha256] for output in self.outputs]
        return json.dumps([dict(self.components), outputs, self.seconds, self.peak_memory, self.valid])

    @classmethod
    def from_json(cls, text: str) -> Row:
        components, outputs, seconds, peak_memory, valid = json.loads(text)
        return cls(
            components=components,
            outputs=tuple(Output(path=path, size=size, mtime_ns=mtime, sha256=sha) for path, size, mtime, sha in outputs),
            seconds=seconds,
            peak_memory=peak_memory,
            valid=valid,
        )


class State:
    """The state of one build folder. `path` need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warnings: list[str] = []
        """what people should know: an unreadable file that is going to be set aside"""
        self._writer: sqlite3.Connection | None = None

    # -- reading ------------------------------------------------------------------------------------------------------

    @cached_property
    def _tables(self) -> tuple[dict[str, Row], dict[str, tuple[FileState, str]], dict[str, dict[str, Any]]]:
        """Everything, read once: 30,000 rows take some 70 ms, a query a row far longer."""
        if not self.path.exists():
            return {}, {}, {}
        try:
            connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                found = connection.execute("PRAGMA user_version").fetchone()[0]
                if found != SCHEMA:
                    raise sqlite3.DatabaseError(f"it has schema {found}, and this Kiln reads schema {SCHEMA}")
                steps = {name: Row.from_json(row) for name, row in connection.execute("SELECT name, row FROM steps")}
                files = {
                    path: ((size, mtime, inode), sha)
                    for path, size, mtime, inode, sha in connection.execute("SELECT * FROM files")
                }
                tasks: dict[str, dict[str, Any]] = {}
                for task, key, value in connection.execute("SELECT task, key, value FROM doit"):
                    tasks.setdefault(task, {})[key] = json.loads(value)
                return steps, files, tasks
            finally:
                connection.close()
        except (sqlite3.Error, ValueError, TypeError) as error:
            self._unreadable = True
            self.warnings.append(
                f"{self.path}: the record of earlier builds cannot be read ({error}); "
                f"the next build sets it aside as {self._aside.name} and builds anew what it cannot vouch for"
            )
            return {}, {}, {}

    _unreadable = False

    @property
    def _aside(self) -> Path:
        return self.path.with_name(self.path.name + ".unreadable")

    @property
    def rows(self) -> Mapping[str, Row]:
        """step name -> what is known of it"""
        return self._tables[0]

    @cached_property
    def files(self) -> FileDigests:
        """The digests of source files and tools, through the stat cache; `commit_files` keeps what was learned."""
        return FileDigests(self._tables[1])

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """doit's own values, by task and key"""
        return self._tables[2]

    # -- writing ------------------------------------------------------------------------------------------------------

    def _connection(self) -> sqlite3.Connection:
        if self._writer is None:
            _ = self._tables
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                if self._unreadable:
                    self.path.replace(self._aside)
                    for suffix in ("-wal", "-shm"):
                        self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
                new = not self.path.exists()
                connection = sqlite3.connect(self.path, isolation_level=None)
                # WAL with NORMAL: a commit costs microseconds, and a crash of the process loses nothing.
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                if new:
                    connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={SCHEMA}; COMMIT;")
            except (sqlite3.Error, OSError) as error:
                raise self._failure(error) from error
            self._writer = connection
        return self._writer

    def _failure(self, error: Exception) -> StateError:
        return StateError(
            f"the record of this build cannot be written: {error}",
            where=str(self.path),
            remedy="make room on the disk, or make the build folder writable, and run again; finished work is kept",
        )

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._failure(error) from error

    def record(self, name: str, row: Row) -> None:
        """Commit a step's row. It is on disk when this returns."""
        self._tables[0][name] = row
        self._write("INSERT OR REPLACE INTO steps VALUES (?, ?, ?)", [(name, row.digest, row.to_json())])

    def invalidate(self, name: str) -> None:
        """Make a step stale, and keep hold of the files that it published."""
        if name in self.rows:
            row = self.rows[name]
            self.record(
                name,
                Row(components=row.components, outputs=row.outputs, seconds=row.seconds, peak_memory=row.peak_memory, valid=False),
            )

    def drop(self, name: str) -> None:
        """Forget a step that no longer exists."""
        if self._tables[0].pop(name, None) is not None:
            self._write("DELETE FROM steps WHERE name = ?", [(name,)])

    def commit_files(self) -> None:
        """Keep the digests of files that were read since the state was opened."""
        learned = self.files.learned
        if learned:
            self._write(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)",
                [(path, *state, sha) for path, (state, sha) in learned.items()],
            )
            self._tables[1].update(learned)
            learned.clear()

    def set_task(self, task: str, key: str, value: Any) -> None:
        """Keep one of doit's own values."""
        self._tables[2].setdefault(task, {})[key] = value
        self._write("INSERT OR REPLACE INTO doit VALUES (?, ?, ?)", [(task, key, json.dumps(value))])

    def drop_task(self, task: str) -> None:
        """Forget doit's own values of a task."""
        if self._tables[2].pop(task, None) is not None:
            self._write("DELETE FROM doit WHERE task = ?", [(task,)])

    def close(self) -> None:
        """Close the file; the state can still be read."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
