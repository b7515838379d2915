"""Files of choices, which the tuner of a library reads and writes too: docs/choices.md has the format.

The C side passes over what it does not understand, for an engine has to run; who makes such a file in Python is told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kiln.errors import ChoicesError, Position

SCHEMA = 1

LONGEST_LINE = 2000
"""bytes of a line that is read, without its end"""

EXTENTS = 16
"""integers of a group that shapes are told apart by, at most"""

_HEADER = f"kernel-choices {SCHEMA}"
_NAME = "[A-Za-z0-9_]+"
_WORD = "[A-Za-z0-9_+.:-]+"
_NUMBER = "0|[1-9][0-9]{0,19}"
_FIELDS = {
    "library": re.compile(_NAME),
    "group": re.compile(_NAME),
    "device": re.compile(_WORD),
    "shape": re.compile(f"-|{_NAME}:(?:{_NUMBER})(?:,{_NAME}:(?:{_NUMBER}))*"),
    "variant": re.compile(_NAME),
    "target": re.compile(_WORD),
    "sha256": re.compile("[0-9a-f]{64}"),
    "nanoseconds": re.compile(_NUMBER),
}
"""key of each word of a line, in order, and what its value looks like"""

_MEANT = {
    "shape": "-, or names and powers of two such as n_cols:2048,n_rows:16",
    "sha256": "64 hexadecimal digits in lower case",
    "nanoseconds": "an integer below 2^63",
    "device": "letters, digits and any of _ + . : -",
    "target": "letters, digits and any of _ + . : -",
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The image that is fastest for a bucket of shapes on a device, of those of one group."""

    library: str
    group: str
    device: str
    """its name in one word: `device_word`"""
    shape: tuple[tuple[str, int], ...]
    """name and bucket of each integer that grid, select or tensors of the group use, in the order of its struct"""
    variant: str
    target: str
    sha256: str
    """of the image that was measured: a choice holds for no other"""
    nanoseconds: int

    @property
    def key(self) -> tuple[str, str, str, tuple[tuple[str, int], ...]]:
        """What it is chosen for; of two choices with the same key the later one holds."""
        return (self.library, self.group, self.device, self.shape)

    @property
    def line(self) -> str:
        """As it stands in a file, without the line's end. Raises ChoicesError when a value fits no file."""
        shape = ",".join(f"{name}:{bucket}" for name, bucket in self.shape) or "-"
        words = {**vars(self), "shape": shape}
        line = " ".join(f"{key}={words[key]}" for key in _FIELDS)
        if parse_line(line, Position(file="a choice", line=1)) != self:
            raise ChoicesError(f"no file can hold {self}", where="a choice")
        return line


def bucket_of(value: int) -> int:
    """What an integer counts as: the next power of two that is not below it, and 0 for 0 and below."""
    return 0 if value <= 0 else 1 << (value - 1).bit_length()


def device_word(name: str) -> str:
    """A device's name as drivers tell it, in one word; names are cut after 127 bytes."""
    return re.sub(rb"[^A-Za-z0-9_+.:-]", b"_", name.encode()[:127]).decode()


def parse_line(line: str, where: Position) -> Choice:
    """The choice in a line. Raises ChoicesError."""
    words = line.split(" ")
    for number, (key, allowed) in enumerate(_FIELDS.items()):
        word = words[number] if number < len(words) else None
        if word is None or not word.startswith(f"{key}="):
            raise ChoicesError(
                f"word {number + 1} of the line is not its {key}",
                where=where,
                expected=" ".join(f"{each}=..." for each in _FIELDS),
                actual=repr(line[:200]),
                remedy="correct the line, or remove it: each line stands for itself",
            )
        value = word.removeprefix(f"{key}=")
        if not allowed.fullmatch(value) or not _in_range(key, value):
            raise ChoicesError(
                f"{key} has no such value",
                where=where,
                expected=_MEANT.get(key, "letters, digits and _"),
                actual=repr(value[:200]),
                remedy="correct the line, or remove it: each line stands for itself",
            )
    if len(words) > len(_FIELDS):
        raise ChoicesError(
            "something follows the last word of the line",
            where=where,
            expected=f"{len(_FIELDS)} words with one space between two",
            actual=repr(" ".join(words[len(_FIELDS) :])[:200]),
            remedy="correct the line, or remove it: each line stands for itself",
        )
    if len(line) > LONGEST_LINE:
        raise ChoicesError(
            f"the line has {len(line)} bytes",
            where=where,
            expected=f"up to {LONGEST_LINE}",
            remedy="remove the line: no library would read it",
        )
    values = dict(word.split("=", 1) for word in words)
    return Choice(
        **{key: values[key] for key in ("library", "group", "device", "variant", "target", "sha256")},
        shape=_shape(values["shape"]),
        nanoseconds=int(values["nanoseconds"]),
    )


def parse_choices(data: bytes, file: str) -> tuple[Choice, ...]:
    """All choices of a file, in its order, also those that a later one takes the place of. Raises ChoicesError."""
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    head = Position(file=file, line=1)
    if lines[0] != _HEADER.encode():
        name, _, version = lines[0].decode(errors="replace").partition(" ")
        if name == _HEADER.split()[0]:
            raise ChoicesError(
                "the file is of another schema version",
                where=head,
                expected=str(SCHEMA),
                actual=repr(version[:40]),
                remedy="read it with the version of Kiln that wrote it, or tune anew",
            )
        raise ChoicesError("this is no file of choices", where=head, expected=f"a first line {_HEADER}")
    found = []
    for number, line in enumerate(lines[1:], 2):
        if line and not line.startswith(b"#") and line != _HEADER.encode():
            found.append(parse_line(line.decode(errors="replace"), Position(file=file, line=number)))
    return tuple(found)


def read_choices(path: Path) -> tuple[Choice, ...]:
    """All choices of a file, in its order. Raises ChoicesError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ChoicesError(
            f"the file of choices cannot be read: {error.strerror}", where=str(path), remedy="see that it is there"
        ) from error
    return parse_choices(data, str(path))


def render_choices(choices: Iterable[Choice]) -> str:
    """The text of a file: one line a choice, sorted; of two for the same, the later one. Raises ChoicesError."""
    latest = {choice.key: choice.line for choice in choices}
    return "".join(f"{line}\n" for line in [_HEADER, *sorted(latest.values())])


def write_choices(path: Path, choices: Iterable[Choice]) -> None:
    """Write a file, which is there whole or as it was. Raises ChoicesError."""
    text = render_choices(choices)
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        try:
            part.write_text(text, "ascii")
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise ChoicesError(
            f"the file of choices cannot be written: {error.strerror}",
            where=str(path),
            remedy="see that its folder is there, is yours to write, and has space",
        ) from error


def _shape(text: str) -> tuple[tuple[str, int], ...]:
    pairs = (pair.split(":") for pair in text.split(",")) if text != "-" else ()
    return tuple((name, int(bucket)) for name, bucket in pairs)


def _in_range(key: str, value: str) -> bool:
    if key == "nanoseconds":
        return int(value) < 2**63
    if key == "shape":
        return all(bucket == bucket_of(bucket) <= 2**64 for _, bucket in _shape(value))
    return True
