"""doit's tasks beside the step `release`: `release:sm_90a` for one target, `release:verify` and `release:sign`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doit.exceptions import TaskFailed
from doit.task import Task

from kiln.doit_plugin.loader import RELEASE
from kiln.doit_plugin.tasks import shown
from kiln.errors import KilnError, ReleaseError
from kiln.toolchain.targets import TARGETS

if TYPE_CHECKING:
    # Imported when a task runs: most builds make no release, and what reads one takes long to import.
    from kiln.library import Library
    from kiln.release.names import Names

VERIFY, SIGN = f"{RELEASE}:verify", f"{RELEASE}:sign"
PARTS = "parts"
"""of the build folder: the build folders of releases for one target"""

_PUBLIC_KEY = {
    "name": "public_key",
    "short": "",
    "long": "public-key",
    "type": str,
    "default": None,
    "help": "PEM file with the Ed25519 key that has to have signed it",
}
_NO_REBUILD = {
    "name": "no_rebuild",
    "short": "",
    "long": "no-rebuild",
    "type": bool,
    "default": False,
    "help": "look at the release alone, and do not build it again from the sources",
}
_KEY = {
    **_PUBLIC_KEY,
    "name": "key",
    "long": "key",
    "help": "PEM file with the private Ed25519 key, as `openssl genpkey -algorithm ed25519` makes it",
}
_SIGSTORE = {
    **_NO_REBUILD,
    "name": "sigstore",
    "long": "sigstore",
    "help": "sign with the identity of the CI job that runs this",
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a project's release is, and what it is made from."""

    started: Path
    """the folder that paths of the command line are of"""
    project: Path
    build: Path
    names: Names
    """of the release that the project makes"""
    roots: tuple[str, ...]
    """the folders that kernels.yaml declares, relative to the project's"""
    words: tuple[str, ...]
    """behind Python's, those that build as this process does"""

    @classmethod
    def of(cls, library: Library, names: Names, *, started: Path, words: Sequence[str]) -> Place:
        """Of a library in its build folder."""
        manifest = library.manifest
        return cls(
            started=started,
            project=manifest.root,
            build=library.build,
            names=names,
            roots=tuple(manifest.roots.values()),
            words=tuple(words),
        )


def release_tasks(place: Callable[[], Place], targets: Iterable[str], *, is_unlocked: bool) -> list[Task]:
    """The tasks; `place` is asked when one runs. They are for who names them: nothing comes after them.

    Of `targets`, words that are none have no task. `is_unlocked` is for their releases.
    """

    def verify(paths: Sequence[str], public_key: str | None, no_rebuild: bool) -> TaskFailed | None:
        return _told(lambda: _verify(place(), paths, public_key, no_rebuild=no_rebuild))

    def sign(key: str | None, sigstore: bool) -> TaskFailed | None:
        return _told(lambda: _sign(place(), key, sigstore=sigstore))

    return [
        *(_part(target, place, is_unlocked=is_unlocked) for target in targets if target in TARGETS),
        Task(
            VERIFY,
            actions=[verify],
            params=[_PUBLIC_KEY, _NO_REBUILD],
            pos_arg="paths",
            doc="verify a release: its documents, its signature, and that the sources make the same bytes",
            subtask_of=RELEASE,
            verbosity=2,
        ),
        Task(
            SIGN,
            actions=[sign],
            params=[_KEY, _SIGSTORE],
            doc="sign the statement of the release that is made",
            subtask_of=RELEASE,
            verbosity=2,
        ),
    ]


def _part(target: str, place: Callable[[], Place], *, is_unlocked: bool) -> Task:
    """The release of one target alone: that of the library which `--targets` makes, in a build folder of its own."""

    def make() -> TaskFailed | None:
        here = place()
        own = here.build / PARTS / target
        words = [*here.words, "--targets", target, "--build-dir", str(own), *(["--unlocked"] if is_unlocked else [])]
        code = subprocess.run([sys.executable, *words, RELEASE], stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            return TaskFailed(f"the release of {target} was not made: exit code {code}")
        _say(f"made {shown(own / replace(here.names, part=(target,)).tar)}")
        return None

    return Task(
        f"{RELEASE}:{target}",
        actions=[make],
        doc=f"the same of {target} alone, complete by itself",
        subtask_of=RELEASE,
        verbosity=2,
    )


def _told(run: Callable[[], list[ReleaseError]]) -> TaskFailed | None:
    """Run, and tell of every fault; a failure, with doit's exit code 1, where there is one."""
    try:
        faults: Sequence[KilnError] = run()
    except KilnError as error:
        faults = [error]
    except ModuleNotFoundError as error:
        # Kiln without its extra builds, and makes and reads no releases.
        remedy = "pip install 'PATH/OF/KILN[release]'"
        faults = [ReleaseError("what reads releases is not installed", actual=str(error), remedy=remedy)]
    if not faults:
        return None
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return TaskFailed("\n".join([count, *(line for fault in faults for line in ("", str(fault)))]))


def _verify(place: Place, paths: Sequence[str], public_key: str | None, *, no_rebuild: bool) -> list[ReleaseError]:
    from kiln.release.rebuild import Project
    from kiln.release.verify import Wanted, verify

    if len(paths) > 1:
        raise ReleaseError(
            f"{VERIFY} takes one release at a time",
            actual=" ".join(paths),
            remedy=f"doit {VERIFY} [--public-key PUB.pem] [--no-rebuild] [PATH]",
        )
    path = _typed(place, paths[0]) if paths else place.build / place.names.tar
    done = verify(
        Wanted(
            path=path,
            public_key=None if public_key is None else _typed(place, public_key),
            project=Project(folder=place.project, build=place.build, roots=place.roots, words=place.words),
            is_rebuilt=not no_rebuild,
        ),
        _say,
    )
    for line in done.lines:
        _say(line)
    if not done.faults:
        _say("no fault was found" + ("; it was not built again" if no_rebuild else ""))
    return list(done.faults)


def _sign(place: Place, key: str | None, *, sigstore: bool) -> list[ReleaseError]:
    from kiln.release.signing import sign, sign_with_sigstore

    if (key is None) == (not sigstore):
        raise ReleaseError(
            "say with what to sign" if key is None else "sign with one of the two",
            expected="--key KEY.pem, or --sigstore",
            remedy="make a key: openssl genpkey -algorithm ed25519 -out KEY.pem",
        )
    names, build = place.names, place.build
    statement, tar = build / names.statement, build / names.tar
    if key is not None:
        signer = sign(statement, tar, _typed(place, key), build / names.envelope)
        _say(f"signed {statement} as {signer}: {build / names.envelope}")
    else:
        signer = sign_with_sigstore(statement, tar, build / names.sigstore)
        _say(f"signed {statement} as {signer}: {build / names.sigstore}")
    return []


def _typed(place: Place, path: str) -> Path:
    """A path of the command line, which is of the folder where that was typed."""
    return Path(os.path.normpath(place.started / path))


def _say(text: Any) -> None:
    print(text, flush=True)
