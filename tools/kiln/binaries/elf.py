"""The parts of a 64-bit little-endian ELF file that the readers share: header, sections, symbols, notes, wholeness.

Source of the layout: System V ABI, "Object Files" (ELF header, sections, symbol table, note section). Every offset
that a file names is checked against its end before it is followed, so that a damaged file costs an error and never
memory or time.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from elftools.elf.elffile import ELFFile

from kiln.errors import ImageError

SHF_WRITE = 0x1
SHF_ALLOC = 0x2
SHF_EXECINSTR = 0x4
SHT_NULL = 0
SHT_NOTE = 7
SHT_NOBITS = 8
STB_LOCAL = 0
STB_GLOBAL = 1
SHN_UNDEF = 0
SHN_LORESERVE = 0xFF00
"""from here on a section index means something else, such as absolute or common"""
_MOST_SECTIONS = 4096
"""Images have some 20 sections, and host objects of a whole library some hundred."""

_SECTION = struct.Struct("<IIQQQQ")
"""the start of a section's header: name, type, flags, address, offset, size"""
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")

DAMAGED = "delete it and build again; if it comes back, look for a full disk or a broken compiler"
"""What to do about a file that cannot be read as what it is said to be."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section, in bytes. `data` is empty for a section that has no bytes in the file."""

    index: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    alignment: int
    link: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Symbol:
    """One entry of a symbol table. `index` counts from 0 as attributes and relocations do."""

    index: int
    name: str
    value: int
    size: int
    bind: int
    type: int
    other: int
    section: int


@dataclass(frozen=True, kw_only=True)
class Note:
    owner: str
    type: int
    description: bytes


@dataclass(frozen=True, kw_only=True)
class Elf:
    os_abi: int
    abi_version: int
    type: int
    machine: int
    flags: int
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        """The section of that name. Raises ImageError when there are several, since then none can be meant."""
        found = [section for section in self.sections if section.name == name]
        if len(found) > 1:
            raise ImageError(f"{len(found)} sections are named {name}", expected="one", remedy=DAMAGED)
        return found[0] if found else None

    def symbols(self, table: str = ".symtab") -> tuple[Symbol, ...]:
        """The symbols of a table, its null entry included, so that a symbol's place is its index."""
        section = self.section(table)
        if section is None:
            raise ImageError(f"there is no symbol table {table}", remedy=DAMAGED)
        if section.size % _SYMBOL.size:
            raise ImageError(f"the size of {table}, {section.size}, is no multiple of {_SYMBOL.size}", remedy=DAMAGED)
        names = self.sections[section.link].data
        return tuple(
            Symbol(
                index=index,
                name=_text(names, name),
                value=value,
                size=size,
                bind=info >> 4,
                type=info & 0xF,
                other=other,
                section=place,
            )
            for index, (name, info, other, place, value, size) in enumerate(_SYMBOL.iter_unpack(section.data))
        )


def open_elf(data: bytes) -> Elf:
    """Read header and sections of a whole file.

    Whole means that the file ends where its header says: a byte less or more is refused. Linkers and assemblers write
    one of the two header tables last, so its end is the file's.

    Raises ImageError; call it within `reading`, since the parser raises many kinds of exception on damaged input.
    """
    if data[:4] != b"\x7fELF":
        raise ImageError(
            "this is no ELF file",
            expected="a file that starts with 7f 45 4c 46",
            actual=f"{len(data)} bytes that start with {data[:4].hex(' ') or 'nothing'}",
            remedy=DAMAGED,
        )
    parsed = ELFFile(io.BytesIO(data))
    if parsed.elfclass != 64 or not parsed.little_endian:
        raise ImageError("this ELF file is not 64-bit little-endian", remedy=DAMAGED)
    header = parsed.header
    if header["e_shnum"] == 0 or header["e_shentsize"] != 64:
        raise ImageError("this ELF file has no sections", remedy=DAMAGED)
    end = header["e_shoff"] + header["e_shnum"] * header["e_shentsize"]
    if header["e_phnum"]:
        end = max(end, header["e_phoff"] + header["e_phnum"] * header["e_phentsize"])
    if end != len(data):
        raise ImageError(
            "the file is cut short" if len(data) < end else "there are bytes after the file's end",
            expected=f"{end} bytes, by its own header",
            actual=f"{len(data)} bytes",
            remedy=DAMAGED,
        )
    _check_sections(data, header)
    os_abi, abi_version = data[7], data[8]
    file_type, machine = struct.unpack_from("<HH", data, 16)
    flags = struct.unpack_from("<I", data, 48)[0]
    sections = []
    for index in range(header["e_shnum"]):
        sections.append(_section(data, parsed, index, header["e_shoff"] + 64 * index))
    return Elf(
        os_abi=os_abi,
        abi_version=abi_version,
        type=file_type,
        machine=machine,
        flags=flags,
        sections=tuple(sections),
    )


