"""Where in a file a byte lies, in words by which it is found: a section, an archive's member, a line.

Layouts: System V ABI, "Object Files", for ELF; `packaging.archive` and `binaries.fatbin` for the others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kiln.binaries.elf import open_elf, reading
from kiln.binaries.fatbin import read_fatbin
from kiln.errors import ImageError
from kiln.packaging.archive import read_archive

BEHIND = "behind "
"""how the names of parts begin that are none: padding"""
_ARCHIVE = b"!<arch>\n"
_ELF = b"\x7fELF"
_FATBIN = b"\x50\xed\x55\xba"
_ELF_HEADER = 64
_MEMBER_HEADER = 60


@dataclass(frozen=True, kw_only=True)
class Part:
    """A range of a file, in bytes."""

    name: str
    """`section .text`, `member a.o, section .text`; what comes twice has a number behind it"""
    start: int
    end: int

    def of(self, data: bytes) -> bytes:
        """Its bytes."""
        return data[self.start : self.end]


def parts(data: bytes) -> tuple[Part, ...]:
    """The parts of an ELF file, a static archive or a fat binary, in order; none of anything else.

    Together they are the whole file: what has no name is called by what lies before it. A file that cannot be read
    has no parts.
    """
    try:
        with reading("file"):
            if data.startswith(_ARCHIVE):
                found = list(_members(data))
            elif data.startswith(_ELF):
                found = list(_sections(data))
            elif data.startswith(_FATBIN):
                found = list(_images(data))
            else:
                return ()
    except ImageError:
        return ()
    return tuple(_whole(_numbered(found), len(data)))


def place(data: bytes, offset: int, like: tuple[Part, ...] = ()) -> str:
    """Where a byte of a file lies.

    `like` are the parts of a file that is laid out as this one was before it was damaged.
    """
    for part in parts(data) or like:
        if part.start <= offset < part.end:
            return part.name
    if is_text(data):
        lines = data.count(b"\n", 0, offset)
        return f"line {lines + 1}"
    return f"byte {offset}"


def is_text(data: bytes) -> bool:
    """Whether a file is one that people read: UTF-8, without control characters but those of lines and tabs."""
    if b"\0" in data:
        return False
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return not any(character < " " and character not in "\t\n\r\f" for character in set(text))


def _members(data: bytes) -> Iterator[Part]:
    members, _ = read_archive(data)
    if members and members[0].offset > len(_ARCHIVE) + _MEMBER_HEADER:
        yield Part(name="the symbol index", start=len(_ARCHIVE), end=members[0].offset - _MEMBER_HEADER)
    for member in members:
        name, start = f"member {member.name}", member.offset
        yield Part(name=f"header of {name}", start=start - _MEMBER_HEADER, end=start)
        inner = parts(member.data)
        if not inner:
            yield Part(name=name, start=start, end=start + len(member.data))
        for part in inner:
            yield Part(name=f"{name}, {part.name}", start=start + part.start, end=start + part.end)


def _sections(data: bytes) -> Iterator[Part]:
    elf = open_elf(data)
    programs, sections = struct.unpack_from("<QQ", data, 32)
    program_size, programs_count, section_size, sections_count = struct.unpack_from("<HHHH", data, 54)
    yield Part(name="the ELF header", start=0, end=_ELF_HEADER)
    found = [
        Part(name=f"section {section.name}", start=section.offset, end=section.offset + len(section.data))
        for section in elf.sections
        if section.data
    ]
    if programs_count:
        end = programs + program_size * programs_count
        found.append(Part(name="the table of program headers", start=programs, end=end))
    end = sections + section_size * sections_count
    found.append(Part(name="the table of section headers", start=sections, end=end))
    yield from sorted(found, key=lambda part: part.start)


def _images(data: bytes) -> Iterator[Part]:
    at = 0
    for entry in read_fatbin(data):
        name = f"image {entry.arch}"
        yield Part(name=f"header of {name}", start=at, end=entry.offset)
        at = entry.offset + len(entry.data)
        inner = parts(entry.data)
        if not inner:
            yield Part(name=name, start=entry.offset, end=at)
        for part in inner:
            yield Part(name=f"{name}, {part.name}", start=entry.offset + part.start, end=entry.offset + part.end)


def _numbered(found: list[Part]) -> Iterator[Part]:
    """With names that are each one part's."""
    seen: dict[str, int] = {}
    for part in found:
        seen[part.name] = count = seen.get(part.name, 0) + 1
        yield part if count == 1 else Part(name=f"{part.name} (no. {count})", start=part.start, end=part.end)


def _whole(found: Iterator[Part], size: int) -> Iterator[Part]:
    """With parts for what lies between: padding, and what a reader does not tell of."""
    at, before = 0, ""
    for part in found:
        if part.start > at:
            yield Part(name=f"{BEHIND}{before}" if before else "its start", start=at, end=part.start)
        yield part
        if part.end > at:
            at, before = part.end, part.name
    if size > at:
        yield Part(name=f"{BEHIND}{before}" if before else "the file", start=at, end=size)
