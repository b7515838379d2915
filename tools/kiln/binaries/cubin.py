"""cubin: what NVIDIA's device code ELF says of its kernel.

NVIDIA does not document the format. Attribute names and numbers are those that `cuobjdump -elf` of CUDA 13 prints;
their layout, and which symbols are entries, was measured with ptxas 12.9 and 13.4. Two generations exist:

| written by ptxas | OSABI, ABI version | architecture |
|---|---|---|
| up to 12.9 for sm_90 and below | 51, 7 | e_flags: number in bits 0-7, 0x800 for the suffix `a` |
| 12.9 for sm_100 and above, 13 for all | 65, 8 | e_flags: number in bits 8-15; suffix in the tool note's `-arch` |
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from kiln.binaries.elf import DAMAGED, STB_GLOBAL, Elf, Symbol, notes, open_elf, reading
from kiln.binaries.reading import Reading, Span
from kiln.errors import ImageError

EM_CUDA = 190

_MAX_THREADS = 0x05
_REQNTID = 0x10
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_KPARAM_INFO = 0x17
_CBANK_PARAM_SIZE = 0x19
_REGCOUNT = 0x2F
_CUDA_API_VERSION = 0x37
_CTA_PER_CLUSTER = 0x3D
_KPARAM_INFO_V2 = 0x45

_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10
_TOOL_NOTE = 2000

RESERVED_SHARED = 1024
"""Bytes at the start of every block's shared memory that the system keeps from sm_90 on.

