"""Every tool that a manifest needs is named, with the version that it gives itself and the digest of its bytes."""

from __future__ import annotations

import hashlib
import pickle
import re
from pathlib import Path

import pytest

import cuda_project
from kiln.digests import FileDigests
from kiln.errors import ToolchainError
from kiln.library import read_manifest
from kiln.toolchain import identity
from kiln.toolchain.identity import Tool, identify, version_in
from kiln.toolchain.nvcc import find_nvcc
from kiln.toolchain.tools import Triton, find_triton
from optional_tools import require
from other_tritons import copied_triton
from project import MANIFEST, REPOSITORY, Project

ROCM = ["asanrtl.bc", "libtriton_amd_codegen.so", "ockl.bc", "ocml.bc"]
NVCC = ["nvcc", "nvcc.profile", "cicc", "nvcc libdevice", "nvcc ptxas"]
HOST = ["objcopy", "ar", "cc", "cc1", "as"]


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVCC", "CUDA_HOME", "NVCC_CCBIN", "OBJCOPY", "AR", "CC"):
        monkeypatch.delenv(name, raising=False)


def tools_of(folder: Path) -> dict[str, Tool]:
    """The tools of the project in a folder, in order."""
    return {tool.name: tool for tool in identify(read_manifest(folder / "kernels.yaml"), FileDigests({}))}


def scratch(folder: Path, manifest: str = MANIFEST) -> Path:
    return Project.create(folder, manifest=manifest).folder


