"""A few lines at the bottom of a terminal that are drawn again and again in the same place."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

INTERVAL = 0.1
"""seconds between two drawings, at least"""
_RUNNING = 8
"""lines for what runs, at most, and half of the screen at most"""


def is_live(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that can draw a board, with somebody who sees it."""
    # Continuous integration may have a terminal, whose every drawing ends up in a log.
    with suppress(OSError, ValueError):
        return stream.isatty() and environment.get("TERM", "dumb") != "dumb" and not environment.get("CI")
    return False


def clock(seconds: float) -> str:
    """1:05 for 65 seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def running_lines(running: Mapping[str, float], height: int) -> list[str]:
    """What runs and for how long, longest first, as many as fit into a screen."""
    room = max(0, min(_RUNNING, height // 2 - 1))
    names = sorted(running, key=lambda name: -running[name])
    # One line is better spent on a name than on a number.
    is_cut = 1 < room < len(names)
    shown = names[: room - 1 if is_cut else room]
    lines = [f"{clock(running[name]):>9}  {name}" for name in shown]
    return [*lines, *([f"{'':9}  and {len(names) - len(shown)} more"] if is_cut else [])]


class Board:
    """Draws lines, and takes them away.

    Between drawings the cursor stands where the board begins. So nothing has to be counted to draw over it or to erase
    it, whatever became of the lines when the window was resized; and there is nothing to put right when the process is
    killed.
    """

    def __init__(self, stream: TextIO, put: Callable[[str], None]) -> None:
        """`put` writes to `stream`, at once."""
        self._stream = stream
        self._put = put
        self._drawn: object = None
        self._next = 0.0

    def draw(self, now: float, lines: Callable[[int], Sequence[str]]) -> None:
        """Draw what `lines` says for a height, cut to the width; not again within the interval, and not the same."""
        if now < self._next:
            return
        self._next = now + INTERVAL
        width, height = _size(self._stream)
        # A line of full width would leave it to the terminal where the next one begins.
        shown = [_cut(line, width - 1) for line in lines(height)[: max(1, height - 1)]]
        if (width, height, shown) != self._drawn:
            up = f"\x1b[{len(shown) - 1}A" if len(shown) > 1 else ""
            self._put("\r" + "\n".join(f"{line}\x1b[K" for line in shown) + f"\x1b[J\r{up}")
            self._drawn = (width, height, shown)

    def erase(self) -> None:
        """Take the board away, for what else is to be written; the next drawing brings it back."""
        if self._drawn is not None:
            self._put("\r\x1b[J")
            self._drawn = None


def _size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows; a terminal that does not know has 80 and 24."""
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(stream.fileno())
        return size.columns or 80, size.lines or 24
    return 80, 24


def _cut(line: str, width: int) -> str:
    if line.isascii():
        # Of a line this short the end would be all dots.
        dots = ".." if width > 10 else ""
        return line if len(line) <= width else line[: max(0, width - len(dots))] + dots
    kept, used = "", 0
    for letter in line:
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else not unicodedata.combining(letter)
        if used > width:
            break
        kept += letter
    return kept
