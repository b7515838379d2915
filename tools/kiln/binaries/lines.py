"""The line table of an image: which lines of which files its code comes from.

Sources: DWARF Debugging Information Format, versions 2 to 5, "Line Number Information" (`.debug_line`, which ptxas
writes in version 2 and LLVM for AMD in version 4); NVIDIA, "PTX ISA", `.file` and `.loc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kiln.binaries.elf import DAMAGED, Elf, open_elf, reading
from kiln.errors import ImageError
from kiln.toolchain.targets import Kind

Lines = frozenset[tuple[str, int]]
"""(file, line); line 0 stands for code that comes from no line"""

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"\n]*)"(?:[ \t]+"([^"\n]*)")?', re.MULTILINE)
_LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)", re.MULTILINE)
_INLINED = re.compile(r"^[ \t]*\.loc\b[^\n]*?inlined_at[ \t]+(\d+)[ \t]+(\d+)", re.MULTILINE)
_MOST_FILES = 65536
"""Images name some ten."""


def line_table(data: bytes, kind: Kind) -> Lines:
    """Every line that the table of an image names; empty for one without. Raises ImageError if unreadable."""
    with reading(kind):
        if kind == "ptx":
            return _of_ptx(data.decode())
        elf = open_elf(data)
        section = elf.section(".debug_line")
        return frozenset() if section is None else frozenset(_of_section(section.data, elf))


def _of_ptx(text: str) -> Lines:
    files = {number: "/".join(filter(None, (folder, name))) for number, folder, name in _files(text)}
    places = [*_LOC.findall(text), *_INLINED.findall(text)]
    missing = {number for number, _ in places} - files.keys()
    if missing:
        raise _damaged(f"a line is of the file {min(missing)}, and the PTX names no such file")
    return frozenset((files[number], int(line)) for number, line in places)


def _files(text: str) -> Iterator[tuple[str, str, str]]:
    """Number, folder and name of each file; the folder may stand in the name."""
    for number, first, second in _FILE.findall(text):
        yield (number, first, second) if second else (number, "", first)


@dataclass(kw_only=True)
class _Cursor:
    """Reads numbers off bytes, one after the other, so it is not frozen."""

    data: bytes
    at: int = 0

    def number(self, size: int, *, signed: bool = False) -> int:
        """An integer of so many bytes."""
        if self.at + size > len(self.data):
            raise _damaged("it ends in the middle of a number")
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little", signed=signed)

    def leb(self, *, signed: bool = False) -> int:
        """A LEB128 number: seven bits a byte, the last of which has no eighth."""
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 70:
                raise _damaged("it has a number of more than 64 bits")

    def text(self) -> str:
        """A text that ends with a NUL."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise _damaged("it ends in the middle of a name")
        start, self.at = self.at, end + 1
        return self.data[start:end].decode()

    def part(self, size: int) -> _Cursor:
        """The next bytes by themselves."""
        if self.at + size > len(self.data):
            raise _damaged("it ends in the middle of a table")
        self.at += size
        return _Cursor(data=self.data[self.at - size : self.at])


def _of_section(data: bytes, elf: Elf) -> Iterator[tuple[str, int]]:
    cursor = _Cursor(data=data)
    while cursor.at < len(data):
        size = cursor.number(4)
        if size >= 0xFFFFFFF0:
            raise _damaged("it is one for more than 4 GiB")
        yield from _of_unit(cursor.part(size), elf)


def _of_unit(unit: _Cursor, elf: Elf) -> Iterator[tuple[str, int]]:
    version = unit.number(2)
    if not 2 <= version <= 5:
        raise _damaged(f"it is in DWARF {version}")
    if version == 5:
        unit.number(2)  # sizes of addresses and of segment selectors
    header = unit.part(unit.number(4))
    # The least size of an instruction, from version 4 on how many operations it holds, and a flag.
    header.number(2 if version < 4 else 3)
    base, span, first = header.number(1, signed=True), header.number(1), header.number(1)
    operands = [header.number(1) for _ in range(max(0, first - 1))]
    files = _files_of_5(header, elf) if version == 5 else _files_before_5(header)
    yield from _rows(unit, files, base, span, first, operands)