ptxas counts them into `.nv.shared.<kernel>`. They do not count against the limit of 227 KiB: on an H200 a kernel whose
section is 1024 bytes launches with 232448 dynamic bytes, and the driver reports 0 static bytes for it.
"""


@dataclass(frozen=True, kw_only=True)
class _Attribute:
    number: int
    value: int
    """of the short formats"""
    payload: bytes
    """of the long format"""


@dataclass(frozen=True, kw_only=True)
class _ToolNote:
    version: str | None
    arch: str | None


def read_cubin(data: bytes) -> Reading:
    """What a cubin with exactly one kernel says of it. Raises ImageError for anything else, damaged files included."""
    with reading("cubin"):
        return _read(open_elf(data))


def _read(elf: Elf) -> Reading:
    if elf.machine != EM_CUDA:
        raise ImageError(
            "this ELF file holds no NVIDIA device code",
            expected=f"machine {EM_CUDA} (NVIDIA CUDA)",
            actual=f"machine {elf.machine}",
            remedy=DAMAGED,
        )
    note = _tool_note(elf)
    number, suffix = _architecture(elf, note)
    kernel = _kernel(elf)
    common = _attributes(elf, ".nv.info")
    own = _attributes(elf, f".nv.info.{kernel.name}")
    registers = _of_symbol(common, _REGCOUNT, kernel)
    if registers is None:
        raise ImageError(f"the cubin does not say how many registers {kernel.name} uses", remedy=DAMAGED)
    parameters = _parameters(own)
    threads = _dimensions(own, _REQNTID)
    max_threads = _dimensions(own, _MAX_THREADS)
    return Reading(
        arch=f"sm_{number}{suffix}",
        entry=kernel.name,
        parameters=parameters,
        parameter_bytes=_single(own, _CBANK_PARAM_SIZE, default=0),
        threads=prod(threads) if threads else None,
        max_threads=prod(max_threads) if max_threads else None,
        cluster=_dimensions(own, _CTA_PER_CLUSTER),
        shared_static=_static_shared(elf, kernel, number),
        registers=registers,
        stack=max(_largest(common, _FRAME_SIZE), _of_symbol(common, _MIN_STACK_SIZE, kernel) or 0),
        tools=_tools(note, own),
    )


def _architecture(elf: Elf, note: _ToolNote | None) -> tuple[int, str]:
    """Number and suffix: (90, "a")."""
    generation = (elf.os_abi, elf.abi_version)
    if generation == (51, 7):
        return elf.flags & 0xFF, "a" if elf.flags & 0x800 else ""
    if generation != (65, 8):
        raise ImageError(
            "the cubin is of a generation that Kiln does not know",
            expected="OSABI 51 with ABI version 7, or OSABI 65 with ABI version 8",
            actual=f"OSABI {generation[0]} with ABI version {generation[1]}",
            remedy="use a ptxas from CUDA 12.x or 13.x",
        )
    number = elf.flags >> 8 & 0xFF
    named = re.fullmatch(r"sm_(\d+)([af]?)", note.arch) if note and note.arch else None
    if named is None:
        raise ImageError(
            "the cubin does not say which variant of its architecture it is for",
            expected=f"a tool note with -arch sm_{number}, sm_{number}a or sm_{number}f",
            actual=note.arch if note and note.arch else "no such note",
            remedy="use a ptxas from CUDA 12.9 or later, and do not strip the cubin",
        )
    if int(named[1]) != number:
        raise ImageError(
            "the cubin contradicts itself on its architecture",
            expected=f"sm_{number}, by its header",
            actual=f"{named[0]}, by its tool note",
            remedy=DAMAGED,
        )
    return number, named[2]


def _kernel(elf: Elf) -> Symbol:
    """The one entry: a global function marked as entry, with code and attributes of its own.

    Device functions that were not inlined are functions too, but local, or without the mark.
    """
    found = [
        symbol
        for symbol in elf.symbols()
        if symbol.type == _STT_FUNC and symbol.bind == STB_GLOBAL and symbol.other & _STO_CUDA_ENTRY
    ]
    if len(found) != 1:
        raise ImageError(
            "an image holds exactly one kernel",
            expected="1 entry",
            actual=f"{len(found)} entries" + "".join(f" {symbol.name}" for symbol in found),
            remedy="compile each kernel into an image of its own",
        )
    kernel = found[0]
    code = elf.sections[kernel.section].name if kernel.section < len(elf.sections) else None
    if code != f".text.{kernel.name}":
        raise ImageError(
            f"the code of {kernel.name} is missing", expected=f".text.{kernel.name}", actual=code, remedy=DAMAGED
        )
    return kernel


def _attributes(elf: Elf, name: str) -> tuple[_Attribute, ...]:
    section = elf.section(name)
    if section is None:
        raise ImageError(f"the cubin has no section {name}", remedy=DAMAGED)
    return tuple(_parse_attributes(section.data))


def _parse_attributes(data: bytes) -> Iterator[_Attribute]:
    """Format byte, attribute byte, then by format: 1 nothing, 2 a byte, 3 two bytes, 4 a size and as many bytes."""
    at = 0
    while at < len(data):
        layout, number, value = struct.unpack_from("<BBH", data, at)
        at += 4
        payload = b""
        if layout == 4:
            payload = data[at : at + value]
            at += value
            if len(payload) != value:
                raise ImageError(f"attribute {number:#x} is cut short", remedy=DAMAGED)
        elif layout not in (1, 2, 3):
            raise ImageError(f"attribute {number:#x} has the unknown format {layout}", remedy=DAMAGED)
        yield _Attribute(number=number, value=value & 0xFF if layout == 2 else value, payload=payload)


def _parameters(attributes: tuple[_Attribute, ...]) -> tuple[Span, ...]:
    """In order. Buffers beyond 4 KiB are described by the second form of the attribute, with a wider size."""
    spans: dict[int, Span] = {}
    for attribute in attributes:
        if attribute.number not in (_KPARAM_INFO, _KPARAM_INFO_V2):
            continue
        _index, ordinal, offset, word = struct.unpack("<IHHI", attribute.payload)
        if ordinal in spans:
            raise ImageError(f"the cubin describes parameter {ordinal} twice", remedy=DAMAGED)
        size = word & 0xFFFF if attribute.number == _KPARAM_INFO_V2 else word >> 18 & 0x3FFF
        spans[ordinal] = Span(offset=offset, size=size)
    if sorted(spans) != list(range(len(spans))):
        raise ImageError(
            "the cubin leaves out a parameter",
            expected=f"{len(spans)} parameters, counted from 0",
            actual=", ".join(map(str, sorted(spans))),
            remedy=DAMAGED,
        )
    return tuple(spans[ordinal] for ordinal in range(len(spans)))


def _single(attributes: tuple[_Attribute, ...], number: int, *, default: int) -> int:
    values = {attribute.value for attribute in attributes if attribute.number == number}
    if len(values) > 1:
        raise ImageError(f"attribute {number:#x} has several values: {sorted(values)}", remedy=DAMAGED)
    return values.pop() if values else default


def _dimensions(attributes: tuple[_Attribute, ...], number: int) -> tuple[int, int, int] | None:
    found = [attribute.payload for attribute in attributes if attribute.number == number]
    if not found:
        return None
    x, y, z = struct.unpack("<III", found[-1])
    return x, y, z


def _of_symbol(attributes: tuple[_Attribute, ...], number: int, symbol: Symbol) -> int | None:
    """The value of an attribute that is given by symbol."""
    for attribute in attributes:
        if attribute.number == number:
            index, value = struct.unpack("<II", attribute.payload)
            if index == symbol.index:
                return int(value)
    return None


def _largest(attributes: tuple[_Attribute, ...], number: int) -> int:
    """The largest value of an attribute that is given by symbol; 0 without one.

    A kernel that calls itself, or by address, has a minimum of 0 for its stack; what it calls has a frame all the same.
    """
    return max((struct.unpack("<II", each.payload)[1] for each in attributes if each.number == number), default=0)


def _static_shared(elf: Elf, kernel: Symbol, number: int) -> int:
    section = elf.section(f".nv.shared.{kernel.name}")
    if section is None:
        return 0
    return max(0, section.size - RESERVED_SHARED) if number >= 90 else section.size


def _tool_note(elf: Elf) -> _ToolNote | None:
    """Version and -arch of the ptxas that made it: six 32-bit words, four of them offsets of texts that follow."""
    section = elf.section(".note.nv.tkinfo")
    if section is None:
        return None
    for note in notes(section):
        if note.type != _TOOL_NOTE:
            continue
        offsets = struct.unpack_from("<6I", note.description)
        _name, version, _branch, command = (_text(note.description[24:], offset) for offset in offsets[2:])
        release = re.search(r"\bV(\d+(?:\.\d+)+)", version)
        arch = re.search(r"(?:^|\s)(?:-arch|--gpu-name)[ =](\S+)", command)
        return _ToolNote(version=release[1] if release else None, arch=arch[1] if arch else None)
    return None


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def _tools(note: _ToolNote | None, attributes: tuple[_Attribute, ...]) -> dict[str, str]:
    """The ptxas, as precisely as the cubin knows it: the older generation only holds major and minor."""
    if note and note.version:
        return {"ptxas": note.version}
    for attribute in attributes:
        if attribute.number == _CUDA_API_VERSION:
            (version,) = struct.unpack("<I", attribute.payload)
            return {"ptxas": f"{version // 10}.{version % 10}"}
    return {}
