"""`doit lock` in whole projects, and the lock of this repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kiln.digests import FileDigests
from kiln.library import read_manifest
from kiln.release.refusals import check_tools
from kiln.toolchain.identity import identify
from kiln.toolchain.lock import LOCK, read_lock, render, this_machine
from kiln.toolchain.tools import find_triton
from other_tritons import HERE, INSTALLED, copied_triton, python_of, python_with
from project import REPOSITORY, Project

PTXAS = "backends/nvidia/bin/ptxas"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path / "scratch")


def program(path: Path, script: str) -> str:
    """A program that runs the script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_lock_of_this_repository_is_of_the_locked_requirements() -> None:
    """Where it has an entry of this machine, the tests run with what bootstrap.py installed by digest."""
    lock = read_lock(REPOSITORY / LOCK)
    assert lock is not None and render(lock) == (REPOSITORY / LOCK).read_text("utf-8")
    manifest = read_manifest(REPOSITORY / "kernels.yaml")
    tools = identify(manifest, FileDigests({}))
    device = {tool.name for tool in tools if tool.level == "device"}
    assert lock.device and lock.device.keys() == lock.host.keys()
    assert [machine for machine, entry in lock.device.items() if entry.keys() != device] == []
    assert {entry["triton"].version for entry in lock.device.values()} == {find_triton().version}
    if this_machine() in lock.device:
        assert check_tools(manifest, tools)


def test_it_is_written_once(project: Project) -> None:
    machine = re.escape(this_machine())
    project.doit("lock").expect(rf"^added the tools of {machine} in kiln\.lock: 9 that make images, 5 of the host$")
    text, before = project.read(LOCK), (project.folder / LOCK).stat()
    assert list(json.loads(text)["device"]) == [this_machine()] == list(json.loads(text)["host"])
    project.doit("lock").expect(rf"^kiln\.lock has the tools of this machine, {machine}: 9 that make images")
    project.doit("lock", "--check").expect(r"^kiln\.lock has the tools of this machine")
    after = (project.folder / LOCK).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (project.folder / "build").exists()


def test_check_writes_nothing(project: Project) -> None:
    project.doit("lock", "--check").expect(r"^kiln\.lock has no tools for ", code=1)
    assert not (project.folder / LOCK).exists()


def test_entries_of_other_machines_stay(project: Project) -> None:
    project.doit("lock").expect()
    text = project.read(LOCK)
    project.write(LOCK, text.replace(this_machine(), "x86_64 cpython-399").replace("3.9.", "3.8."))
    project.doit("lock").expect(
        r"^added the tools of ",
        r"^triton is 3\.9\.\d+ here, and 3\.8\.\d+ in the entry 'x86_64 cpython-399': run `doit lock` there too$",
    )
    entries = json.loads(project.read(LOCK))
    assert list(entries["device"]) == sorted(["x86_64 cpython-399", this_machine()])
    before = json.loads(text.replace("3.9.", "3.8."))
    for level in ("device", "host"):
        assert entries[level]["x86_64 cpython-399"] == before[level][this_machine()]
        assert entries[level][this_machine()] == json.loads(text)[level][this_machine()]


def test_a_swapped_ptxas_with_the_same_version_is_named(project: Project, tmp_path: Path) -> None:
    project.doit("lock").expect()
    text = project.read(LOCK)
    made = copied_triton(tmp_path / "other", PTXAS)
    other = Project(folder=project.folder, python=python_with(made.parent, tmp_path / "venv"))
    other.doit("lock", "--check").expect(r"^kiln\.lock has the tools of this machine")
    with (made / PTXAS).open("ab") as file:
        file.write(b"\0")
    said = other.doit("lock", "--check").expect(
        r"^kiln\.lock has other tools for ", r"^  ptxas has the same version, 12\.9\.\d+, and other bytes$", code=1
    )
    assert len(re.findall(r"^    (?:locked|here) ", said.output, re.MULTILINE)) == 2
    assert project.read(LOCK) == text
    other.doit("lock").expect(r"^changed the tools of ", r"^  ptxas has the same version")
    changed = [line for line in project.read(LOCK).splitlines() if line not in text.splitlines()]
    assert len(changed) == 1 and '"ptxas"' in changed[0]


@pytest.mark.parametrize("release", [release for release in HERE if release != INSTALLED])
def test_another_release_of_triton_is_named(project: Project, tmp_path: Path, release: str) -> None:
    project.doit("lock").expect()
    other = Project(folder=project.folder, python=python_of(release, tmp_path / "venv"))
    version, locked = re.escape(release), re.escape(INSTALLED)
    other.doit("lock", "--check").expect(
        rf"^  triton is {version}\.\d+, locked is {locked}\.\d+$",
        rf"^  triton nvidia is {version}\.\d+, locked is {locked}\.\d+$",
        rf"^  triton amd is {version}\.\d+, locked is {locked}\.\d+$",
        code=1,
    )


def test_a_tool_of_the_host_is_recorded_and_not_held_against_a_build(project: Project, tmp_path: Path) -> None:
    project.doit("lock").expect()
    other = program(tmp_path / "other-ar", "echo other ar 1.2")
    project.doit("lock", "--check", AR=other).expect(r"^  ar is other ar 1\.2, locked is GNU ar")
    project.doit("lock", AR=other).expect(r"^changed the tools of ", r"^  ar is other ar 1\.2, locked is GNU ar")
    assert '"ar": {"version": "other ar 1.2", ' in project.read(LOCK)


def test_what_is_not_needed_any_more_goes(project: Project) -> None:
    project.doit("lock").expect()
    project.edit("kernels.yaml", "[sm_80, gfx942]", "[sm_80]")
    project.doit("lock", "--check").expect()
    project.doit("lock").expect(r"^changed the tools of .* 4 that make images", r"^  ocml\.bc is not needed any more$")
    project.edit("kernels.yaml", "[sm_80]", "[sm_80, sm_90a]")
    project.doit("lock", "--check").expect(r"^  ptxas-blackwell is not locked$", code=1)


def test_a_damaged_lock_is_left_alone(project: Project) -> None:
    project.write(LOCK, '{"version": 1,\n "device": {"x": []}, "host": {}}\n')
    project.doit("lock").expect(r"kiln\.lock:2:18: wrong value for `device\.x`", "remedy: restore the file", code=3)
    assert '"device": {"x": []}' in project.read(LOCK)


def test_what_stands_in_its_place_is_told(project: Project) -> None:
    (project.folder / LOCK).mkdir()
    project.doit("lock").expect(r"kiln\.lock: the lock cannot be read: Is a directory", code=3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lock", "compile"), "lock takes no tasks: 'compile'"),
        (("lock", "--targets", "sm_80"), "the lock has the tools of all targets: leave --targets out"),
    ],
)
def test_what_it_does_not_take_is_refused(project: Project, words: tuple[str, ...], said: str) -> None:
    project.doit(*words).expect(re.escape(said), code=3)
    assert not (project.folder / LOCK).exists()


def test_a_manifest_that_is_wrong_is_told_as_in_a_build(project: Project) -> None:
    project.edit("kernels.yaml", "dtypes: [fp32]", "dtypes: [fp33]")
    project.doit("lock").expect(r"kernels\.yaml:8:14: wrong value for `kernels\.scale\.dtypes\[0\]`", code=3)


def test_it_needs_no_settings_of_the_project(project: Project) -> None:
    """`kiln build lock`, where neither dodo.py nor settings are."""
    (project.folder / "dodo.py").unlink()
    (project.folder / "doit.cfg").unlink()
    project.run_python("-m", "kiln", "build", "lock").expect(r"^added the tools of ")
