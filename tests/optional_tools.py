"""Tools that some tests need and many machines lack: cross compilers, an emulator, a disassembler.

The variable KILN_TESTS_WITH lists, with commas, what a machine promises to have, as .ci/run does with what it
installed. There a missing tool fails the test; elsewhere the test is skipped, with the name of the package.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PROMISES = "KILN_TESTS_WITH"


def require(tool: str, *, package: str, claim: str) -> Path:
    """The path of a program.

    Where it is missing the calling test is skipped, or fails if KILN_TESTS_WITH lists `claim`, as in "aarch64,llvm".
    """
    found = shutil.which(tool)
    if found is not None:
        return Path(found)
    text = f"{tool} is missing: install {package} (Debian, Ubuntu: apt-get install {package})"
    if claim in os.environ.get(PROMISES, "").split(","):
        pytest.fail(f"{PROMISES} promises {claim}, but {text}", pytrace=False)
    pytest.skip(text)


def llvm(tool: str) -> Path:
    """A tool of Debian's newest LLVM: 22 knows every processor of AMD that Kiln builds for, and 19 not gfx950."""
    return require(f"llvm-{tool}-22", package="llvm-22", claim="llvm")
