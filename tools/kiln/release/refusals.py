"""What a release refuses before anything is built: what another machine, or other tools, would make other bytes of.

Most of that no build takes: kernels.yaml has no word for flags of nvcc that put paths into images, and line tables name
files by what they are called everywhere. What is left is fine while a library is developed, and not when it goes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kiln.errors import ManifestError, ToolchainError
from kiln.manifest.model import UNVERSIONED, Manifest
from kiln.manifest.targets import NATIVE
from kiln.toolchain.identity import Tool
from kiln.toolchain.lock import LOCK, read_lock, this_machine, unlocked

_UNLOCKED = "`doit --unlocked release` makes one all the same, which says so"


def check_manifest(manifest: Manifest) -> None:
    """Refuse a manifest that no release can be made of. Raises ManifestError, where it says so."""
    check_targets(manifest)
    if manifest.library_version == UNVERSIONED:
        raise ManifestError(
            "a release is of a version, and kernels.yaml has none",
            where=manifest.position,
            expected="`library_version`, a semantic version",
            actual=f"{UNVERSIONED}, which stands for none",
            remedy="write `library_version: 0.1.0`, and another one for each release",
        )


def check_targets(manifest: Manifest) -> None:
    """Refuse a manifest whose library is another one on another machine. Raises ManifestError."""
    if manifest.native_position is not None:
        raise ManifestError(
            f"`targets: {NATIVE}` cannot be released: it stands for the GPUs of the machine that builds, and another "
            "machine makes another library",
            where=manifest.native_position,
            expected="targets by name",
            actual=f"{NATIVE}, which is {', '.join(manifest.targets)} here",
            remedy=f"write the targets out, as in `targets: [{', '.join(manifest.targets)}]`",
        )


def lock_of(manifest: Manifest) -> Path:
    """The path of a manifest's lock, as messages name it."""
    return Path(manifest.position.file).with_name(LOCK)


def check_tools(manifest: Manifest, tools: Sequence[Tool], *, allow_others: bool = False) -> bool:
    """Whether the tools that make images are those of kiln.lock, which may hold more than the manifest needs.

    `tools` are what `toolchain.identity.identify` finds for the manifest, or for a part of it. Raises ToolchainError
    where they are not those, unless `allow_others`; and LockError for a lock that cannot be read in any case.
    """
    path = lock_of(manifest)
    try:
        _check(path, tools)
    except ToolchainError:
        if not allow_others:
            raise
        return False
    return True


def _check(path: Path, tools: Sequence[Tool]) -> None:
    lock, machine = read_lock(path), this_machine()
    if lock is None:
        raise ToolchainError(
            "a release needs a lock, which names the compilers that it is made with",
            where=str(path),
            expected="a file that `doit lock` writes",
            actual="no such file",
            remedy=f"run `doit lock`, and commit {path.name}; {_UNLOCKED}",
        )
    if machine not in lock.device:
        raise ToolchainError(
            f"no compilers are locked for {machine}, which this machine and its Python are",
            where=lock.position,
            expected=f"an entry {machine!r}",
            actual=f"entries for {', '.join(sorted(lock.device))}" if lock.device else "no entries",
            remedy=f"run `doit lock` here, which adds it and leaves the others, and commit {path.name}; {_UNLOCKED}",
        )
    found = unlocked(lock, machine, tools)
    if found:
        count = "1 tool that makes images is" if len(found) == 1 else f"{len(found)} tools that make images are"
        raise ToolchainError(
            f"{count} not what is locked for {machine}",
            where=lock.positions[machine],
            expected=f"the tools that {path.name} names, by their bytes",
            actual="\n    ".join(line for each in found for line in each.lines()),
            remedy="install what is locked; or, if these tools are meant, run `doit lock` and commit "
            f"{path.name}; {_UNLOCKED}",
        )
