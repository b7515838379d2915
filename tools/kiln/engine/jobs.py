"""What pool, fork server and child tell each other: jobs that go one way, and how they ended, which comes back."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiln.engine.step import Call, Found
from kiln.errors import KilnError
from kiln.stages import Stage

_HEADER = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class PackedCall:
    """A `step.Call` as it is sent. Two that are equal ask for the same."""

    function: str
    arguments: bytes
    """pickled: only the child reads them, so that what is wrong with them is that call's own failure"""
    preload: tuple[str, ...]
    environment: Mapping[str, str]
    seconds: float
    memory: int

    @property
    def modules(self) -> tuple[str, ...]:
        """What the fork server imports before it forks."""
        return (self.function.partition(":")[0], *self.preload)


def packed(call: Call) -> PackedCall:
    """Raises KilnError for arguments that cannot be sent."""
    try:
        arguments = pickle.dumps(dict(call.arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise KilnError(
            f"an argument of {call.function} cannot be sent to a child process: {error}",
            expected="data: numbers, texts, paths, lists, mappings, and dataclasses of modules",
        ) from error
    return PackedCall(
        function=call.function,
        arguments=arguments,
        preload=call.preload,
        environment=dict(call.environment),
        seconds=call.seconds,
        memory=call.memory,
    )


@dataclass(frozen=True, kw_only=True)
class Part:
    """One step's call in a job."""

    name: str
    """of the step"""
    call: PackedCall
    out: Path
    """the folder whose files become the step's outputs"""
    log: str
    """what the call and its tools print; as a text, as other paths here: where a process begins with pages that it has
    in common with another, to make anything of a path copies some"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one child does: a step's call and, when that ends well, those of the steps that ride on it, in this order.

    What becomes of those that ride changes nothing for the first.
    """

    parts: tuple[Part, ...]
    folder: str
    """private to the job: `out` and `log` of each part lie in it, and `tmp` and `home`; the child makes all of them"""
    reads: tuple[tuple[str, str], ...] = ()
    """path and sha256 of what earlier steps published for the first; the child starts by comparing them"""
    root: str
    """the build folder, which the paths of `step.Built` are relative to"""
    outputs: tuple[str, ...] = ()
    """what the first makes: the others find it where it is before it is published"""

    @property
    def name(self) -> str:
        """The job goes by the name of its first step."""
        return self.parts[0].name


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a child has taken, until a moment."""

    until: float
    """on the monotonic clock"""
    cpu_seconds: float
    """of the child and all that it waited for, from its beginning"""
    peak_memory: int
    """bytes: the largest resident set during its last call, without what the calls before it have left there"""


@dataclass(frozen=True, kw_only=True)
class Told:
    """How a call ended, as its child tells the server at once: what comes after may be the child's end."""

    error: KilnError | None
    trace: str | None
    found: Found
    stages: tuple[Stage, ...]
    staged: Mapping[str, str]
    """see Ended"""
    spent: Spent


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a step's call ended. `seconds` is wall-clock time, `peak_memory` bytes."""

    name: str
    error: KilnError | None
    """None when the call returned; what it raised otherwise, or what became of the child"""
    found: Found = field(default_factory=dict)
    """what the call returned"""
    trace: str | None
    """the traceback, when the error is none that was made for people"""
    output: str
    """what the child and its tools wrote to standard output and error"""
    seconds: float
    peak_memory: int
    cpu_seconds: float = 0.0
    """of the child and all that it waited for"""
    began: float = 0.0
    """when it was forked, or called after another, on the monotonic clock; 0 for one that could not be started"""
    stages: tuple[Stage, ...] = ()
    """what the job noted of where its time went"""
    staged: Mapping[str, str] = field(default_factory=dict)
    """path -> sha256 of what it made, as the calls that rode along found it; empty where none did"""
    rode: tuple[Ended, ...] = ()
    """how the calls ended that rode along, as far as the child got"""


def pack(message: Any) -> bytes:
    """One message as `receive` and `messages` read it: pickled, length first."""
    data = pickle.dumps(message)
    return _HEADER.pack(len(data)) + data


def receive(connection: socket.socket) -> Any | None:
    """Read one message that `pack` made; None at the end of the stream."""
    header = _read(connection, _HEADER.size)
    data = header and _read(connection, _HEADER.unpack(header)[0])
    return pickle.loads(data) if data else None


def messages(data: bytes) -> Iterator[Any]:
    """The messages in bytes that were written one after another; the last may be cut short, and is left out then."""
    start = 0
    while (begin := start + _HEADER.size) <= len(data):
        start = begin + _HEADER.unpack_from(data, start)[0]
        if start > len(data):
            return
        yield pickle.loads(data[begin:start])


def _read(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(size - len(parts))
        except ConnectionResetError:
            # The other side closed with messages of ours unread: it is gone all the same.
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