def program(path: Path, script: str) -> str:
    """A program that runs the script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_default_library_is_made_by_all_of_them() -> None:
    tools = tools_of(REPOSITORY)
    device = [tool.name for tool in tools.values() if tool.level == "device"]
    assert device == [
        "triton", "triton nvidia", "triton amd", "ptxas", "libdevice", "ptxas-blackwell", *ROCM, *NVCC,
    ]  # fmt: skip
    assert [name for name in tools if name not in device] == [*HOST, "nvcc cc", "cc1plus"]
    triton, nvcc = find_triton(), find_nvcc()
    for name, path in {
        "ptxas": triton.folder / "backends/nvidia/bin/ptxas",
        "ptxas-blackwell": triton.folder / "backends/nvidia/bin/ptxas-blackwell",
        "libdevice": triton.folder / "backends/nvidia/lib/libdevice.10.bc",
        "ocml.bc": triton.folder / "backends/amd/lib/ocml.bc",
        "nvcc": nvcc.nvcc,
        "cicc": nvcc.parts["cicc"],
        "nvcc ptxas": nvcc.parts["ptxas"],
        "nvcc libdevice": nvcc.parts["libdevice"],
        "cc1plus": nvcc.parts["cc1plus"],
    }.items():
        assert tools[name].sha256 == hashlib.sha256(path.read_bytes()).hexdigest(), name
    assert tools["triton"].version == tools["triton amd"].version == triton.version
    for name in ("ptxas", "ptxas-blackwell", "nvcc", "nvcc ptxas"):
        assert re.fullmatch(r"\d+\.\d+\.\d+", tools[name].version), name
    assert tools["ptxas"].version != tools["ptxas-blackwell"].version
    for name in ("objcopy", "ar", "as"):
        assert re.match(r"GNU \w+ (\(.*\)|version) \d", tools[name].version), name
    assert re.search(r"\d+\.\d+", tools["cc"].version)
    assert {name for name, tool in tools.items() if not tool.version} == {
        "libdevice", "nvcc libdevice", "nvcc.profile", "cicc", "cc1", "cc1plus", *ROCM,
    }  # fmt: skip
    assert tools["ptxas"].used_for == "kernels in Triton for sm_80"
    assert tools["libdevice"].used_for == "kernels in Triton for sm_80, sm_90a, compute_80"
    assert tools["nvcc"].used_for == "kernels in CUDA C++ for sm_80, sm_90a, compute_80"
    assert pickle.loads(pickle.dumps(tuple(tools.values()))) == tuple(tools.values())


def test_no_tool_tells_of_the_machine() -> None:
    """What stands in a release of the tools is the same wherever they lie."""
    said = " ".join(f"{tool.name} {tool.version} {tool.used_for}" for tool in tools_of(REPOSITORY).values())
    assert "/" not in said


def test_a_library_in_triton_needs_no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scratch(tmp_path / "scratch")
    monkeypatch.setenv("NVCC", "/no/nvcc")
    tools = tools_of(folder)
    assert list(tools) == ["triton", "triton nvidia", "triton amd", "ptxas", "libdevice", *ROCM, *HOST]


def test_a_library_needs_what_its_targets_need(tmp_path: Path) -> None:
    amd = tools_of(scratch(tmp_path / "amd", MANIFEST.replace("[sm_80, gfx942]", "[gfx942]")))
    assert list(amd) == ["triton", "triton amd", *ROCM, *HOST]
    ptx = tools_of(scratch(tmp_path / "ptx", MANIFEST.replace("[sm_80, gfx942]", "[compute_80]")))
    assert list(ptx) == ["triton", "triton nvidia", "libdevice", *HOST]
    hopper = tools_of(scratch(tmp_path / "hopper", MANIFEST.replace("[sm_80, gfx942]", "[sm_90a]")))
    assert list(hopper) == ["triton", "triton nvidia", "ptxas-blackwell", "libdevice", *HOST]


def test_a_library_in_cuda_needs_no_triton(tmp_path: Path) -> None:
    tools = tools_of(cuda_project.create(tmp_path / "cuda").folder)
    assert list(tools) == [*NVCC, *HOST, "nvcc cc", "cc1plus"]


def test_fat_binaries_need_the_program_that_makes_them(tmp_path: Path) -> None:
    bundled = MANIFEST.replace("library: scratch", "library: scratch\nbundle: fatbin")
    tools = tools_of(scratch(tmp_path / "scratch", bundled))
    assert tools["fatbinary"].level == "device" and re.fullmatch(r"\d+\.\d+\.\d+", tools["fatbinary"].version)


def test_another_host_has_tools_of_its_own(tmp_path: Path) -> None:
    require("aarch64-linux-gnu-gcc", package="gcc-aarch64-linux-gnu", claim="aarch64")
    folder = cuda_project.create(
        tmp_path / "cuda", manifest=cuda_project.MANIFEST.replace("targets:", "host: aarch64-linux-gnu\ntargets:")
    ).folder
    ours, theirs = tools_of(cuda_project.create(tmp_path / "native").folder), tools_of(folder)
    assert list(ours) == list(theirs)
    assert "aarch64" in theirs["cc"].version and "aarch64" not in theirs["nvcc cc"].version
    assert {name for name in ours if ours[name].sha256 != theirs[name].sha256} == set(HOST)


def test_a_swapped_ptxas_that_gives_the_same_version_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = scratch(tmp_path / "scratch"), "backends/nvidia/bin/ptxas"
    before = tools_of(folder)
    made = Triton(folder=copied_triton(tmp_path, name))
    with (made.folder / name).open("ab") as file:
        file.write(b"\0")
    monkeypatch.setattr(identity, "find_triton", lambda: made)
    after = tools_of(folder)
    assert after["ptxas"].version == before["ptxas"].version
    assert {name for name in before if before[name] != after[name]} == {"ptxas"}


def test_tools_are_asked_in_an_environment_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scratch(tmp_path / "scratch")
    monkeypatch.setenv("AR", program(tmp_path / "ar", 'echo\necho "  ar in $LC_ALL, ${HOME-no home}, $# $1 "'))
    assert tools_of(folder)["ar"].version == "ar in C, no home, 1 --version"


def test_a_tool_that_knows_no_such_question_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scratch(tmp_path / "scratch")
    monkeypatch.setenv("AR", program(tmp_path / "ar", "echo usage: ar\nexit 1"))
    assert tools_of(folder)["ar"].version == ""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/no/such/shell\n", "ar does not tell its version: No such file or directory"),
        ("no program", "ar does not tell its version: Exec format error"),
        ("#!/bin/sh\nexec sleep 60\n", "ar does not tell its version: it does not end within 0.5 s"),
    ],
)
def test_a_tool_that_does_not_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    folder = scratch(tmp_path / "scratch")
    (tmp_path / "ar").write_text(script)
    (tmp_path / "ar").chmod(0o755)
    monkeypatch.setenv("AR", str(tmp_path / "ar"))
    monkeypatch.setattr(identity, "TIME_LIMIT", 0.5 if "sleep" in script else 60)
    with pytest.raises(ToolchainError) as caught:
        tools_of(folder)
    assert words in str(caught.value) and str(tmp_path / "ar") in str(caught.value)


def test_a_part_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = scratch(tmp_path / "scratch")
    made = Triton(folder=copied_triton(tmp_path, "backends/nvidia/bin/ptxas"))
    (made.folder / "backends/nvidia/bin/ptxas").unlink()
    monkeypatch.setattr(identity, "find_triton", lambda: made)
    with pytest.raises(ToolchainError, match=r"bin/ptxas: .*cannot be read: No such file"):
        tools_of(folder)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("ptxas: NVIDIA (R)\nCuda compilation tools, release 12.9, V12.9.86\nBuild cuda_12.9.r12.9/1\n", "12.9.86"),
        ("GNU ar (GNU Binutils for Debian) 2.40\nCopyright (C) 2023\n", "GNU ar (GNU Binutils for Debian) 2.40"),
        ("\n  clang version 19.1.7 \nTarget: x\n", "clang version 19.1.7"),
        ("a\x1b[31mb\x07\n", "a[31mb"),
        ("x" * 300, "x" * 200),
        ("", ""),
    ],
)
def test_a_version_is_one_line(printed: str, version: str) -> None:
    assert version_in(printed) == version
