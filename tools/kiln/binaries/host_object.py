"""Host object: what a relocatable file for the machine that links a library says of itself, and the checks on it.

Source of the format: System V ABI, "Object Files", with its x86-64 and AArch64 supplements for the machine numbers;
GNU ld for `.note.GNU-stack`: an object without that section makes the stack of what it is linked into executable;
"Linux Extensions to gABI" for `.note.gnu.property`: one object without the property of control-flow protection takes it
from all of the program, be it data alone.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kiln.binaries.checks import Finding
from kiln.binaries.elf import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHN_LORESERVE,
    SHN_UNDEF,
    SHT_NOTE,
    STB_LOCAL,
    Elf,
    notes,
    open_elf,
    reading,
)
from kiln.errors import ImageError
from kiln.toolchain.hosts import Host, machine_name

ET_REL = 1
PROPERTY_SECTION = ".note.gnu.property"
_NT_GNU_PROPERTY_TYPE_0 = 5
_PROPERTY = struct.Struct("<II")
"""type and size; then come its bytes, padded to 8"""

StackNote = Literal["absent", "plain", "executable"]

_OBJCOPY = "see what objcopy was asked for, and whether another binutils does it"


@dataclass(frozen=True, kw_only=True)
class HostSymbol:
    """A symbol that other objects can see."""

    name: str
    value: int
    """bytes from the start of its section"""
    size: int
    section: str
    """empty where it is absolute, common or undefined"""


@dataclass(frozen=True, kw_only=True)
class LoadedSection:
    """A section whose bytes a program that links the object gets."""

    name: str
    writable: bool
    executable: bool
    alignment: int
    """in bytes"""
    data: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class HostObject:
    """One relocatable file."""

    machine: int
    """e_machine"""
    symbols: tuple[HostSymbol, ...]
    stack_note: StackNote
    properties: Mapping[int, int]
    """its GNU properties of 4 bytes, such as that of control-flow protection, by type"""
    sections: tuple[LoadedSection, ...]
    """those that are loaded and not empty, notes apart"""


def property_note(host: Host) -> bytes:
    """The content of `.note.gnu.property` in an object without code: it stands in the way of no protection."""
    content = struct.pack("<IIII", host.protection_property, 4, host.data_protection, 0)
    return struct.pack("<III4s", 4, len(content), _NT_GNU_PROPERTY_TYPE_0, b"GNU\0") + content


def read_host_object(source: bytes | Path) -> HostObject:
    """Read an object file, from its bytes or its path. Raises ImageError when it cannot be read or is none."""
    try:
        data = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise ImageError("the object file cannot be read", where=str(source), actual=error.strerror) from error
    with reading("object file"):
        return _read(open_elf(data))


def _read(elf: Elf) -> HostObject:
    if elf.type != ET_REL:
        raise ImageError(
            "this ELF file is no object file",
            expected=f"type {ET_REL}",
            actual=f"type {elf.type}",
            remedy="see what the tool that made it was asked for",
        )
    return HostObject(
        machine=elf.machine,
        symbols=tuple(
            HostSymbol(
                name=symbol.name,
                value=symbol.value,
                size=symbol.size,
                section=elf.sections[symbol.section].name if SHN_UNDEF < symbol.section < SHN_LORESERVE else "",
            )
            for symbol in elf.symbols()
            if symbol.bind != STB_LOCAL
        ),
        stack_note=_stack_note(elf),
        properties=_properties(elf),
        sections=tuple(
            LoadedSection(
                name=section.name,
                writable=bool(section.flags & SHF_WRITE),
                executable=bool(section.flags & SHF_EXECINSTR),
                alignment=section.alignment,
                data=section.data,
            )
            for section in elf.sections
            if section.flags & SHF_ALLOC and section.data and section.type != SHT_NOTE
        ),
    )


def _stack_note(elf: Elf) -> StackNote:
    note = elf.section(".note.GNU-stack")
    if note is None:
        return "absent"
    return "executable" if note.flags & SHF_EXECINSTR else "plain"


def _properties(elf: Elf) -> Mapping[int, int]:
    section = elf.section(PROPERTY_SECTION)
    found = {}
    for note in notes(section) if section else ():
        if (note.owner, note.type) != ("GNU", _NT_GNU_PROPERTY_TYPE_0):
            continue
        at = 0
        while at < len(note.description):
            kind, size = _PROPERTY.unpack_from(note.description, at)
            at += _PROPERTY.size
            if size == 4:
                (found[kind],) = struct.unpack_from("<I", note.description, at)
            at += (size + 7) & ~7
    return found


def check_image_object(
    obj: HostObject, *, symbols: Mapping[str, int], sha256: str, host: Host, alignment: int = 64
) -> list[Finding]:
    """Is this the object that carries an image, as objcopy was asked for?

    `symbols` are all that it may show, each with its offset in the data in bytes; `sha256` is of the data; `alignment`
    is the least that will do, in bytes.
    """
    return [
        *_check_linked(obj, host, host.data_protection, _OBJCOPY, _OBJCOPY),
        *_check_data(obj, symbols, sha256, alignment, _OBJCOPY),
    ]


def check_embedded_object(
    obj: HostObject, *, symbols: Mapping[str, int], sha256: str, host: Host, alignment: int
) -> list[Finding]:
    """Is this what a C compiler makes of a unit that does nothing but include files, at `symbols`?

    These are as in `check_image_object`, of all the files with what lies between them.
    """
    remedy = "use a C compiler that writes plain ELF objects, as gcc and clang do on Linux (no -flto in CC)"
    return [
        *_check_compiled(obj, host),
        *_check_data(obj, symbols, sha256, alignment, remedy),
    ]


def check_compiled_object(obj: HostObject, *, defines: str, host: Host) -> list[Finding]:
    """Is this what a C compiler for `host` makes of a source that defines the symbol `defines`?"""
    findings = _check_compiled(obj, host)
    defined = sorted(symbol.name for symbol in obj.symbols if symbol.section)
    if defines not in defined:
        findings.append(
            Finding(
                check="the object lacks its symbol",
                field="symbols",
                expected=defines,
                actual=", ".join(defined) or "no symbols",
                remedy="use a C compiler that writes plain ELF objects (no -flto in CC)",
            )
        )
    return findings


def _check_compiled(obj: HostObject, host: Host) -> list[Finding]:
    return _check_linked(
        obj,
        host,
        host.code_protection,
        "point CC to a compiler for that host, or correct `host` in kernels.yaml",
        "use a C compiler that writes its notes, as gcc and clang do on Linux",
    )


def _check_linked(
    obj: HostObject, host: Host, protection: int, machine_remedy: str, notes_remedy: str
) -> list[Finding]:
    """What every object must be, whatever it holds."""
    if obj.machine != host.machine:
        # The notes of another machine are other ones.
        return [
            Finding(
                check="the object is for another machine than the library's host",
                field="machine",
                expected=machine_name(host.machine),
                actual=machine_name(obj.machine),
                remedy=machine_remedy,
            )
        ]
    findings = []
    if obj.stack_note != "plain":
        findings.append(
            Finding(
                check="the object would make the stack of every program that links it executable",
                field="stack_note",
                expected="a section .note.GNU-stack that is not executable",
                actual=obj.stack_note,
                remedy=notes_remedy,
            )
        )
    found = obj.properties.get(host.protection_property, 0)
    if found & protection != protection:
        findings.append(
            Finding(
                check=f"the object would take control-flow protection ({host.protection_flag}) from every program "
                "that links it",
                field="properties",
                expected=f"GNU property {host.protection_property:#x} with the bits {protection:#x}",
                actual=f"the bits {found:#x}" if found else "none of them",
                remedy=notes_remedy,
            )
        )
    return findings


def _check_data(
    obj: HostObject, symbols: Mapping[str, int], sha256: str, alignment: int, remedy: str
) -> Iterator[Finding]:
    if len(obj.sections) != 1:
        yield Finding(
            check="the object does not hold its data in one section",
            field="sections",
            expected="1 section with bytes that are loaded",
            actual=" ".join([str(len(obj.sections)), *(section.name for section in obj.sections)]),
            remedy=remedy,
        )
        return
    (holder,) = obj.sections
    found = {(symbol.name, symbol.section, symbol.value) for symbol in obj.symbols}
    wanted = {(name, holder.name, offset) for name, offset in symbols.items()}
    digest = hashlib.sha256(holder.data).hexdigest()
    facts: list[tuple[str, str, str, str, bool]] = [
        ("the data can be overwritten", "writable", "read-only", "writable", not holder.writable),
        ("the data can be executed", "executable", "not executable", "executable", not holder.executable),
        (
            f"the data is not aligned in {holder.name}",
            "alignment",
            f"{alignment} bytes or a multiple",
            f"{holder.alignment} bytes",
            holder.alignment >= alignment and holder.alignment % alignment == 0,
        ),
        ("the object shows other symbols", "symbols", _symbols_text(wanted), _symbols_text(found), found == wanted),
        (
            "the data is not the image's",
            "data",
            f"sha256 {sha256}",
            f"sha256 {digest}, {len(holder.data)} bytes",
            digest == sha256,
        ),
    ]
    for check, name, expected, actual, holds in facts:
        if not holds:
            yield Finding(check=check, field=name, expected=expected, actual=actual, remedy=remedy)


def _symbols_text(symbols: set[tuple[str, str, int]]) -> str:
    return ", ".join(f"{name} at {section or 'nowhere'}+{value}" for name, section, value in sorted(symbols))
