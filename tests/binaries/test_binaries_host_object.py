"""Host objects as the real objcopy makes them, right and wrong."""

from __future__ import annotations

import hashlib
import struct
import subprocess
from pathlib import Path

import pytest

from kiln.binaries.checks import Finding
from kiln.binaries.host_object import (
    HostObject,
    check_compiled_object,
    check_image_object,
    property_note,
    read_host_object,
)
from kiln.errors import ImageError
from kiln.toolchain.hosts import HOSTS

X86 = HOSTS["x86_64-linux-gnu"]
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
    "--add-section",
    ".note.gnu.property=note",
    "--set-section-flags",
    ".note.gnu.property=alloc,readonly,data,contents",
    "--redefine-sym",
    "_binary_blob_start=k_data",
    "--redefine-sym",
    "_binary_blob_end=k_data_end",
    "--strip-symbol",
    "_binary_blob_size",
)


def objcopy(folder: Path, *options: str, data: bytes = BLOB) -> Path:
    (folder / "blob").write_bytes(data)
    (folder / "note").write_bytes(property_note(X86))
    command = ["objcopy", "-I", "binary", "-O", "elf64-x86-64", "-B", "i386:x86-64", *options, "blob", "blob.o"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "blob.o"


def check(obj: HostObject, *, data: bytes = BLOB, host: str = "x86_64-linux-gnu") -> dict[str, Finding]:
    symbols = {"k_data": 0, "k_data_end": len(data)}
    sha256 = hashlib.sha256(data).hexdigest()
    findings = check_image_object(obj, symbols=symbols, sha256=sha256, host=HOSTS[host])
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
    assert found.keys() == {"writable", "alignment", "symbols", "stack_note", "properties"}
    assert found["alignment"].actual == "1 bytes"
    assert "_binary_blob_start at .data+0" in found["symbols"].actual
    assert found["stack_note"].actual == "absent"
    assert found["properties"].actual == "none of them"


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
    data = objcopy(tmp_path, *RIGHT).read_bytes()
    header = bytearray(data)
    header[18] = HOSTS["aarch64-linux-gnu"].machine
    (machine,) = check(read_host_object(bytes(header))).values()
    assert machine.expected == "x86_64-linux-gnu (ELF machine 62)"
    assert machine.actual == "aarch64-linux-gnu (ELF machine 183)"
    whole = bytes(header).replace(property_note(X86), property_note(HOSTS["aarch64-linux-gnu"]))
    assert check(read_host_object(whole), host="aarch64-linux-gnu") == {}
    header[18] = 243
    (machine,) = check(read_host_object(bytes(header))).values()
    assert machine.actual == "ELF machine 243"


def test_a_property_among_others(tmp_path: Path) -> None:
    """A note may hold several, of any size, and one of another owner may come before; a missing bit counts."""

    def bits(kind: int, size: int, value: bytes) -> bytes:
        return struct.pack("<II", kind, size) + value

    def note(owner: bytes, *properties: bytes) -> bytes:
        content = b"".join(properties)
        return struct.pack("<III4s", 4, len(content), 5, owner) + content

    path = objcopy(tmp_path, *RIGHT)
    for last, found in ((b"\3\0\0\0", {}), (b"\1\0\0\0", {"properties"})):
        own = bits(0xC0000002, 4, last + bytes(4))
        content = note(b"X\0\0\0", bytes(8)) + note(b"GNU\0", bits(1, 8, bytes(8)), bits(3, 0, b""), own)
        (tmp_path / "note").write_bytes(content)
        update = ["objcopy", "--update-section", ".note.gnu.property=note", "blob.o"]
        subprocess.run(update, check=True, cwd=tmp_path)
        obj = read_host_object(path)
        assert obj.properties == {0xC0000002: last[0]}
        assert check(obj).keys() == set(found)
    assert check(obj)["properties"].expected == "GNU property 0xc0000002 with the bits 0x3"
    assert check(obj)["properties"].actual == "the bits 0x1"


@pytest.mark.parametrize("size", [1, 12, 20, 28, 31])
def test_a_note_that_is_cut_short(tmp_path: Path, size: int) -> None:
    path = objcopy(tmp_path, *RIGHT)
    (tmp_path / "note").write_bytes(property_note(X86)[:size])
    subprocess.run(["objcopy", "--update-section", ".note.gnu.property=note", path], check=True, cwd=tmp_path)
    with pytest.raises(ImageError):
        read_host_object(path)


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
    command = ["gcc", "-fPIC", X86.protection_flag, *flags, "-x", "c", "-", "-c", "-o", "compiled.o"]
    subprocess.run(command, check=True, cwd=folder, input=SOURCE.encode())
    return read_host_object(folder / "compiled.o")


@pytest.mark.parametrize("name", ["defined", "function"])
def test_a_compiled_object(tmp_path: Path, name: str) -> None:
    """Data in several sections and any symbols are right in it."""
    assert check_compiled_object(compiled(tmp_path), defines=name, host=X86) == []


@pytest.mark.parametrize("name", ["internal", "elsewhere", "gone"])
def test_a_symbol_that_no_other_object_can_use(tmp_path: Path, name: str) -> None:
    (finding,) = check_compiled_object(compiled(tmp_path), defines=name, host=X86)
    assert (finding.field, finding.expected, finding.actual) == ("symbols", name, "defined, function")


def test_a_compiled_object_with_every_fault(tmp_path: Path) -> None:
    """Intermediate code of the compiler in place of symbols, and no notes."""
    obj = compiled(tmp_path, "-flto", "-fno-fat-lto-objects")
    subprocess.run(["objcopy", "--remove-section", ".note.*", "compiled.o"], check=True, cwd=tmp_path)
    found = {
        finding.field: finding
        for finding in check_compiled_object(read_host_object(tmp_path / "compiled.o"), defines="defined", host=X86)
    }
    assert found.keys() == {"properties", "stack_note", "symbols"}
    assert found["stack_note"].actual == "absent"
    assert "-flto" in found["symbols"].remedy
    assert [finding.field for finding in check_compiled_object(obj, defines="defined", host=X86)] == ["symbols"]
