"""One build gives one release, byte for byte, wherever, by whomever and whenever it is made."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kiln.digests import digest_file
from kiln.release.plan import ReleasePlan
from project import REPOSITORY, Project
from release_project import elsewhere, plan_of

MAKE = """\
import os, pickle, sys
from pathlib import Path
sys.path[:0] = [{tools!r}, {tests!r}]
os.umask({umask})
from release_project import in_child
from kiln.release_jobs import make_release
plan = pickle.loads(Path({plan!r}).read_bytes())
make_release(in_child(plan, Path({build!r})), Path({staging!r}))
"""


def make(plan: ReleasePlan, folder: Path, *, umask: int = 0o022, **environment: str) -> dict[str, str]:
    """A release of folder/build in a process of its own: name -> sha256 of the files beside its folder."""
    (folder / "staging").mkdir()
    (folder / "plan").write_bytes(pickle.dumps(plan))
    code = MAKE.format(
        tools=str(REPOSITORY / "tools"),
        tests=str(REPOSITORY / "tests"),
        umask=umask,
        plan=str(folder / "plan"),
        build=str(folder / "build"),
        staging=str(folder / "staging"),
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={"PATH": os.environ["PATH"], **environment}, check=True
    )
    return {path.name: digest_file(path) for path in (folder / "staging/release").iterdir() if path.is_file()}


@pytest.fixture
def first(release_library: Project, tmp_path: Path) -> tuple[ReleasePlan, dict[str, str]]:
    """The plan of a copy of the build, and the release that is made of it in a plain place."""
    build = tmp_path / "plain" / "build"
    shutil.copytree(release_library.folder / "build", build)
    plan = elsewhere(plan_of(release_library), release_library.folder / "build", build)
    return plan, make(plan, build.parent, PYTHONHASHSEED="0", LC_ALL="C.UTF-8", TZ="UTC")


def test_place_user_locale_time_and_umask_do_not_matter(
    first: tuple[ReleasePlan, dict[str, str]], tmp_path: Path
) -> None:
    plan, digests = first
    assert {name.partition(".tar")[0] for name in digests if name.endswith(".tar")} == {"scratch-1.2.0"}
    old, folder = tmp_path / "plain" / "build", tmp_path / "a place, übrigens"
    shutil.copytree(old, folder / "build")
    for number, path in enumerate(sorted((folder / "build").rglob("*"), reverse=True)):
        os.utime(path, (number, 10**9 + number * 1000))
        path.chmod(0o700 if path.is_dir() else 0o600 + 0o100 * (number % 2))
    again = make(
        elsewhere(plan, old, folder / "build"),
        folder,
        umask=0o077,
        PYTHONHASHSEED="4242",
        LC_ALL="C",
        LANG="tr_TR.UTF-8",
        TZ="Asia/Kathmandu",
        HOME=str(folder),
        SOURCE_DATE_EPOCH="1700000000",
        COLUMNS="40",
    )
    assert again == digests


def test_the_order_of_a_plan_does_not_matter(first: tuple[ReleasePlan, dict[str, str]], tmp_path: Path) -> None:
    """Files come from a database of state, in the order in which steps ended."""
    plan, digests = first
    folder = tmp_path / "reversed"
    shutil.copytree(tmp_path / "plain" / "build", folder / "build")
    moved = elsewhere(plan, tmp_path / "plain" / "build", folder / "build")
    assert make(replace(moved, files=tuple(reversed(plan.files))), folder) == digests


def test_locales_can_be_told_apart_here() -> None:
    """What the test above sets has an effect on a process: without one it would prove nothing."""
    code = "import locale, time; locale.setlocale(locale.LC_ALL, ''); print(locale.getencoding(), time.timezone)"
    said = [
        subprocess.run(
            [sys.executable, "-X", "utf8=0", "-c", code],
            env={"LC_ALL": language, "TZ": zone, "PYTHONCOERCECLOCALE": "0"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for language, zone in (("C.UTF-8", "UTC"), ("C", "<+0545>-5:45"))
    ]
    assert said[0] != said[1]
