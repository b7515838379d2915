"""What is known of steps that ran: a row each, and the outputs that it speaks of; as objects, and as checked text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kiln.errors import StateError


def is_below(name: str) -> bool:
    """Whether a relative path can only name something below the folder that it is relative to."""
    # By hand, for it is asked for every output of every step when a state is read; pathlib takes ten times as long.
    return bool(name.strip("./")) and not name.startswith("/") and ".." not in name.split("/")


@dataclass(frozen=True, kw_only=True)
class Output:
    """One published file: its path relative to the build folder, and what it held when it was published."""

    path: str
    size: int
    ctime_ns: int
    """moves with every write and cannot be set, unlike mtime"""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is known of a step's last good run."""

    components: Mapping[str, str]
    found: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """what the run found out that it reads, by the names of those of the components that are over it"""
    outputs: tuple[Output, ...]
    seconds: float
    """wall-clock time of the step's child"""
    peak_memory: int
    """bytes: the child's largest resident set"""
    valid: bool = True
    """False once the step failed or was forgotten: its outputs are still ours to replace or to remove"""

    def to_json(self) -> str:
        outputs = [[output.path, output.size, output.ctime_ns, output.sha256] for output in self.outputs]
        found = {name: list(names) for name, names in self.found.items()}
        return json.dumps([dict(self.components), found, outputs, self.seconds, self.peak_memory, self.valid])

    @classmethod
    def from_json(cls, text: str) -> Row:
        """Raises ValueError or TypeError for what `to_json` cannot have written: the file may be damaged anywhere."""
        components, found, outputs, seconds, peak_memory, valid = json.loads(text)
        row = cls(
            components=components,
            found=found,
            outputs=tuple(
                Output(path=path, size=size, ctime_ns=ctime, sha256=sha) for path, size, ctime, sha in outputs
            ),
            seconds=seconds,
            peak_memory=peak_memory,
            valid=valid,
        )
        if not (
            isinstance(components, dict)
            and all(isinstance(value, str) for value in components.values())
            and isinstance(found, dict)
            and all(isinstance(names, list) for names in found.values())
            and all(isinstance(name, str) for names in found.values() for name in names)
            and all(isinstance(output.path, str) and is_below(output.path) for output in row.outputs)
            and isinstance(seconds, int | float)
            and isinstance(peak_memory, int)
            and isinstance(valid, bool)
        ):
            raise ValueError("a row is damaged")
        return row


_FEW = 10
"""Rows that are read one by one: each takes 0.2 ms, and 30,000 at once 0.1 s."""


class Rows(MutableMapping[str, Row]):
    """Steps by name. To read the rows of a large library takes long, and to parse them: each waits until it is asked
    for, and the rows of all until somebody goes through them or changes one."""

    def __init__(self, one: Callable[[str], str | None], every: Callable[[], dict[str, str]]) -> None:
        """`one` and `every` give rows as the file has them, whole: see `whole`."""
        self._one = one
        self._every = every
        self._rows: dict[str, Row] = {}
        self._asked = 0
        """for how many, one by one"""

    @cached_property
    def _texts(self) -> dict[str, str]:
        return self._every()

    def read(self) -> None:
        """Read the rows of all."""
        _ = self._texts

    def __getitem__(self, name: str) -> Row:
        if name not in self._rows:
            self._asked += 1
            is_read = "_texts" in self.__dict__ or self._asked > _FEW
            sealed_text = self._texts.get(name) if is_read else self._one(name)
            if sealed_text is None:
                raise KeyError(name)
            text = unsealed(sealed_text)
            try:
                self._rows[name] = Row.from_json(text)
            except (ValueError, TypeError) as error:
                raise StateError(
                    f"the record of {name} is none that Kiln writes: {error}",
                    remedy="remove the build folder: everything in it is built anew",
                ) from None
        return self._rows[name]

    def __setitem__(self, name: str, row: Row) -> None:
        self._texts.setdefault(name, "")
        self._rows[name] = row

    def __delitem__(self, name: str) -> None:
        del self._texts[name]
        self._rows.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def whole(rows: Iterable[tuple[object, object]]) -> dict[str, str]:
    """Names and rows as a file has them. Raises ValueError or TypeError when one is damaged."""
    found = {}
    for name, text in rows:
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError("a row is damaged")
        unsealed(text)
        found[name] = text
    return found


def sealed(text: str) -> str:
    """A row with its checksum: eight digits in front."""
    return f"{zlib.crc32(text.encode()):08x}{text}"


def unsealed(text: str) -> str:
    """What `sealed` was given. Raises ValueError when the checksum is another one."""
    row = text[8:]
    if text[:8] != f"{zlib.crc32(row.encode()):08x}":
        raise ValueError("a row is damaged")
    return row
