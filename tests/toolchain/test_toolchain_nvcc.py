"""nvcc is found where it is asked for, known by what its parts hold, and missed with a word on how to get it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kiln.digests import FileDigests
from kiln.errors import ToolchainError
from kiln.toolchain import nvcc as module
from kiln.toolchain.nvcc import find_nvcc
from project import Project

PARTS = ("nvcc", "nvcc.profile", "cicc", "libdevice", "ptxas", "cc", "cc1plus")


def toolkit(folder: Path) -> Path:
    """A folder laid out as a toolkit is, with a word for each part."""
    for name in (
        "bin/nvcc",
        "bin/nvcc.profile",
        "bin/ptxas",
        "nvvm/bin/cicc",
        "nvvm/libdevice/libdevice.10.bc",
        "include/cuda_runtime.h",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        path.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def nothing_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVCC", "CUDA_HOME", "NVCC_CCBIN"):
        monkeypatch.delenv(name, raising=False)


def test_the_one_that_is_installed_has_all_parts() -> None:
    found = find_nvcc()
    assert found.nvcc.name == "nvcc" and found.nvcc.is_absolute()
    assert tuple(found.parts) == PARTS
    assert all(path.is_file() for path in found.parts.values())
    assert (found.headers / "cuda_fp16.h").is_file()
    assert any((folder / "stddef.h").is_file() for folder in found.system_headers)
    assert not any(folder.is_relative_to("/usr/local/include") for folder in found.system_headers)


def test_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, home, wheel, path = (toolkit(tmp_path / name) for name in ("asked", "home", "site/nvidia/cu13", "path"))
    monkeypatch.setenv("NVCC", str(asked / "bin/nvcc"))
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setattr(module, "own_search_path", lambda: [str(tmp_path / "empty"), str(tmp_path / "site")])
    monkeypatch.setenv("PATH", f"{path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_nvcc().toolkit == asked
    monkeypatch.delenv("NVCC")
    assert find_nvcc().toolkit == home
    monkeypatch.delenv("CUDA_HOME")
    assert find_nvcc().toolkit == wheel
    monkeypatch.setattr(module, "own_search_path", list)
    assert find_nvcc().toolkit == path


def test_a_link_to_nvcc_leads_to_its_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(toolkit(tmp_path / "cuda") / "bin/nvcc")
    monkeypatch.setenv("NVCC", str(tmp_path / "link"))
    assert find_nvcc().toolkit == tmp_path / "cuda"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, ["nvcc is missing", "PATH/OF/KILN[cuda]", "CUDA_HOME"]),
        ({"NVCC": "/no/nvcc"}, ["NVCC is '/no/nvcc'", "no program /no/nvcc", "unset NVCC"]),
        ({"CUDA_HOME": "/no"}, ["CUDA_HOME is '/no'", "no program /no/bin/nvcc", "unset CUDA_HOME"]),
        ({"NVCC_CCBIN": "no-gcc"}, ["no-gcc is missing", "g++"]),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], words: list[str]
) -> None:
    (tmp_path / "gcc").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module, "own_search_path", list)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ToolchainError) as caught:
        find_nvcc()
    print(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_script_that_calls_nvcc_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin/nvcc"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexec /usr/local/cuda/bin/nvcc\n")
    script.chmod(0o755)
    monkeypatch.setenv("NVCC", str(script))
    with pytest.raises(ToolchainError) as caught:
        _ = find_nvcc().parts
    assert "lacks nvcc.profile" in str(caught.value)
    assert "CUDA_HOME" in str(caught.value)


def test_a_gcc_without_cpp_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's gcc is without g++: it names the part by its bare name, and no such program is there."""
    cc = tmp_path / "gcc"
    cc.write_text("#!/bin/sh\necho cc1plus\n")
    cc.chmod(0o755)
    monkeypatch.setenv("NVCC_CCBIN", str(cc))
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda")))
    with pytest.raises(ToolchainError) as caught:
        _ = find_nvcc().parts
    assert "cannot read C++" in str(caught.value)
    assert "apt-get install g++" in str(caught.value)


@pytest.mark.parametrize("part", PARTS[:5])
def test_each_part_is_known_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "cuda")))
    found = find_nvcc()
    before = found.components(FileDigests({}))
    path = found.parts[part]
    data, stat = path.read_bytes(), path.stat()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = found.components(FileDigests({}))
    assert {name for name in PARTS if before[name] != after[name]} == {part}


def test_only_kernels_in_cuda_look_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of Triton kernels alone asks for no nvcc."""
    project = Project.create(tmp_path / "scratch")
    program = (
        "import sys, kiln.toolchain.nvcc as module\n"
        "module.find_nvcc = lambda: sys.exit('looked for nvcc')\n"
        "import kiln.cuda_images; kiln.cuda_images.find_nvcc = module.find_nvcc\n"
        "from doit.__main__ import main\n"
        "sys.argv = ['doit', 'compile:scale_fp32_128']\n"
        "sys.exit(main())\n"
    )
    project.run_python("-c", program).expect("2 built, 0 up to date, 0 failed")
