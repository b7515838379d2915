"""Host objects as the real objcopy makes them, right and wrong."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from kiln.binaries.checks import Finding
from kiln.binaries.host_object import HostObject, check_compiled_object, check_image_object, read_host_object
from kiln.errors import ImageError
from kiln.toolchain.hosts import HOSTS

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
    findings = check_image_object(obj, symbols=symbols, sha256=sha256, machine=machine)
    return {finding.field: finding for finding in findings}


def test_the_right_call(tmp_path: Path) -> None:
    path = objcopy(tmp_path, *RIGHT)
    obj = read_host_object(path)
    assert obj == read_host_object(path.read_bytes())
    (holder,) = obj.sections
    assert holder.data == BLOB
    assert (obj.machine, holder.name, holder.alignment, obj.stack_note) == (62, ".rodata", 64, "plain")
    assert (holder.writable, holder.executable) == (False, False)
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
    data[18] = HOSTS["aarch64-linux-gnu"].machine
    obj = read_host_object(bytes(data))
    assert check(obj, machine=183) == {}
    found = check(obj, machine=HOSTS["x86_64-linux-gnu"].machine)
    assert (found["machine"].expected, found["machine"].actual) == ("ELF machine 62", "ELF machine 183")


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
    subprocess.run(
        ["gcc", "-x", "c", "-", "-o", "program"], check=True, cwd=tmp_path, input=b"int main(void) {return 0;}"
    )
    with pytest.raises(ImageError, match="this ELF file is no object file"):
        read_host_object(tmp_path / "program")


@pytest.mark.parametrize(
    ("flags", "actual"), [(".more=alloc,contents", "2 .rodata .more"), (".rodata=contents,readonly", "0")]
)
def test_data_in_two_sections_or_in_none_that_is_loaded(tmp_path: Path, flags: str, actual: str) -> None:
    obj = read_host_object(objcopy(tmp_path, *RIGHT))
    assert check(obj) == {}
    command = ["objcopy", "--add-section", ".more=blob", "--set-section-flags", flags, "blob.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    found = check(read_host_object(tmp_path / "blob.o"))
    assert list(found) == ["sections"]
    assert found["sections"].actual == actual


SOURCE = """
int defined = 1;
static int internal = 1;
extern int elsewhere;
int *function(void) { return internal ? &elsewhere : &defined; }
"""


def compiled(folder: Path, *flags: str) -> HostObject:
    command = ["gcc", "-fPIC", *flags, "-x", "c", "-", "-c", "-o", "compiled.o"]
    subprocess.run(command, check=True, cwd=folder, input=SOURCE.encode())
    return read_host_object(folder / "compiled.o")


@pytest.mark.parametrize("name", ["defined", "function"])
def test_a_compiled_object(tmp_path: Path, name: str) -> None:
    """Data in several sections and any symbols are right in it."""
    assert check_compiled_object(compiled(tmp_path), defines=name, machine=62) == []


@pytest.mark.parametrize("name", ["internal", "elsewhere", "gone"])
def test_a_symbol_that_no_other_object_can_use(tmp_path: Path, name: str) -> None:
    (finding,) = check_compiled_object(compiled(tmp_path), defines=name, machine=62)
    assert (finding.field, finding.expected, finding.actual) == ("symbols", name, "defined, function")


def test_a_compiled_object_with_every_fault(tmp_path: Path) -> None:
    """Intermediate code of the compiler in place of symbols, no note, another machine."""
    obj = compiled(tmp_path, "-flto", "-fno-fat-lto-objects")
    subprocess.run(["objcopy", "--remove-section", ".note.GNU-stack", "compiled.o"], check=True, cwd=tmp_path)
    found = {
        finding.field: finding
        for finding in check_compiled_object(read_host_object(tmp_path / "compiled.o"), defines="defined", machine=183)
    }
    assert found.keys() == {"machine", "stack_note", "symbols"}
    assert found["stack_note"].actual == "absent"
    assert "-flto" in found["symbols"].remedy
    assert [finding.field for finding in check_compiled_object(obj, defines="defined", machine=62)] == ["symbols"]
