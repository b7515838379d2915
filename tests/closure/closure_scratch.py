"""A scratch project of Python files to cut kernels from."""

from __future__ import annotations

import textwrap
from pathlib import Path

from kiln.closure.slice import Closure, cut
from kiln.errors import Position

HEADER = """\
import triton
import triton.language as tl
"""


class Scratch:
    """Files below a folder; `k.py` and its function `kernel` unless said otherwise."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, text: str, file: str = "k.py") -> Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def files(self, texts: dict[str, str]) -> None:
        for file, text in texts.items():
            self.write(text, file)

    def cut(self, file: str = "k.py", function: str = "kernel", where: Position | None = None) -> Closure:
        return cut(self.root / file, function, root=self.root, where=where)

    def digest(self, text: str, file: str = "k.py") -> str:
        self.write(text, file)
        return self.cut().digest


def kept(closure: Closure) -> set[str]:
    """The names that a closure keeps; those of k.py stand without their file."""
    return {name.removeprefix("k.py:") for name in closure.components}
