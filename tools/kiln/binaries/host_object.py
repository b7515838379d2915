"""Host object: what a relocatable file for the machine that links a library says of itself, and the checks on it.

Source of the format: System V ABI, "Object Files", with its x86-64 and AArch64 supplements for the machine numbers;
GNU ld for `.note.GNU-stack`: an object without that section makes the stack of what it is linked into executable.
"""

from __future__ import annotations

import hashlib
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
    STB_LOCAL,
    Elf,
    open_elf,
    reading,
)
from kiln.errors import ImageError

ET_REL = 1

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
    sections: tuple[LoadedSection, ...]
    """those that are loaded and not empty"""


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
        sections=tuple(
            LoadedSection(
                name=section.name,
                writable=bool(section.flags & SHF_WRITE),
                executable=bool(section.flags & SHF_EXECINSTR),
                alignment=section.alignment,
                data=section.data,
            )
            for section in elf.sections
            if section.flags & SHF_ALLOC and section.data
        ),
    )


def _stack_note(elf: Elf) -> StackNote:
    note = elf.section(".note.GNU-stack")
    if note is None:
        return "absent"
    return "executable" if note.flags & SHF_EXECINSTR else "plain"


def check_image_object(
    obj: HostObject, *, symbols: Mapping[str, int], sha256: str, machine: int, alignment: int = 64
) -> list[Finding]:
    """Is this the object that carries an image, as objcopy was asked for?

    `symbols` are all that it may show, each with its offset in the data in bytes; `sha256` is of the data; `machine`
    is e_machine; `alignment` is the least that will do, in bytes.
    """
    return [*_check_linked(obj, machine, _OBJCOPY, _OBJCOPY), *_check_data(obj, symbols, sha256, alignment)]


def check_compiled_object(obj: HostObject, *, defines: str, machine: int) -> list[Finding]:
    """Is this what a C compiler for e_machine `machine` makes of a source that defines the symbol `defines`?"""
    findings = _check_linked(
        obj,
        machine,
        "point CC to a compiler for that host, or correct `host` in kernels.yaml",
        "use a C compiler that writes the note, as gcc and clang do on Linux",
    )
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


def _check_linked(obj: HostObject, machine: int, machine_remedy: str, stack_remedy: str) -> list[Finding]:
    """What every object must be, whatever it holds."""
    findings = []
    if obj.machine != machine:
        findings.append(
            Finding(
                check="the object is for another machine than the library's host",
                field="machine",
                expected=f"ELF machine {machine}",
                actual=f"ELF machine {obj.machine}",
                remedy=machine_remedy,
            )
        )
    if obj.stack_note != "plain":
        findings.append(
            Finding(
                check="the object would make the stack of every program that links it executable",
                field="stack_note",
                expected="a section .note.GNU-stack that is not executable",
                actual=obj.stack_note,
                remedy=stack_remedy,
            )
        )
    return findings


def _check_data(obj: HostObject, symbols: Mapping[str, int], sha256: str, alignment: int) -> Iterator[Finding]:
    if len(obj.sections) != 1:
        yield Finding(
            check="the object does not hold its data in one section",
            field="sections",
            expected="1 section with bytes that are loaded",
            actual=" ".join([str(len(obj.sections)), *(section.name for section in obj.sections)]),
            remedy=_OBJCOPY,
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
            yield Finding(check=check, field=name, expected=expected, actual=actual, remedy=_OBJCOPY)


def _symbols_text(symbols: set[tuple[str, str, int]]) -> str:
    return ", ".join(f"{name} at {section or 'nowhere'}+{value}" for name, section, value in sorted(symbols))
