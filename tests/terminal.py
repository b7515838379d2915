"""A terminal that a test looks at: a program on a pseudo-terminal, and the screen that its output makes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte


class Terminal:
    """Runs a program. `screen` is what a person sees, `raw` is every byte that was written."""

    def __init__(
        self, *command: str, folder: Path, environment: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._code: int | None = None
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(command[0], command, dict(environment))
        # A press of Ctrl-C would throw away what the program has written and nobody has read yet.
        modes = termios.tcgetattr(self._master)
        modes[3] |= termios.NOFLSH
        termios.tcsetattr(self._master, termios.TCSANOW, modes)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        """As when somebody drags the window's corner."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._screen.resize(rows, columns)

    def press(self, keys: str) -> None:
        """Type; `\\x03` is Ctrl-C."""
        os.write(self._master, keys.encode())

    @property
    def screen(self) -> list[str]:
        """The lines of the screen that have something on them."""
        return [line.rstrip() for line in self._screen.display if line.strip()]

    @property
    def everything(self) -> list[str]:
        """The same, with what has left the screen at the top."""
        above = [
            "".join(line[column].data for column in range(self._screen.columns)) for line in self._screen.history.top
        ]
        return [*(line.rstrip() for line in above), *self.screen]

    def until(self, text: str, seconds: float = 20) -> None:
        """Wait until a text is on the screen."""
        self.until_screen(lambda screen: any(text in line for line in screen), repr(text), seconds)

    def until_screen(self, is_so: Callable[[list[str]], bool], what: str, seconds: float = 20) -> None:
        """Wait until the screen is as it should be; `what` says how, where it does not come to that."""
        deadline = time.monotonic() + seconds
        while not is_so(self.screen):
            assert self._read(deadline), f"{what} does not come:\n" + "\n".join(self.everything)

    def end(self, seconds: float = 20) -> int:
        """Wait until the program ends; its exit code, negative for a signal."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        while self._code is None:
            assert time.monotonic() < deadline, "it does not end:\n" + "\n".join(self.everything)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                os.close(self._master)
            else:
                time.sleep(0.01)
        return self._code

    def _read(self, deadline: float) -> bool:
        """Take what was written; False at its end, or when the time is over."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:
            # Linux says so when the program has closed its end.
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)