def _check_sections(data: bytes, header: Mapping[str, int]) -> None:
    """Before any is read: neither so many, nor so large or so named, that reading them takes more than the file's size.

    Sections may overlap: ptxas for sm_100 and later lets some of debug information share their bytes.
    """
    count, start = header["e_shnum"], header["e_shoff"]
    if count > _MOST_SECTIONS:
        raise ImageError(
            "this ELF file has more sections than any image",
            expected=f"at most {_MOST_SECTIONS}",
            actual=str(count),
            remedy=DAMAGED,
        )
    heads = [_SECTION.unpack_from(data, start + 64 * index) for index in range(count)]
    held = sum(size for _, kind, _, _, _, size in heads if kind not in (SHT_NULL, SHT_NOBITS))
    if held > 4 * len(data):
        raise ImageError(
            "the sections of this ELF file reach past its end, or hold the same bytes many times",
            expected=f"at most {4 * len(data)} bytes in all, four times the file's size",
            actual=f"{held} bytes",
            remedy=DAMAGED,
        )
    _, _, _, _, offset, size = heads[header["e_shstrndx"]]
    if data[offset : offset + size][-1:] != b"\0" or any(name >= size for name, *_ in heads):
        raise ImageError("a section's name lies outside of the table of names", remedy=DAMAGED)


def _section(data: bytes, parsed: ELFFile, index: int, at: int) -> Section:
    # Types and flags are read raw: the parser turns those that it knows, for some machines, into names.
    kind, flags = struct.unpack_from("<IQ", data, at + 4)
    entry = parsed.get_section(index)
    header = entry.header
    offset, size = header["sh_offset"], header["sh_size"]
    holds_bytes = kind not in (SHT_NULL, SHT_NOBITS)
    if holds_bytes and offset + size > len(data):
        raise ImageError(
            f"section {entry.name} reaches past the file's end",
            expected=f"at most {len(data)}",
            actual=str(offset + size),
            remedy=DAMAGED,
        )
    return Section(
        index=index,
        name=_printable(entry.name),
        type=kind,
        flags=flags,
        address=header["sh_addr"],
        offset=offset,
        size=size,
        alignment=header["sh_addralign"],
        link=header["sh_link"],
        data=data[offset : offset + size] if holds_bytes else b"",
    )


def notes(section: Section) -> Iterator[Note]:
    """The notes of a section: owner, type and description, each padded to 4 bytes."""
    data, at = section.data, 0
    while at < len(data):
        owner_size, size, kind = _NOTE.unpack_from(data, at)
        at += _NOTE.size
        owner = data[at : at + owner_size]
        at += _padded(owner_size)
        description = data[at : at + size]
        at += _padded(size)
        if len(description) != size:
            raise ImageError(f"a note in {section.name} is cut short", remedy=DAMAGED)
        yield Note(owner=owner.rstrip(b"\0").decode(), type=kind, description=description)


def _padded(size: int) -> int:
    return (size + 3) & ~3


def _text(table: bytes, at: int) -> str:
    end = table.find(b"\0", at)
    if at > len(table) or end < 0:
        raise ImageError("a name lies outside of its string table", remedy=DAMAGED)
    return _printable(table[at:end].decode())


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ImageError("a name holds a control character", actual=ascii(name), remedy=DAMAGED)
    return name


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever a parser raises on damaged input into ImageError.

    pyelftools and msgpack raise OverflowError, struct.error, KeyError, UnicodeDecodeError and more on mutated files,
    so every exception is meant.
    """
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(
            f"the {what} cannot be read",
            actual=f"{type(error).__name__}: {error}".splitlines()[0],
            remedy=DAMAGED,
        ) from error
