"""What Ctrl-C and SIGTERM mean to a build: a note that it takes where it next looks, never an exception anywhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 5.0
"""seconds that a build has to end by itself, before another press ends it where it is"""


def leave_at_once() -> None:
    """Have Ctrl-C end this process with a line, for as long as it has nothing that is to be left in order."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def as_python_does() -> None:
    """Have Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    _end("stopped", number)


def _end(text: str, number: int) -> NoReturn:
    os.write(2, f"\nkiln: {text}\n".encode())
    os._exit(128 + number)


class Interrupts:
    """Takes note of signals that ask the build to end.

    An exception that Python raises wherever a signal lands would be lost in a callback, or leave a process or a folder
    that nobody knows. So the build asks `check` between things, and looks at `wake` while it waits.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """the signal that came first"""
        self._since = 0.0
        self._raises = False
        self._before: dict[int, Any] = {}
        self.wake, self._wake_writer = os.pipe()
        """a file descriptor that can be read from once a signal has come"""
        for end in (self.wake, self._wake_writer):
            os.set_blocking(end, False)

    def watch(self) -> None:
        """Take the signals from here on, until `leave`; those that are ignored stay ignored."""
        for number in _NUMBERS:
            # `nohup` and the shell's `&` ask for that.
            if signal.getsignal(number) is not signal.SIG_IGN:
                before = signal.signal(number, self._came)
                self._before.setdefault(number, before)
        # Written to by Python's own handler in C: between the last look at a flag and a wait there would be a gap.
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)

    def leave(self) -> None:
        """To be called last. After a signal the process is leaving, and one more must not make Python end otherwise."""
        for number, before in self._before.items():
            signal.signal(number, before if self.number is None else signal.SIG_IGN)
        if self._before:
            signal.set_wakeup_fd(-1)
        for end in (self.wake, self._wake_writer):
            os.close(end)

    def check(self) -> None:
        """Raise KeyboardInterrupt if the build is to end."""
        if self.number is not None:
            raise KeyboardInterrupt

    def clear(self) -> None:
        """Empty `wake`, when what it woke from was another signal: programs take more than these."""
        with suppress(BlockingIOError):
            os.read(self.wake, 4096)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise KeyboardInterrupt where a signal lands, as Python does: for code that is not the build's own."""
        self.check()
        self._raises = True
        try:
            yield
        finally:
            self._raises = False
            # It may have had handlers of its own.
            self.watch()

    def _came(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.number is None:
            self.number, self._since = number, now
        elif now - self._since > _PATIENCE:
            _end("ended at once; what was finished is kept", number)
        if self._raises:
            raise KeyboardInterrupt
