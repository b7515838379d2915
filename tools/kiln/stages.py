"""How long the stages of one job took, noted by whoever runs them, for the trace of the build.

A child runs one job, so there is one list. Nothing that is built depends on it. What fails in a stage says so, and a
process that dies leaves the stage's name in a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kiln.errors import KilnError

MARK = 16
"""bytes, at the beginning of the file of `keep_in`, with the name of the stage that runs"""
Stage = tuple[str, float, float]
"""name, and when it began and ended: seconds of the monotonic clock, which all processes of a machine share"""

_noted: list[Stage] = []
_running: list[str] = [""]
_file: int | None = None


def keep_in(file: int) -> None:
    """Keep the name of the stage that runs in a file, given by its descriptor, for whoever finds this process dead."""
    global _file
    _file = file


def marked(mark: bytes) -> str | None:
    """The stage that was running, by the first bytes of such a file."""
    return mark.strip(b"\0 ").decode("ascii", "replace") or None


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Note how long the body takes, however it ends. An error of its that names no stage gets this one."""
    began = time.monotonic()
    _running.append(name)
    _mark()
    try:
        yield
    except KilnError as error:
        error.stage = error.stage or name
        raise
    finally:
        _noted.append((name, began, time.monotonic()))
        _running.pop()
        _mark()


def _mark() -> None:
    if _file is not None:
        os.pwrite(_file, _running[-1].encode("ascii").ljust(MARK)[:MARK], 0)


def taken() -> list[Stage]:
    """What was noted since this was asked last, in the order in which the stages ended."""
    stages = list(_noted)
    _noted.clear()
    return stages
