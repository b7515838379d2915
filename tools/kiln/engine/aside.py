"""Work that a forked child does while this process goes on: many questions to the file system, and a plain answer."""

from __future__ import annotations

import marshal
import os
import threading
from collections.abc import Callable
from typing import Any


class Aside:
    """Calls a function in a child, and gives what it returns, which is data that marshal takes.

    The function may ask files and nothing else: it finds all as it is now, and leaves nothing but its answer. Where the
    system gives no child, or the child dies, it is called when the answer is asked for.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._child: int | None = None
        # A lock that another thread holds would never be free in the child.
        if threading.active_count() > 1:
            return
        try:
            self._answer = os.memfd_create("answer")
        except OSError:
            return
        try:
            self._child = os.fork()
        except OSError:
            os.close(self._answer)
            return
        if self._child == 0:
            self._tell()

    def _tell(self) -> None:
        code = 1
        try:
            data = memoryview(marshal.dumps(self._work()))
            while data:
                data = data[os.write(self._answer, data) :]
            code = 0
        finally:
            os._exit(code)

    def answer(self) -> Any:
        """What the function returned; to be asked once."""
        if self._child is None:
            return self._work()
        child, self._child = self._child, None
        try:
            _, status = os.waitpid(child, 0)
        except ChildProcessError:
            # Whoever started this process had it ignore how children end: nobody can tell if this one ended well.
            status = 1
        with os.fdopen(self._answer, "rb") as file:
            file.seek(0)
            return marshal.loads(file.read()) if status == 0 else self._work()