def _files_before_5(header: _Cursor) -> dict[int, str]:
    """Number -> file. Folder 0 is that of the compilation, which the table does not name."""
    folders = [""]
    while name := header.text():
        folders.append(name)
    files: dict[int, str] = {}
    while name := header.text():
        folder = header.leb()
        header.leb(), header.leb()  # time and size
        files[len(files) + 1] = _joined(folders, folder, name)
    return files


def _files_of_5(header: _Cursor, elf: Elf) -> dict[int, str]:
    folders = [str(entry.get(1, "")) for entry in _entries(header, elf)]
    return {
        number: _joined(folders, int(entry.get(2, 0)), str(entry.get(1, "")))
        for number, entry in enumerate(_entries(header, elf))
    }


def _entries(header: _Cursor, elf: Elf) -> list[dict[int, int | str]]:
    """What a list of folders or files says of each: content (1: path, 2: folder's number) -> value."""
    form = [(header.leb(), header.leb()) for _ in range(header.number(1))]
    count = header.leb()
    if count > _MOST_FILES or (count and not form):
        raise _damaged(f"it lists {count} files or folders")
    return [{content: _value(header, how, elf) for content, how in form} for _ in range(count)]


def _value(header: _Cursor, form: int, elf: Elf) -> int | str:
    """A value in one of the forms that DWARF 5 allows in these lists."""
    if form == 0x08:
        return header.text()
    if form in _TEXTS:
        section = elf.section(_TEXTS[form])
        return _Cursor(data=section.data if section is not None else b"", at=header.number(4)).text()
    if form == 0x0F:
        return header.leb()
    if form not in _SIZES:
        raise _damaged(f"it has a value in the form {form:#x}")
    return header.number(_SIZES[form])


_TEXTS = {0x0E: ".debug_str", 0x1F: ".debug_line_str"}
"""DW_FORM_strp, DW_FORM_line_strp: an offset in a section"""
_SIZES = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}
"""DW_FORM_data1, 2, 4, 8 and 16"""


def _joined(folders: list[str], folder: int, name: str) -> str:
    if folder >= len(folders):
        raise _damaged(f"the file {name} lies in the folder {folder}, and there are {len(folders)}")
    return "/".join(filter(None, (folders[folder], name)))


def _rows(
    unit: _Cursor, files: dict[int, str], base: int, span: int, first: int, operands: list[int]
) -> Iterator[tuple[str, int]]:
    """Runs the program of a table, as far as files and lines go."""
    file, line = 1, 1
    while unit.at < len(unit.data):
        code = unit.number(1)
        if code >= first:
            if span == 0:
                raise _damaged("its lines have no range")
            line += base + (code - first) % span
            yield _row(files, file, line)
        elif code == 0:
            body = unit.part(unit.leb())
            extended = body.number(1)
            if extended == 1:  # the end of a sequence
                file, line = 1, 1
            elif extended == 3:  # one more file
                name = body.text()
                files[len(files) + 1] = name
        elif code == 1:  # a row
            yield _row(files, file, line)
        elif code == 3:
            line += unit.leb(signed=True)
        elif code == 4:
            file = unit.leb()
        elif code == 9:
            unit.number(2)
        else:
            for _ in range(operands[code - 1]):
                unit.leb()


def _row(files: dict[int, str], file: int, line: int) -> tuple[str, int]:
    if file not in files or not 0 <= line < 1 << 31:
        raise _damaged(f"it has a line {line} of the file {file}, and names {len(files)}")
    return files[file], line


def _damaged(what: str) -> ImageError:
    return ImageError(f"the line table cannot be read: {what}", remedy=DAMAGED)
