"""A scratch project of Python files to cut kernels from."""

from __future__ import annotations

import textwrap
from pathlib import Path

from closure_worlds import CUDA

from kiln.closure.slice import Closure, cut
from kiln.closure.world import World
from kiln.errors import ClosureError, Position

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

    def cut(
        self,
        file: str = "k.py",
        function: str = "kernel",
        where: Position | None = None,
        world: World | None = CUDA,
        functions: tuple[str, ...] = (),
    ) -> Closure:
        return cut(self.root / file, function, root=self.root, functions=functions, world=world, where=where)

    def refusal(self, where: Position | None = None) -> str:
        """Why the kernel of k.py cannot be cut. Its file may be imported instead, where only a run can follow it."""
        try:
            uncut = self.cut(where=where).uncut
        except ClosureError as error:
            return str(error)
        assert uncut is not None, "it was cut"
        return uncut

    def digest(self, text: str, file: str = "k.py") -> str:
        self.write(text, file)
        return self.cut().digest


def kept(closure: Closure) -> set[str]:
    """The names that a closure keeps; those of k.py stand without their file."""
    return {name.removeprefix("k.py:") for name in closure.components}
