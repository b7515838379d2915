"""What a release refuses before anything is built, each with its place, the reason and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import cuda_project
from kiln.digests import FileDigests
from kiln.errors import LockError, ManifestError, ToolchainError
from kiln.library import read_manifest
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.narrow import narrowed
from kiln.release.refusals import check_manifest, check_tools, lock_of
from kiln.toolchain.identity import Tool, identify
from kiln.toolchain.lock import LOCK, read_lock, this_machine, with_entry, write_lock
from project import MANIFEST, Project

A, B = "a" * 64, "b" * 64


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """That of a project whose folder is the current one, as in a build."""
    monkeypatch.chdir(Project.create(tmp_path / "scratch").folder)
    return read_manifest(Path("kernels.yaml"))


def tool(name: str, sha256: str, version: str = "1.0", **other: str) -> Tool:
    return Tool(name=name, version=version, sha256=sha256, level="host" if other else "device", used_for="tests")


TOOLS = (tool("triton", A, "3.9.0"), tool("ptxas", A, "12.9.86"), tool("ar", A, host=""))


def lock(*tools: Tool, machine: str | None = None) -> None:
    """Lock some tools of a machine, this one without a name, beside what is locked."""
    write_lock(Path(LOCK), with_entry(read_lock(Path(LOCK)), machine or this_machine(), tools))


def refused(check: Callable[[], object], kind: type[Exception] = ToolchainError) -> str:
    with pytest.raises(kind) as caught:
        check()
    print(caught.value)
    return str(caught.value)


def test_what_is_locked_is_taken(manifest: Manifest) -> None:
    lock(*TOOLS)
    assert check_tools(manifest, TOOLS) is True
    assert lock_of(manifest) == Path(LOCK)


def test_a_lock_may_hold_more_than_is_needed(manifest: Manifest) -> None:
    """As for a release of some of the targets, or for other machines."""
    lock(*TOOLS, tool("nvcc", B))
    lock(tool("ptxas", B), machine="aarch64 cpython-399")
    assert check_tools(manifest, TOOLS[:2]) is True


def test_tools_of_the_host_are_only_recorded(manifest: Manifest) -> None:
    lock(*TOOLS)
    assert check_tools(manifest, (*TOOLS[:2], tool("ar", B, host=""), tool("objcopy", B, host=""))) is True


def test_without_a_lock_there_is_no_release(manifest: Manifest) -> None:
    said = refused(lambda: check_tools(manifest, TOOLS))
    assert said.startswith("kiln.lock: a release needs a lock")
    assert "run `doit lock`, and commit kiln.lock; `doit --unlocked release`" in said
    assert check_tools(manifest, TOOLS, allow_others=True) is False


def test_a_lock_of_another_machine_is_none(manifest: Manifest) -> None:
    lock(*TOOLS, machine="aarch64 cpython-312")
    lock(*TOOLS, machine="x86_64 cpython-399")
    said = refused(lambda: check_tools(manifest, TOOLS))
    assert said.startswith(f"kiln.lock:3:3: no compilers are locked for {this_machine()}")
    assert "actual: entries for aarch64 cpython-312, x86_64 cpython-399\n" in said
    assert "run `doit lock` here, which adds it and leaves the others" in said
    assert check_tools(manifest, TOOLS, allow_others=True) is False


def test_each_tool_that_differs_is_named(manifest: Manifest) -> None:
    lock(*TOOLS)
    here = (tool("triton", B, "3.8.0"), tool("ptxas", B, "12.9.86"), tool("cicc", B, ""))
    said = refused(lambda: check_tools(manifest, here))
    assert said.startswith(f"kiln.lock:4:5: 3 tools that make images are not what is locked for {this_machine()}\n")
    for words in (
        f"triton is 3.8.0, locked is 3.9.0\n      locked  3.9.0, sha256 {A}\n      here    3.8.0, sha256 {B}\n",
        f"ptxas has the same version, 12.9.86, and other bytes\n      locked  12.9.86, sha256 {A}\n",
        f"cicc is not locked\n      here    -, sha256 {B}\n",
        "remedy: install what is locked; or, if these tools are meant, run `doit lock`",
    ):
        assert words in said
    assert check_tools(manifest, here, allow_others=True) is False


def test_only_what_is_needed_is_looked_at(manifest: Manifest) -> None:
    lock(*TOOLS)
    said = refused(lambda: check_tools(manifest, (tool("ptxas", B, "12.9.86"),)))
    assert "1 tool that makes images is not what is locked" in said and "triton" not in said


def test_a_damaged_lock_is_told_whatever_is_asked_for(manifest: Manifest) -> None:
    Path(LOCK).write_text('{\n  "version": 1,\n}\n')
    for allowed in (False, True):
        said = refused(lambda: check_tools(manifest, TOOLS, allow_others=allowed), LockError)  # noqa: B023  # at once
        assert said.startswith("kiln.lock:3:1: the file is no JSON")


def test_real_tools_are_what_was_locked(manifest: Manifest) -> None:
    """Of the whole library, and of a part."""
    tools = identify(manifest, FileDigests({}))
    lock(*tools)
    assert check_tools(manifest, tools) is True
    part = narrowed(manifest, ["gfx942"], "--targets")
    assert check_tools(part, identify(part, FileDigests({}))) is True


def test_a_library_for_the_machine_at_hand_is_not_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kernels").mkdir()
    Path("kernels/scale.py").touch()
    for targets, place in (("native", "3:10"), ("[sm_80,\n  native]", "4:3")):
        Path("kernels.yaml").write_text(MANIFEST.replace("[sm_80, gfx942]", targets))
        found = load(Path("kernels.yaml"), find_native=lambda position: ("sm_86", "sm_80"))
        said = refused(lambda: check_manifest(found), ManifestError)  # noqa: B023  # at once
        assert said.startswith(f"kernels.yaml:{place}: `targets: native` cannot be released: it stands for the GPUs")
        assert f"remedy: write the targets out, as in `targets: [{', '.join(found.targets)}]`" in said


def test_targets_by_name_are_released(manifest: Manifest) -> None:
    check_manifest(replace(manifest, library_version="1.2.0"))


def test_a_library_without_a_version_is_not_released(manifest: Manifest) -> None:
    said = refused(lambda: check_manifest(manifest), ManifestError)
    assert said.startswith("kernels.yaml:1:1: a release is of a version, and kernels.yaml has none")
    assert "remedy: write `library_version: 0.1.0`" in said


@pytest.mark.parametrize(
    ("flag", "remedy"),
    [
        ("-lineinfo", "use `debug: true`, which keeps the paths of this machine out of images"),
        ("--generate-line-info", "use `debug: true`"),
        ("-G", "`debug: true` gives images a line table"),
        ("--device-debug", "`debug: true` gives images a line table"),
        ("-dc", "remove it: a kernel is compiled whole, and code that is linked later has symbols made of paths"),
        ("-rdc=true", "symbols made of paths"),
        ("--relocatable-device-code=true", "symbols made of paths"),
        ("--device-c", "symbols made of paths"),
    ],
)
def test_no_build_takes_flags_that_put_paths_into_images(tmp_path: Path, flag: str, remedy: str) -> None:
    text = cuda_project.MANIFEST + f"    flags:\n      - --use_fast_math\n      - {flag}\n"
    project = cuda_project.create(tmp_path / "cuda", manifest=text)
    with pytest.raises(ManifestError) as caught:
        read_manifest(project.folder / "kernels.yaml")
    print(caught.value)
    assert f"kernels.yaml:{len(text.splitlines())}:9: " in str(caught.value)
    assert flag in str(caught.value) and remedy in str(caught.value)


def test_an_image_with_a_path_of_the_machine_is_refused(tmp_path: Path) -> None:
    """As code can ask for by hand: the step `compile` fails, and a release needs all of them."""
    text = cuda_project.KERNEL.replace("x[i] *=", "x[i] += where[i % 8];\n        x[i] *=")
    kernel = f'__device__ char where[] = "/home/somebody/kernel.cu";\n{text}'
    cuda_project.create(tmp_path / "cuda", kernel).doit("compile").expect("/home/somebody/kernel.cu", code=1)


def test_line_tables_name_files_as_every_machine_does(tmp_path: Path) -> None:
    """`debug: true` is fit for a release: two folders make the same bytes."""
    images = []
    for name in ("one", "another folder"):
        project = Project.create(tmp_path / name, manifest=MANIFEST.replace("targets:", "debug: true\ntargets:"))
        project.doit("compile:scale_fp32_128").expect("2 built")
        images.append([path.read_bytes() for path in sorted((project.folder / "build/images").rglob("*.*o*"))])
        assert not any(os.fsencode(project.folder) in data or os.fsencode(sys.prefix) in data for data in images[-1])
    assert images[0] == images[1] and len(images[0]) >= 2
