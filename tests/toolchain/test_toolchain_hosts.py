"""One table says what hosts are called, in kernels.yaml and by each tool."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kiln.binaries.host_object import check_compiled_object, read_host_object
from kiln.manifest import schema
from kiln.toolchain.hosts import HOSTS, Host, machine_name
from optional_tools import require


def test_kernels_yaml_takes_the_same_hosts() -> None:
    """The manifest may not import the table, and has the names alone."""
    assert tuple(HOSTS) == schema.HOSTS


@pytest.mark.parametrize("host", HOSTS.values(), ids=lambda host: host.triplet)
def test_the_tools_know_a_host_by_these_words(host: Host, tmp_path: Path) -> None:
    """objcopy and the C compiler make files of this machine number, and the flag gives data the property too."""

    def tool(name: str, package: str) -> str:
        if host.is_this_machine:
            return name
        return str(require(f"{host.triplet}-{name}", package=host.package(package), claim=host.triplet.split("-")[0]))

    (tmp_path / "blob").write_bytes(b"data")
    words = ["-I", "binary", "-O", host.bfd, "-B", host.architecture]
    subprocess.run([tool("objcopy", "binutils"), *words, "blob", "blob.o"], check=True, cwd=tmp_path)
    compile_ = [tool("gcc", "gcc"), host.protection_flag, "-x", "c", "-", "-c", "-o", "compiled.o"]
    subprocess.run(compile_, check=True, cwd=tmp_path, input=b"int defined = 1;")
    assert read_host_object(tmp_path / "blob.o").machine == host.machine
    assert check_compiled_object(read_host_object(tmp_path / "compiled.o"), defines="defined", host=host) == []


def test_names_for_people() -> None:
    assert machine_name(183) == "aarch64-linux-gnu (ELF machine 183)"
    assert machine_name(243) == "ELF machine 243"
    packages = {
        host.triplet: [host.package(name) for name in ("binutils", "gcc", "libc6-dev")] for host in HOSTS.values()
    }
    assert packages.pop(f"{os.uname().machine}-linux-gnu") == ["binutils", "gcc", "libc6-dev"]
    assert list(packages.values()) in (
        [["binutils-aarch64-linux-gnu", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]],
        [["binutils-x86-64-linux-gnu", "gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"]],
    )
