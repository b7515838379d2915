"""kiln.lock, which a project commits: the tools that its releases are made with, by version and content."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kiln import files
from kiln.digests import is_digest
from kiln.errors import LockError, ManifestError, Position, os_failure
from kiln.manifest.compound_types import Key, MapOf, Section
from kiln.manifest.value_types import Integer, Text
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Map, Node, Scalar, describe
from kiln.toolchain.identity import Level, Tool
from kiln.toolchain.lock_text import REMEDY, read_text

LOCK = "kiln.lock"
"""its name, beside kernels.yaml"""
VERSION = 1
"""of the format"""


@dataclass(frozen=True, kw_only=True)
class Locked:
    """A tool as the lock has it."""

    version: str
    """empty for one that says nothing of itself"""
    sha256: str


Entries = Mapping[str, Mapping[str, Locked]]
"""machine -> tool -> what it has to be"""


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What the file says."""

    device: Entries
    """what makes images: releases are refused with other tools"""
    host: Entries
    """what makes objects and archives, for the record"""
    position: Position = field(default=Position(file=LOCK, line=1), compare=False)
    """of the entries of `device`"""
    positions: Mapping[str, Position] = field(default_factory=dict, compare=False)
    """of each machine's entry in `device`"""

    def tools(self, level: Level, machine: str) -> Mapping[str, Locked]:
        """One machine's entry; none where it has none."""
        entries = self.device if level == "device" else self.host
        return entries.get(machine, {})


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A tool that is not the one that is locked; or one that is needed and not locked, or locked and not needed."""

    name: str
    locked: Locked | None
    actual: Locked | None

    def lines(self) -> list[str]:
        """For people: in one line what it is about, then what is locked and what is here."""
        locked, actual = self.locked, self.actual
        if locked is None:
            return [f"{self.name} is not locked", *_described("here", actual)]
        if actual is None:
            return [f"{self.name} is not needed any more", *_described("locked", locked)]
        if locked.version != actual.version:
            head = f"{self.name} is {actual.version or 'without a version'}, locked is {locked.version or 'none'}"
        elif locked.version:
            head = f"{self.name} has the same version, {locked.version}, and other bytes"
        else:
            head = f"{self.name} has other bytes"
        return [head, *_described("locked", locked), *_described("here", actual)]


def _described(word: str, tool: Locked | None) -> list[str]:
    return [] if tool is None else [f"  {word:<6}  {tool.version or '-'}, sha256 {tool.sha256}"]


def this_machine() -> str:
    """What the entry of this machine is called: Triton's wheels differ by machine and by the ABI of Python."""
    # A Python without the global lock has the same tag and other wheels.
    abi = getattr(sys, "abiflags", "")
    return f"{os.uname().machine} {sys.implementation.cache_tag}{abi}"


def locked(tools: Iterable[Tool], level: Level) -> dict[str, Locked]:
    """The tools of one level, as a lock has them."""
    return {tool.name: Locked(version=tool.version, sha256=tool.sha256) for tool in tools if tool.level == level}


def with_entry(lock: Lock | None, machine: str, tools: Iterable[Tool]) -> Lock:
    """The lock with the entry of one machine made anew; those of others stay. None is a lock without any."""
    before, own = lock or Lock(device={}, host={}), tuple(tools)
    return replace(
        before,
        device={**before.device, machine: locked(own, "device")},
        host={**before.host, machine: locked(own, "host")},
    )


def differences(before: Mapping[str, Locked], now: Mapping[str, Locked]) -> tuple[Difference, ...]:
    """What differs between two lists of tools, in the order of the second; tools that it lacks come last.

    A tool is what its bytes are: a version that is told in other words makes no difference.
    """
    names = [*now, *(name for name in before if name not in now)]
    pairs = ((name, before.get(name), now.get(name)) for name in names)
    return tuple(
        Difference(name=name, locked=old, actual=new)
        for name, old, new in pairs
        if old is None or new is None or old.sha256 != new.sha256
    )


def unlocked(lock: Lock, machine: str, tools: Iterable[Tool]) -> tuple[Difference, ...]:
    """The tools that make images and are not those of a machine's entry, which may hold more than are needed."""
    found = differences(lock.tools("device", machine), locked(tools, "device"))
    return tuple(each for each in found if each.actual is not None)


def changes(before: Lock, after: Lock, machine: str, level: Level) -> list[str]:
    """What differs between two locks in the tools of one level, in lines for people."""
    found = differences(before.tools(level, machine), after.tools(level, machine))
    return [line for each in found for line in each.lines()]


