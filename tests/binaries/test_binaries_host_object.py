"""Host objects as the real objcopy makes them, right and wrong."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from kiln.binaries.checks import Finding
from kiln.binaries.host_object import MACHINES, HostObject, check_host_object, read_host_object
from kiln.errors import ImageError

BLOB = bytes(range(256)) * 5
RIGHT = (
    "--rename-section",
    ".data=.rodata,alloc,load,readonly,data,contents",
    "--set-section-alignment",
    ".data=64",
    "--add-section",
    ".note.GNU-stack=/dev/null",
    "--set-section-flags",
    ".note.GNU-stack=contents,readonly",
    "--redefine-sym",
    "_binary_blob_start=k_data",
    "--redefine-sym",
    "_binary_blob_end=k_data_end",
    "--strip-symbol",
    "_binary_blob_size",
)


def objcopy(folder: Path, *options: str, data: bytes = BLOB) -> Path:
    (folder / "blob").write_bytes(data)
    command = ["objcopy", "-I", "binary", "-O", "elf64-x86-64", "-B", "i386:x86-64", *options, "blob", "blob.o"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "blob.o"


def check(obj: HostObject, *, data: bytes = BLOB, machine: int = 62) -> dict[str, Finding]:
    symbols = {"k_data": 0, "k_data_end": len(data)}
    sha256 = hashlib.sha256(data).hexdigest()
    findings = check_host_object(obj, symbols=symbols, sha256=sha256, machine=machine)
    return {finding.field: finding for finding in findings}


def test_the_right_call(tmp_path: Path) -> None:
    path = objcopy(tmp_path, *RIGHT)
    obj = read_host_object(path)
    assert obj == read_host_object(path.read_bytes())
    assert obj.data == BLOB
    assert (obj.machine, obj.section, obj.alignment, obj.stack_note) == (62, ".rodata", 64, "plain")
    assert (obj.alloc, obj.writable, obj.executable) == (True, False, False)
    assert {symbol.name: (symbol.value, symbol.section) for symbol in obj.symbols} == {
        "k_data": (0, ".rodata"),
        "k_data_end": (len(BLOB), ".rodata"),
    }
    assert check(obj) == {}


def test_plain_objcopy_is_found_wanting(tmp_path: Path) -> None:
    """Its defaults: writable data, no alignment, symbols from the path, and an executable stack for the program."""
    found = check(read_host_object(objcopy(tmp_path)))
    assert found.keys() == {"writable", "alignment", "symbols", "stack_note"}
    assert found["alignment"].actual == "1 bytes"
    assert "_binary_blob_start at .data+0" in found["symbols"].actual
    assert found["stack_note"].actual == "absent"


@pytest.mark.parametrize(
    ("old", "new", "field", "actual"),
    [
        (".note.GNU-stack=contents,readonly", ".note.GNU-stack=contents,readonly,code", "stack_note", "executable"),
        (
            ".data=.rodata,alloc,load,readonly,data,contents",
            ".data=.text,alloc,load,readonly,code,contents",
            "executable",
            "executable",
        ),
        (".data=64", ".data=32", "alignment", "32 bytes"),
        (
            "_binary_blob_start=k_data",
            "_binary_blob_start=other",
            "symbols",
            "k_data_end at .rodata+1280, other at .rodata+0",
        ),
        (
            "_binary_blob_size",
            "_binary_blob_end",
            "symbols",
            "_binary_blob_size at nowhere+1280, k_data at .rodata+0, k_data_end at .rodata+1280",
        ),
    ],
)
def test_each_fault_is_named(tmp_path: Path, old: str, new: str, field: str, actual: str) -> None:
    found = check(read_host_object(objcopy(tmp_path, *(new if option == old else option for option in RIGHT))))
    assert list(found) == [field]
    assert found[field].actual == actual


def test_other_bytes_than_the_image(tmp_path: Path) -> None:
    changed = bytes([BLOB[0] ^ 1]) + BLOB[1:]
    found = check(read_host_object(objcopy(tmp_path, *RIGHT, data=changed)))
    assert list(found) == ["data"]
    assert hashlib.sha256(BLOB).hexdigest() in found["data"].expected


def test_another_machine(tmp_path: Path) -> None:
    """The header of an object for the other host that Kiln packages for."""
    data = bytearray(objcopy(tmp_path, *RIGHT).read_bytes())
    data[18] = MACHINES["aarch64-linux-gnu"]
    obj = read_host_object(bytes(data))
    assert check(obj, machine=183) == {}
    found = check(obj, machine=MACHINES["x86_64-linux-gnu"])
    assert (found["machine"].expected, found["machine"].actual) == ("62", "183")


def test_every_cut_and_any_extra_byte_is_refused(tmp_path: Path) -> None:
    data = objcopy(tmp_path, *RIGHT).read_bytes()
    for size in range(len(data)):
        with pytest.raises(ImageError):
            read_host_object(data[:size])
    with pytest.raises(ImageError, match="bytes after the file's end"):
        read_host_object(data + b"\0")


def test_what_is_no_object(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="object file cannot be read") as caught:
        read_host_object(tmp_path / "missing.o")
    assert caught.value.where == str(tmp_path / "missing.o")
    with pytest.raises(ImageError, match="no ELF file"):
        read_host_object(b"!<arch>\n")
    with pytest.raises(ImageError, match="does not hold its data in one section"):
        read_host_object(
            objcopy(tmp_path, "--add-section", ".more=blob", "--set-section-flags", ".more=alloc,contents")
        )
