"""The calls of steps that make files of a few letters, each in two halves: for builds that are killed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path


def write(name: str, text: str, staging: Path) -> None:
    """Write a text."""
    path = staging / name
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        # Long enough to be killed in.
        time.sleep(0.01)
        file.write(text[len(text) // 2 :])


def reverse(name: str, source: Path, staging: Path) -> None:
    """Write what a file holds, the other way round."""
    write(name, source.read_text("utf-8")[::-1], staging)


def join(name: str, sources: Sequence[Path], staging: Path) -> None:
    """Write what files hold, one after another."""
    write(name, "".join(source.read_text("utf-8") for source in sources), staging)
