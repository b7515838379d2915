"""The line table of an image, held against what other readers make of it; and lines that the source does not have."""

from __future__ import annotations

import io
import random
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from binaries_images import Built
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.elf.elffile import ELFFile

from kiln.binaries.checks import check_lines
from kiln.binaries.lines import line_table
from kiln.errors import ImageError
from kiln.toolchain.tools import find_triton

NVDISASM = find_triton().folder / "backends/nvidia/bin/nvdisasm"


def by_pyelftools(data: bytes) -> set[tuple[str, int]]:
    dwarf: DWARFInfo = ELFFile(io.BytesIO(data)).get_dwarf_info()
    found = set()
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        header = program.header
        shift = 0 if header["version"] >= 5 else 1
        for entry in program.get_entries():
            if entry.state is not None and not entry.state.end_sequence:
                file = header["file_entry"][entry.state.file - shift]
                folder = header["include_directory"][file.dir_index - shift] if file.dir_index >= shift else b""
                found.add((b"/".join(filter(None, (folder, file.name))).decode(), entry.state.line))
    return found


@pytest.mark.parametrize("name", ["lines_sm_90a", "lines_sm_120a"])
def test_a_cubin_as_nvidia_disassembles_it(images: dict[str, Built], name: str, tmp_path: Path) -> None:
    path = tmp_path / "image.cubin"
    path.write_bytes(images[name].data)
    text = subprocess.run([NVDISASM, "-g", path], capture_output=True, text=True, check=True).stdout
    listed = {(file, int(line)) for file, line in re.findall(r'//## File "(.*)", line (\d+)', text)}
    assert len(listed) > 8
    assert line_table(images[name].data, "cubin") == listed


def test_an_hsaco_as_pyelftools_reads_it(images: dict[str, Built]) -> None:
    data = images["lines_gfx942"].data
    assert len(by_pyelftools(data)) > 8
    assert line_table(data, "hsaco") == by_pyelftools(data)


def test_a_ptx_has_the_lines_of_the_cubin_that_is_made_of_it(images: dict[str, Built]) -> None:
    lines = line_table(images["lines_compute_80"].data, "ptx")
    files = {Path(file).name for file, _ in lines}
    assert files == {"softmax.py", "standard.py"}
    assert line_table(images["lines_sm_90a"].data, "cubin") <= lines


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_every_version_of_dwarf(version: int, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/add.h").write_text("static int add(int a, int b)\n{\n    return a + b;\n}\n")
    source = (
        '#include "inner/add.h"\nint twice(int a);\nint twice(int a)\n{\n    int b = add(a, a);\n    return b;\n}\n'
    )
    (tmp_path / "twice.c").write_text(source)
    command = ["gcc", f"-gdwarf-{version}", "-gno-as-loc-support", "-O0", "-shared", "-fPIC", "twice.c", "-o", "t.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    data = (tmp_path / "t.so").read_bytes()
    lines = line_table(data, "hsaco")
    assert lines == by_pyelftools(data)
    assert {(Path(file).name, line) for file, line in lines} >= {("twice.c", 5), ("add.h", 3)}


@pytest.mark.parametrize("name", ["sm_80", "compute_80", "gfx942"])
def test_an_image_without_a_table(images: dict[str, Built], name: str) -> None:
    assert line_table(images[name].data, images[name].kind) == frozenset()


@pytest.mark.parametrize("name", ["lines_sm_90a", "lines_gfx942", "lines_compute_80"])
def test_damage_is_an_error_and_nothing_else(images: dict[str, Built], name: str) -> None:
    data, kind, chance = images[name].data, images[name].kind, random.Random(9)
    place = data.index(b"softmax.py") - 200
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            changed[place + chance.randrange(1000)] = chance.randrange(256)
        with suppress(ImageError):
            line_table(bytes(changed), kind)


def test_a_line_of_a_file_that_is_not_named(images: dict[str, Built]) -> None:
    data = images["lines_compute_80"].data
    text = re.sub(r"(?m)^\s*\.file\s+2 .*\n", "", data.decode())
    with pytest.raises(ImageError, match="a line is of the file 2, and the PTX names no such file"):
        line_table(text.encode(), "ptx")


KNOWN = {"/<kiln>/k.py": {3, 4, 5}}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({("/<kiln>/k.py", 3), ("/<kiln>/k.py", 0), ("/<triton>/language/standard.py", 99), ("/<cuda>/a.h", 1)}, None),
        ({("/<kiln>/k.py", 3), ("/<kiln>/k.py", 6)}, "/<kiln>/k.py:6"),
        ({("/<kiln>/k.py", 3), ("/<kiln>/other.py", 3)}, "/<kiln>/other.py:3"),
        ({("/<kiln>/k.py", 3), ("/tmp/triton/standard.py", 3)}, "/tmp/triton/standard.py:3"),
        ({("/<kiln>/k.py", 3)} | {("x", line) for line in range(1, 9)}, "x:1, x:2, x:3, x:4, x:5 and 3 more"),
        ({("/<kiln>/k.py", 0), ("/<triton>/language/standard.py", 99)}, "none of them"),
        (set(), "none of them"),
    ],
)
def test_lines_are_held_against_the_sources(lines: set[tuple[str, int]], said: str | None) -> None:
    findings = check_lines(frozenset(lines), KNOWN)
    assert [finding.actual for finding in findings] == ([] if said is None else [said])
    assert all((each.field, each.expected) == ("lines", "lines of /<kiln>/k.py, by `debug: true`") for each in findings)
