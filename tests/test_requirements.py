"""The locks in requirements/ fit what pyproject.toml asks for, and every file in them is pinned by its digest."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kiln.toolchain.triton_releases import RELEASES
from test_bootstrap import bootstrap

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read_lock(name: str) -> dict[tuple[str, str], set[str]]:
    """(requirement without its name's spelling, marker) -> digests, for each entry of a lock."""
    entries = (ROOT / "requirements" / name).read_text().replace("\\\n", " ").splitlines()
    lock = {}
    for entry in entries:
        text, *hashes = entry.split("--hash=")
        requirement = Requirement(text.strip())
        key = f"{canonicalize_name(requirement.name)}{requirement.specifier}"
        lock[key, str(requirement.marker or "")] = {digest.strip() for digest in hashes}
    return lock


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "requirements").glob("*.txt")))
def test_every_entry_is_one_version_with_digests(name: str) -> None:
    for (requirement, _), hashes in read_lock(name).items():
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", requirement)
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


def test_each_lock_holds_the_smaller_one() -> None:
    """bootstrap.py adds what tests or benchmarks need to a .venv made for building, and changes none that is in it.

    What a build needs for some Pythons alone, tests may need for all.
    """
    locks = [read_lock(f"{name}.txt") for name in ("build", "bench", "test")]
    for smaller, larger in pairwise(locks):
        for (requirement, marker), hashes in smaller.items():
            assert larger.get((requirement, marker), larger.get((requirement, ""))) == hashes, requirement


@pytest.mark.parametrize("minor", [minor for _, minor in [bootstrap.OLDEST, bootstrap.NEWEST]])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_locks_satisfy_what_is_asked_for(minor: int, machine: str) -> None:
    environment = {**python(minor), "platform_machine": machine}
    build_in, bench_in, test_in = (
        [line for line in (ROOT / "requirements" / name).read_text().splitlines() if not line.startswith("#")]
        for name in ("build.in", "bench.in", "test.in")
    )
    asked = PYPROJECT["project"]["dependencies"] + PYPROJECT["build-system"]["requires"] + build_in
    asked_for_benchmarks = asked + bench_in
    for name, requirements in (
        ("build.txt", asked),
        ("bench.txt", asked_for_benchmarks),
        ("test.txt", asked_for_benchmarks + test_in),
    ):
        locked = [
            Requirement(text) for text, marker in read_lock(name) if not marker or Marker(marker).evaluate(environment)
        ]
        versions = {canonicalize_name(requirement.name): str(requirement.specifier)[2:] for requirement in locked}
        assert len(versions) == len(locked), "two versions of one package for one interpreter"
        for requirement in map(Requirement, requirements):
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_each_other_triton_is_locked_for_every_python_that_it_is_published_for() -> None:
    """Those that the tests build with, beside the locked one; the range in pyproject.toml is that of the table."""
    (asked,) = (text for text in PYPROJECT["project"]["dependencies"] if text.startswith("triton"))
    names = [f"{major}.{minor}" for major, minor in RELEASES]
    minors = [f"{major}.{minor}" for major in range(2, 5) for minor in range(30)]
    assert [name for name in minors if Requirement(asked).specifier.contains(f"{name}.0")] == names
    locked = {requirement.partition("==")[2] for requirement, _ in read_lock("build.txt") if "triton" in requirement}
    files = {path.stem.removeprefix("triton-") for path in (ROOT / "requirements").glob("triton-*.txt")}
    assert files == set(names) - {version.rpartition(".")[0] for version in locked}
    for name in files:
        ((requirement, marker),) = read_lock(f"triton-{name}.txt")
        assert re.fullmatch(rf"triton=={re.escape(name)}\.\d+", requirement)
        assert [minor for minor in range(11, 16) if Marker(marker).evaluate(python(minor))] == [11, 12, 13, 14]
        # A wheel for each of those and each of the two machines, and for others that pip does not ask for.
        assert len(read_lock(f"triton-{name}.txt")[requirement, marker]) >= 4 * 2


def python(minor: int) -> dict[str, str]:
    """What markers ask of a Python 3."""
    return {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"}


def test_bootstrap_takes_the_pythons_that_the_package_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # no other Python to offer, which takes a while to find out
    supported = SpecifierSet(PYPROJECT["project"]["requires-python"])
    for minor in range(6, 20):
        assert (bootstrap.unfit((3, minor), "linux") is None) == supported.contains(f"3.{minor}.0"), minor
