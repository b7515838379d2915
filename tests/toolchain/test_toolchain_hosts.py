"""One table says what hosts are called, in kernels.yaml and by each tool."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kiln.binaries.host_object import read_host_object
from kiln.manifest import schema
from kiln.toolchain.hosts import HOSTS


def test_kernels_yaml_takes_the_same_hosts() -> None:
    """The manifest may not import the table, and has the names alone."""
    assert tuple(HOSTS) == schema.HOSTS


def test_objcopy_knows_this_host_by_these_words(tmp_path: Path) -> None:
    """And makes files of this machine number of them, as the C compiler does."""
    (host,) = [host for host in HOSTS.values() if host.triplet.split("-")[0] == os.uname().machine]
    (tmp_path / "blob").write_bytes(b"data")
    objcopy = ["objcopy", "-I", "binary", "-O", host.bfd, "-B", host.architecture, "blob", "blob.o"]
    subprocess.run(objcopy, check=True, cwd=tmp_path)
    compile_ = ["gcc", "-x", "c", "-", "-c", "-o", "compiled.o"]
    subprocess.run(compile_, check=True, cwd=tmp_path, input=b"int defined = 1;")
    assert read_host_object(tmp_path / "blob.o").machine == host.machine
    assert read_host_object(tmp_path / "compiled.o").machine == host.machine
