""".ci/run and the tests that need programs which many machines lack: what is there is promised, what is not is said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import optional_tools
from project import REPOSITORY

CROSS = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "aarch64-linux-gnu-objcopy", "qemu-aarch64")
LLVM = ("llvm-objdump-22", "llvm-readelf-22")
WORDS = ["test", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
"""of the bootstrap"""


def program(folder: Path, name: str, script: str = "") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clone with a bootstrap that says how it was called, and a PATH in bin/ with what .ci/run calls."""
    for name in (".ci", "tools", "bin"):
        (tmp_path / name).mkdir()
    shutil.copy(REPOSITORY / ".ci" / "run", tmp_path / ".ci")
    show = 'import os, sys\nprint(sys.argv[1:], os.environ.get("KILN_TESTS_WITH"))\nsys.exit(7)\n'
    (tmp_path / "tools" / "bootstrap.py").write_text(show)
    for name in ("bash", "dirname", "python3", "touch"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    program(tmp_path / "bin", "id", "echo 1000")
    return tmp_path


def ci(tree: Path, **environment: str) -> tuple[list[str], str]:
    """The lines that it prints, and what it says on the side; its exit code is that of the tests."""
    done = subprocess.run(
        ["bash", tree / ".ci" / "run"], env={"PATH": str(tree / "bin"), **environment}, capture_output=True, text=True
    )
    assert done.returncode == 7, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_what_is_there_is_promised(tree: Path) -> None:
    for name in CROSS:
        program(tree / "bin", name)
    assert ci(tree)[0] == [f"{WORDS} aarch64"]
    for name in ("make", *LLVM):
        program(tree / "bin", name)
    assert ci(tree) == ([f"{WORDS} aarch64,make,llvm"], "")


@pytest.mark.parametrize("gone", CROSS)
def test_half_of_it_is_no_promise(tree: Path, gone: str) -> None:
    for name in {*CROSS, *LLVM} - {gone}:
        program(tree / "bin", name)
    printed, said = ci(tree)
    assert printed == [f"{WORDS} llvm"]
    assert "the tests for aarch64 are skipped" in said and "qemu-user" in said


def test_a_callers_promise_stays(tree: Path) -> None:
    for name in LLVM:
        program(tree / "bin", name)
    assert ci(tree, KILN_TESTS_WITH="aarch64")[0] == [f"{WORDS} aarch64,llvm"]


def test_root_gets_what_is_missing(tree: Path) -> None:
    """The lists are read once, and the last line stays that of the tests."""
    program(tree / "bin", "id", "echo 0")
    (tree / "bin" / "chmod").symlink_to(str(shutil.which("chmod")))
    install = "".join(f"touch '{tree}/bin/{name}'; chmod +x '{tree}/bin/{name}'\n" for name in LLVM)
    script = f'echo "apt-get $@"\ncase "$*" in *" llvm-22"*)\n{install};; *" update"*) ;; *) exit 100 ;; esac'
    program(tree / "bin", "apt-get", script)
    printed, said = ci(tree)
    assert printed == [f"{WORDS} llvm"]
    assert said.count(" update\n") == 1
    assert "install -y --no-install-recommends gcc-aarch64-linux-gnu g++-aarch64-linux-gnu" in said
    assert "the tests for aarch64 are skipped" in said and "the tests for llvm" not in said


def test_no_network_fails_no_run(tree: Path) -> None:
    program(tree / "bin", "id", "echo 0")
    program(tree / "bin", "apt-get", "exit 100")
    assert ci(tree)[0] == [f"{WORDS} None"]


def test_a_missing_tool_skips_or_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It fails where the machine promised it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(optional_tools.PROMISES, "llvm")
    with pytest.raises(pytest.skip.Exception, match="qemu-aarch64 is missing: install qemu-user"):
        optional_tools.require("qemu-aarch64", package="qemu-user", claim="aarch64")
    monkeypatch.setenv(optional_tools.PROMISES, "llvm,aarch64")
    with pytest.raises(pytest.fail.Exception, match="promises aarch64, but qemu-aarch64 is missing"):
        optional_tools.require("qemu-aarch64", package="qemu-user", claim="aarch64")
    program(tmp_path, "qemu-aarch64")
    assert optional_tools.require("qemu-aarch64", package="qemu-user", claim="aarch64") == tmp_path / "qemu-aarch64"
