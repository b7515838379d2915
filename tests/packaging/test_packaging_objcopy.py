"""Host objects: read-only, aligned, under the right symbols, and held against the image after objcopy has made them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from c_library import HOST, tool

from kiln.binaries.host_object import read_host_object
from kiln.errors import PackagingError
from kiln.packaging.objcopy import make_object
from kiln.packaging.record import Record
from kiln.toolchain.targets import Kind


def make(image: Path, staging: Path, kind: Kind = "cubin", objcopy: Path | None = None) -> Path:
    staging.mkdir(exist_ok=True)
    make_object(image, kind, "lib_v__sm_80", HOST, objcopy or tool("objcopy"), staging, "v.o")
    return staging / "v.o"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "an image's name.cubin"
    path.write_bytes(bytes(range(256)) * 5 + b"odd")
    return path


def fake(folder: Path, script: str) -> Path:
    """An objcopy that does something else, and ends well."""
    path = folder / "objcopy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def without(*dropped: str) -> str:
    """A script that calls objcopy without an option and its value."""
    tests = " || ".join(f'[ "$1" = "{option}" ]' for option in dropped)
    return f"""n=$#
while [ $n -gt 0 ]; do
    if {tests}; then shift 2; n=$((n - 2)); else set -- "$@" "$1"; shift; n=$((n - 1)); fi
done
exec objcopy "$@\""""


def test_real_images(records: list[Record], tmp_path: Path) -> None:
    """Of every kind; a PTX ends with the one NUL that its size leaves out."""
    for record in records:
        made = read_host_object(make(record.path, tmp_path / "staging", record.facts.kind))
        end = b"\0" if record.facts.kind == "ptx" else b""
        (holder,) = made.sections
        assert holder.data == record.path.read_bytes() + end
        assert (holder.writable, holder.executable, holder.alignment) == (False, False, 64)
        assert made.stack_note == "plain"
        assert made.properties == {0xC0000002: 0b11}
        assert {symbol.name: symbol.value for symbol in made.symbols} == {
            "lib_v__sm_80_data": 0,
            f"lib_v__sm_80_data_{record.facts.sha256[:16]}": 0,
            "lib_v__sm_80_data_end": record.facts.size + len(end),
        }
        assert [path.name for path in (tmp_path / "staging").iterdir()] == ["v.o"]


def test_same_image_same_object(image: Path, tmp_path: Path) -> None:
    """Names, folders and times of the files stay out of it."""
    moved = tmp_path / "größer"
    moved.write_bytes(image.read_bytes())
    os.utime(moved, (1, 1))
    assert make(image, tmp_path / "one").read_bytes() == make(moved, tmp_path / "two words").read_bytes()


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("exit 0", "the object file cannot be read"),
        (": > v.o", "this is no ELF file"),
        ('objcopy "$@" && truncate -s -64 v.o', "the file is cut short"),
        (without("--set-section-alignment"), "the data is not aligned in .rodata"),
        (
            'objcopy "$@" && objcopy --set-section-flags .rodata=alloc,load,data,contents v.o',
            "the data can be overwritten",
        ),
        (without("--add-section", "--set-section-flags"), "executable"),
        (without("--strip-symbol"), "the object shows other symbols"),
        ('objcopy "$@" && objcopy -R .note.gnu.property v.o', "would take control-flow protection"),
        ('printf x >> blob && objcopy "$@"', "the data is not the image's"),
        ('tr a b < blob > other && mv other blob && objcopy "$@"', "the data is not the image's"),
    ],
    ids=[
        "nothing",
        "empty",
        "cut short",
        "unaligned",
        "writable",
        "no notes",
        "symbols",
        "unprotected",
        "longer",
        "changed",
    ],
)
def test_believes_no_exit_code(image: Path, tmp_path: Path, script: str, what: str) -> None:
    """Each wrong object is refused by name, and nothing is left behind."""
    with pytest.raises(PackagingError) as caught:
        make(image, tmp_path / "staging", objcopy=fake(tmp_path, script))
    assert what in caught.value.what
    assert caught.value.where == str(image)
    assert list((tmp_path / "staging").iterdir()) == []


def test_an_empty_image(tmp_path: Path) -> None:
    empty = tmp_path / "empty.cubin"
    empty.touch()
    with pytest.raises(PackagingError, match="the image is empty"):
        make(empty, tmp_path / "staging")


def test_tells_what_objcopy_says(image: Path, tmp_path: Path) -> None:
    script = "echo 'objcopy: no space left on device' >&2; exit 1"
    with pytest.raises(PackagingError) as caught:
        make(image, tmp_path / "staging", objcopy=fake(tmp_path, script))
    assert str(caught.value) == (
        f"{tmp_path}/objcopy: objcopy could not make a host object of an image's name.cubin for x86_64-linux-gnu: "
        "exit code 1\n"
        "  actual: objcopy: no space left on device"
    )


def test_an_objcopy_for_another_host(image: Path, tmp_path: Path) -> None:
    """This machine's own knows nothing of the other: the message names both."""
    with pytest.raises(PackagingError) as caught:
        make_object(image, "cubin", "lib_v__sm_80", "aarch64-linux-gnu", tool("objcopy"), tmp_path, "v.o")
    assert str(caught.value) == (
        f"{tool('objcopy')}: objcopy could not make a host object of an image's name.cubin for aarch64-linux-gnu: "
        f"exit code 1\n  actual: {tool('objcopy')}: architecture aarch64 unknown\n  remedy: point OBJCOPY to a GNU "
        "objcopy for aarch64-linux-gnu, or unset OBJCOPY; or correct `host` in kernels.yaml"
    )


def test_a_tool_that_prints_much_and_dies(image: Path, tmp_path: Path) -> None:
    """The message stays short and names the signal."""
    script = "seq 1000 >&2; kill -SEGV $$"
    with pytest.raises(PackagingError) as caught:
        make(image, tmp_path / "staging", objcopy=fake(tmp_path, script))
    assert "signal 11" in str(caught.value)
    assert str(caught.value).endswith("... and 980 more lines")


def test_a_missing_objcopy(image: Path, tmp_path: Path) -> None:
    with pytest.raises(PackagingError) as caught:
        make(image, tmp_path / "staging", objcopy=tmp_path / "no-objcopy")
    assert "it cannot be run" in str(caught.value)
    assert "No such file or directory" in str(caught.value)


def test_the_environment_stays_out(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool sees PATH, the C locale and its own folder for temporary files, and nothing else of the user's."""
    monkeypatch.setenv("KILN_TEST_SECRET", "x")
    script = f"env > '{tmp_path}/seen'; exec objcopy \"$@\""
    make(image, tmp_path / "staging", objcopy=fake(tmp_path, script))
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen.keys() - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "LC_ALL", "TMPDIR"}
    assert seen["LC_ALL"] == "C"


def test_a_linked_program_keeps_the_alignment(image: Path, tmp_path: Path) -> None:
    """Behind one odd byte of somebody else's read-only data."""
    made = make(image, tmp_path / "staging")
    source = """#include <stdint.h>
extern const unsigned char lib_v__sm_80_data[];
const char odd[] = {1};
int main(void) { return (uintptr_t)lib_v__sm_80_data % 64 != 0 || odd[0] != 1; }
"""
    command = ["gcc", "-x", "c", "-", "-x", "none", str(made), "-o", str(tmp_path / "p")]
    subprocess.run(command, input=source, text=True, check=True)
    subprocess.run([tmp_path / "p"], check=True)
