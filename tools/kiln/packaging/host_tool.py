"""Runs a tool of the host (objcopy, ar, cc) in a folder of its own, and knows what they are told for each host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kiln.errors import PackagingError


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that libraries are linked on, in the words of binutils (`objcopy --info`)."""

    bfd: str
    architecture: str


HOSTS = {
    "x86_64-linux-gnu": Host(bfd="elf64-x86-64", architecture="i386:x86-64"),
    "aarch64-linux-gnu": Host(bfd="elf64-littleaarch64", architecture="aarch64"),
}

_SHOWN_LINES = 20


def run_tool(tool: Path, arguments: Sequence[str], *, folder: Path, purpose: str, script: str = "") -> None:
    """Run a tool in `folder`, with `script` as its input, in an environment in which nothing changes its output.

    What it made is still to be read back: some tools exit with 0 on a full disk.

    `purpose` completes "<tool> could not ...". Raises PackagingError with the tool's own words.
    """
    # Not resolved: a compiler may be called by a link whose name it goes by.
    command = [str(tool.absolute()), *arguments]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": str(folder)}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, input=script.encode(), capture_output=True)
    except OSError as error:
        raise PackagingError(
            f"{tool.name} could not {purpose}: it cannot be run",
            where=str(tool),
            actual=error.strerror or str(error),
            remedy="install it, or point OBJCOPY, AR or CC to another one",
        ) from error
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()
        left_out = len(lines) - _SHOWN_LINES
        shown = lines[:_SHOWN_LINES] + ([f"... and {left_out} more lines"] if left_out > 0 else [])
        end = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise PackagingError(
            f"{tool.name} could not {purpose}: {end}",
            where=str(tool),
            actual="\n    ".join(shown) or "it printed nothing",
        )
