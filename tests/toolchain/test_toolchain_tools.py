"""Tools are found without being imported or run, and known by what they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kiln.digests import FileDigests
from kiln.errors import ToolchainError
from kiln.toolchain.targets import TARGETS
from kiln.toolchain.tools import HostTools, Triton, find_triton


def triton_folder(folder: Path, version: str = "3.9.0") -> Triton:
    """A folder laid out as Triton's wheel is, with a word for each part."""
    for name in (
        "language/core.py",
        "compiler/compiler.py",
        "profiler/profile.py",
        "_C/libtriton.so",
        "backends/nvidia/compiler.py",
        "backends/nvidia/bin/ptxas",
        "backends/nvidia/bin/ptxas-blackwell",
        "backends/nvidia/lib/libdevice.10.bc",
        "backends/amd/compiler.py",
        "backends/amd/lib/ocml.bc",
        "backends/amd/lib/libtriton_amd_codegen.so",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "__init__.py").write_text(f"__version__ = '{version}'\n")
    return Triton(folder=folder)


def changed(triton: Triton, name: str) -> set[str]:
    """The targets, of four, that notice when one byte of a file changes and its time stamp does not."""
    targets = ("sm_80", "sm_90a", "compute_80", "gfx942")
    path = triton.folder / name
    before = {target: triton.components(TARGETS[target], FileDigests({})) for target in targets}
    stat = path.stat()
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = {target: triton.components(TARGETS[target], FileDigests({})) for target in targets}
    return {target for target in targets if before[target] != after[target]}


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("language/core.py", {"sm_80", "sm_90a", "compute_80", "gfx942"}),
        ("_C/libtriton.so", {"sm_80", "sm_90a", "compute_80", "gfx942"}),
        ("backends/nvidia/compiler.py", {"sm_80", "sm_90a", "compute_80"}),
        ("backends/nvidia/lib/libdevice.10.bc", {"sm_80", "sm_90a", "compute_80"}),
        ("backends/nvidia/bin/ptxas", {"sm_80"}),
        ("backends/nvidia/bin/ptxas-blackwell", {"sm_90a"}),
        ("backends/amd/lib/ocml.bc", {"gfx942"}),
        ("backends/amd/lib/libtriton_amd_codegen.so", {"gfx942"}),
        ("profiler/profile.py", set()),
    ],
)
def test_a_changed_part_concerns_the_targets_that_use_it(tmp_path: Path, name: str, targets: set[str]) -> None:
    assert changed(triton_folder(tmp_path / "triton"), name) == targets


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1+git0a1b", "3.8.0"])
def test_releases_before_3_9_assemble_for_hopper_with_the_other_ptxas(tmp_path: Path, version: str) -> None:
    triton = triton_folder(tmp_path / "triton", version)
    assert changed(triton, "backends/nvidia/bin/ptxas") == {"sm_80", "sm_90a"}
    assert changed(triton, "backends/nvidia/bin/ptxas-blackwell") == set()


def test_the_installed_triton_has_every_part() -> None:
    triton = find_triton()
    assert triton.version.startswith("3.9.")
    assert {"triton", "triton nvidia", "libdevice", "ptxas"} == set(
        triton.components(TARGETS["sm_80"], FileDigests({}))
    )
    assert {"ocml.bc", "ockl.bc"} < set(triton.components(TARGETS["gfx942"], FileDigests({})))


def test_finding_triton_does_not_import_it() -> None:
    program = (
        "import sys\nfrom kiln.toolchain.tools import find_triton\n"
        "find_triton().version\nprint('triton' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_host_tools_name_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("OBJCOPY", "AR", "CC"):
        monkeypatch.delenv(name, raising=False)
    native = f"{os.uname().machine}-linux-gnu"
    with pytest.raises(ToolchainError, match="apt-get install binutils"):
        _ = HostTools(host=native).ar
    with pytest.raises(ToolchainError, match="apt-get install gcc libc6-dev"):
        _ = HostTools(host=native).cc
    other = "aarch64-linux-gnu" if native.startswith("x86_64") else "x86_64-linux-gnu"
    with pytest.raises(ToolchainError) as caught:
        _ = HostTools(host=other).objcopy
    assert f"{other}-objcopy is missing" in str(caught.value)
    assert f"install binutils-{other.replace('_', '-')}" in str(caught.value)
    headers = {"aarch64-linux-gnu": "libc6-dev-arm64-cross", "x86_64-linux-gnu": "libc6-dev-amd64-cross"}[other]
    with pytest.raises(ToolchainError, match=f"install gcc-{other.replace('_', '-')} and {headers} "):
        _ = HostTools(host=other).cc
    monkeypatch.setenv("AR", "/gone/ar")
    with pytest.raises(ToolchainError, match="AR is '/gone/ar', and no program has that name"):
        _ = HostTools(host=other).ar
    monkeypatch.setenv("CC", "ccache gcc")
    with pytest.raises(ToolchainError, match="one program, without arguments"):
        _ = HostTools(host=native).cc


def test_host_tools_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "my-objcopy"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("OBJCOPY", str(mine))
    assert HostTools(host=f"{os.uname().machine}-linux-gnu").objcopy == mine


def test_the_c_compiler_is_known_by_its_parts() -> None:
    assert set(HostTools(host=f"{os.uname().machine}-linux-gnu").compiler_components(FileDigests({}))) == {
        "cc",
        "cc1",
        "as",
    }
