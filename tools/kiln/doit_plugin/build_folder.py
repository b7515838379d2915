"""The build folder as commands meet it: its names, whose it is, what may lie in it, and its lock."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from doit.exceptions import InvalidDodoFile

from kiln.doit_plugin.owner import check_owner
from kiln.doit_plugin.tasks import shown
from kiln.engine.build import Build
from kiln.engine.lock import build_lock
from kiln.errors import KilnError, ManifestError

if TYPE_CHECKING:
    # A build that has nothing to do loads none.
    from kiln.manifest.model import Manifest

MANIFEST = "kernels.yaml"
BUILD_FOLDER = "build"
"""where kernels.yaml cannot be read and so names none"""
PRIVATE_FOLDER = ".kiln"
"""in the build folder: state, lock, temporary files, logs of failures"""
STATE = "state.sqlite"


def check_folder(folder: Path, manifest: Manifest, option: str | None) -> None:
    """Refuse a build folder that holds what people write: what a build does not know there, it may remove.

    `option` is what `--build-dir` says, which goes before the manifest.
    """
    real = folder.resolve()
    sources = (*manifest.files, *dict.fromkeys(kernel.source for kernel in manifest.kernels))
    inside = [path for path in sources if path.resolve().is_relative_to(real)]
    if inside:
        error = ManifestError(
            "the build folder would hold sources",
            where="--build-dir" if option is not None else manifest.build_position or manifest.position,
            expected="a folder that holds what is built, and nothing else",
            actual=f"{shown(folder)}, with {shown(inside[0])} in it",
            remedy="name another folder: `build:` in kernels.yaml, or `doit --build-dir DIR`",
        )
        raise InvalidDodoFile(str(error))
    check_place(folder)


def check_place(folder: Path) -> None:
    """Refuse a build folder that another project builds into."""
    try:
        check_owner(folder / PRIVATE_FOLDER, Path.cwd(), MANIFEST)
    except KilnError as other:
        raise InvalidDodoFile(str(other)) from other


def hold_lock(stack: ExitStack, build: Build) -> None:
    """Enter the build folder's lock. Raises InvalidDodoFile, which doit takes for an error before a run."""
    try:
        stack.enter_context(build_lock(build.lock, waiting=warn))
    except KilnError as error:
        raise InvalidDodoFile(str(error)) from error


def warn(text: str) -> None:
    """Tell people something that is no task's own affair; where nobody reads it, the build goes on."""
    with suppress(OSError):
        sys.stderr.write(f"kiln: {text}\n")