def other_versions(lock: Lock, machine: str) -> tuple[str, ...]:
    """What other machines have another version of than this one, in words: images would be others there."""
    return tuple(
        f"{name} is {own.version} here, and {tools[name].version} in the entry {other!r}"
        for other, tools in sorted(lock.device.items())
        for name, own in lock.tools("device", machine).items()
        if name in tools and tools[name].version != own.version
    )


# -- the file


def read_lock(path: Path) -> Lock | None:
    """The lock at a path; None where there is no file. Raises LockError for one that is damaged, at its line."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        failure = os_failure("the lock cannot be read", error, path)
        raise LockError(failure.what, where=str(path), remedy=failure.remedy) from error
    node = read_text(data, str(path))
    try:
        return _lock(node)
    except ManifestError as error:
        raise LockError(
            error.what, where=error.where, expected=error.expected, actual=error.actual, remedy=error.remedy or REMEDY
        ) from None


def _lock(node: Node) -> Lock:
    if not isinstance(node, Map):
        raise LockError(
            "the file is no lock", where=node.position, expected="a map with the keys version, device and host",
            actual=describe(node), remedy=REMEDY,
        )  # fmt: skip
    entries = {entry.key.text: entry for entry in node.entries}
    version = entries["version"].value if "version" in entries else None
    if isinstance(version, Scalar) and version.plain and version.text.isdigit() and version.text != str(VERSION):
        raise LockError(
            "the lock has a format that this Kiln does not know",
            where=version.position,
            expected=f"version {VERSION}",
            actual=f"version {show(version.text, 20)}",
            remedy="use the Kiln that wrote it, or a newer one; or remove it, and run `doit lock` on each machine that "
            "makes releases",
        )
    values = Section(keys=_TOP).read(node, "")
    device = entries["device"].value
    assert isinstance(device, Map)
    return Lock(
        device=_entries(values["device"]),
        host=_entries(values["host"]),
        position=entries["device"].key.position,
        positions={entry.key.text: entry.key.position for entry in device.entries},
    )


def _entries(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Locked]]:
    return {machine: {name: Locked(**tool) for name, tool in tools.items()} for machine, tools in values.items()}


def _check_digest(text: str, position: Position, what: str) -> None:
    if not is_digest(text):
        raise ManifestError(
            f"wrong value for `{what}`", where=position, expected="64 hexadecimal digits in lower case",
            actual=show(text, 80),
        )  # fmt: skip


_TOOL = Section(
    keys={
        "version": Key(type=Text(words="text"), doc="what the tool says of itself", required=True),
        "sha256": Key(type=Text(words="a digest", check=_check_digest), doc="of its bytes", required=True),
    }
)
_MACHINES = MapOf(key=Text(words="a machine"), value=MapOf(key=Text(words="a tool"), value=_TOOL))
_TOP = {
    "version": Key(type=Integer(minimum=VERSION, maximum=VERSION), doc="of the format", required=True),
    "device": Key(type=_MACHINES, doc="what makes images", required=True),
    "host": Key(type=_MACHINES, doc="what makes objects and archives", required=True),
}


def render(lock: Lock) -> str:
    """The file's text, a line for each tool: the same for the same lock, whatever order its parts came in."""
    parts = [f'"version": {VERSION}']
    for level, entries in (("device", lock.device), ("host", lock.host)):
        machines = [
            f"{_text(name)}: {_block(map(_line, sorted(own.items())), 2)}" for name, own in sorted(entries.items())
        ]
        parts.append(f"{_text(level)}: {_block(machines, 1)}")
    return _block(parts, 0) + "\n"


def _line(entry: tuple[str, Locked]) -> str:
    name, tool = entry
    return f'{_text(name)}: {{"version": {_text(tool.version)}, "sha256": {_text(tool.sha256)}}}'


def _block(parts: Iterable[str], depth: int) -> str:
    indent = "  " * depth
    lines = ",\n".join(f"{indent}  {part}" for part in parts)
    return f"{{\n{lines}\n{indent}}}" if lines else "{}"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_lock(path: Path, lock: Lock) -> None:
    """Write the file: whole or, when that fails, not at all. Raises LockError."""
    # What a link leads to is written, and the link stays.
    real = files.real(path)
    part = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        if files.is_file(real) and not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        try:
            with os.fdopen(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666), "w", encoding="utf-8"
            ) as file:
                file.write(render(lock))
                file.flush()
                os.fsync(file.fileno())
            part.replace(real)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        failure = os_failure("the lock cannot be written", OSError(error.errno, error.strerror), path)
        raise LockError(failure.what, where=str(path), remedy=failure.remedy) from error
