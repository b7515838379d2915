"""Runs a tool of the host (objcopy, ar, cc) in a folder of its own, and reads back the objects that it made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from kiln.binaries.checks import Finding
from kiln.binaries.host_object import HostObject, read_host_object
from kiln.errors import ImageError, PackagingError

_SHOWN_LINES = 20

PASSED = ("PATH",)
"""variables of the environment that a tool gets as they are"""
SET = {"LC_ALL": "C"}
"""others that it gets"""


def run_tool(
    tool: Path,
    arguments: Sequence[str],
    *,
    folder: Path,
    purpose: str,
    script: str = "",
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a tool in `folder`, with `script` as its input, in an environment in which nothing changes its output.

    What it made is still to be read back: some tools exit with 0 on a full disk.

    `purpose` completes "<tool> could not ...". Raises PackagingError with the tool's own words, and with the first of
    `remedies`, words of the tool -> what to do, whose words it used.
    """
    # Not resolved: a compiler may be called by a link whose name it goes by.
    command = [str(tool.absolute()), *arguments]
    environment = {"PATH": os.defpath, **{name: os.environ[name] for name in PASSED if name in os.environ}}
    environment |= {**SET, "TMPDIR": str(folder)}
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
        text = (done.stderr + done.stdout).decode(errors="replace").strip()
        lines = text.splitlines()
        left_out = len(lines) - _SHOWN_LINES
        shown = lines[:_SHOWN_LINES] + ([f"... and {left_out} more lines"] if left_out > 0 else [])
        end = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise PackagingError(
            f"{tool.name} could not {purpose}: {end}",
            where=str(tool),
            actual="\n    ".join(shown) or "it printed nothing",
            remedy=next((remedy for words, remedy in remedies.items() if words in text), None),
        )


def check_made(
    path: Path, check: Callable[[HostObject], Sequence[Finding]], *, tool: Path, where: Path, remedy: str
) -> None:
    """Raise PackagingError unless `path` is an object file in which `check` finds nothing, for `tool` ended well.

    `where` is what the message names; `remedy` is for a file that is missing or damaged.
    """
    try:
        findings = check(read_host_object(path))
    except ImageError as error:
        raise PackagingError(
            f"{tool.name} ended well, but {path.name} is not what was asked for: {error.what}",
            where=str(where),
            expected=error.expected,
            actual=error.actual,
            remedy=remedy,
        ) from error
    if findings:
        raise PackagingError(
            f"{tool.name} ended well, but {path.name} is not what was asked for: "
            + "; ".join(finding.check for finding in findings),
            where=str(where),
            expected="; ".join(finding.expected for finding in findings),
            actual="; ".join(finding.actual for finding in findings),
            remedy="; ".join(dict.fromkeys(finding.remedy for finding in findings)),
        )
