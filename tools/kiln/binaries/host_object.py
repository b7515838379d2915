"""Host object: what the relocatable file that carries an image says of itself, and the checks on it.

Source of the format: System V ABI, "Object Files", with its x86-64 and AArch64 supplements for the machine numbers;
GNU ld for `.note.GNU-stack`: an object without that section makes the stack of what it is linked into executable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kiln.binaries.checks import Finding
from kiln.binaries.elf import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHN_ABS,
    SHN_UNDEF,
    STB_LOCAL,
    Elf,
    Section,
    open_elf,
    reading,
)
from kiln.errors import ImageError

MACHINES = {"x86_64-linux-gnu": 62, "aarch64-linux-gnu": 183}
"""host, as kernels.yaml names it -> e_machine"""

ET_REL = 1

StackNote = Literal["absent", "plain", "executable"]


@dataclass(frozen=True, kw_only=True)
class HostSymbol:
    """A symbol that other objects can see."""

    name: str
    value: int
    """bytes from the start of its section"""
    size: int
    section: str
    """empty where it is absolute or undefined"""


@dataclass(frozen=True, kw_only=True)
class HostObject:
    """One relocatable file with one section of data."""

    machine: int
    section: str
    """name of the section that holds the data"""
    alloc: bool
    writable: bool
    executable: bool
    alignment: int
    """of the section, in bytes"""
    symbols: tuple[HostSymbol, ...]
    stack_note: StackNote
    data: bytes = field(repr=False)


def read_host_object(source: bytes | Path) -> HostObject:
    """Read an object file, from its bytes or its path. Raises ImageError when it cannot be read or holds no data."""
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
            remedy="see what objcopy was asked for",
        )
    holder = _holder(elf)
    return HostObject(
        machine=elf.machine,
        section=holder.name,
        alloc=bool(holder.flags & SHF_ALLOC),
        writable=bool(holder.flags & SHF_WRITE),
        executable=bool(holder.flags & SHF_EXECINSTR),
        alignment=holder.alignment,
        symbols=tuple(
            HostSymbol(
                name=symbol.name,
                value=symbol.value,
                size=symbol.size,
                section="" if symbol.section in (SHN_UNDEF, SHN_ABS) else elf.sections[symbol.section].name,
            )
            for symbol in elf.symbols()
            if symbol.bind != STB_LOCAL
        ),
        stack_note=_stack_note(elf),
        data=holder.data,
    )


def _holder(elf: Elf) -> Section:
    found = [section for section in elf.sections if section.flags & SHF_ALLOC and section.data]
    if len(found) != 1:
        raise ImageError(
            "the object file does not hold its data in one section",
            expected="1 section with bytes that are loaded",
            actual=" ".join([str(len(found)), *(section.name for section in found)]),
            remedy="see what objcopy was asked for",
        )
    return found[0]


def _stack_note(elf: Elf) -> StackNote:
    note = elf.section(".note.GNU-stack")
    if note is None:
        return "absent"
    return "executable" if note.flags & SHF_EXECINSTR else "plain"


def check_host_object(
    obj: HostObject, *, symbols: Mapping[str, int], sha256: str, machine: int, alignment: int = 64
) -> list[Finding]:
    """Is this the object that was asked for?

    `symbols` are all that it may show, each with its offset in the data in bytes; `sha256` is of the data; `machine`
    is e_machine, see MACHINES; `alignment` is the least that will do, in bytes.
    """
    objcopy = "see what objcopy was asked for, and whether another binutils does it"
    facts: list[tuple[str, str, str, str, bool]] = [
        (
            "the object is for another machine",
            "machine",
            str(machine),
            str(obj.machine),
            obj.machine == machine,
        ),
        ("the data would not be loaded", "alloc", "loaded", "not loaded", obj.alloc),
        ("the data can be overwritten", "writable", "read-only", "writable", not obj.writable),
        ("the data can be executed", "executable", "not executable", "executable", not obj.executable),
        (
            f"the data is not aligned in {obj.section}",
            "alignment",
            f"{alignment} bytes or a multiple",
            f"{obj.alignment} bytes",
            obj.alignment >= alignment and obj.alignment % alignment == 0,
        ),
        (
            "the object shows other symbols",
            "symbols",
            _symbols_text({name: (obj.section, offset) for name, offset in symbols.items()}),
            _symbols_text({symbol.name: (symbol.section, symbol.value) for symbol in obj.symbols}),
            {(symbol.name, symbol.section, symbol.value) for symbol in obj.symbols}
            == {(name, obj.section, offset) for name, offset in symbols.items()},
        ),
        (
            "the object would make the stack of a program executable",
            "stack_note",
            ".note.GNU-stack, not executable",
            obj.stack_note,
            obj.stack_note == "plain",
        ),
        (
            "the data is not the image's",
            "data",
            f"sha256 {sha256}",
            f"sha256 {hashlib.sha256(obj.data).hexdigest()}, {len(obj.data)} bytes",
            hashlib.sha256(obj.data).hexdigest() == sha256,
        ),
    ]
    return [
        Finding(check=check, field=name, expected=expected, actual=actual, remedy=objcopy)
        for check, name, expected, actual, holds in facts
        if not holds
    ]


def _symbols_text(symbols: Mapping[str, tuple[str, int]]) -> str:
    return ", ".join(f"{name} at {section or 'nowhere'}+{value}" for name, (section, value) in sorted(symbols.items()))
