"""hsaco: what AMD's code object says of its kernel.

Source of the format: LLVM, "User Guide for AMDGPU Backend": ELF header (e_flags, code object V4 and later), note
records and code object metadata V3 and later, kernel descriptor.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack

from kiln.binaries.elf import DAMAGED, STB_LOCAL, Elf, Symbol, notes, open_elf, reading
from kiln.binaries.reading import Reading, Span
from kiln.errors import ImageError

EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
ABI_VERSIONS = {2: 4, 3: 5, 4: 6}
"""EI_ABIVERSION -> version of the code object format"""
NT_AMDGPU_METADATA = 32

MACHINES: dict[int, str] = {
    0x2C: "gfx900",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x33: "gfx1010",
    0x36: "gfx1030",
    0x3F: "gfx90a",
    0x41: "gfx1100",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x55: "gfx1152",
    0x58: "gfx1153",
}
"""EF_AMDGPU_MACH (bits 0-7 of e_flags) -> processor: what Kiln builds for, and its near relatives for messages"""

_FEATURES: dict[str, tuple[int, dict[int, str]]] = {
    "sramecc": (0xC00, {0x000: "", 0x400: "", 0x800: "-", 0xC00: "+"}),
    "xnack": (0x300, {0x000: "", 0x100: "", 0x200: "-", 0x300: "+"}),
}
"""feature -> mask in e_flags, and what its values (unsupported, any, off, on) are in a target ID"""

_MOST_ITEMS = 8192
"""in a list or map of the metadata: a kernel's arguments are at most 4 KiB. What a damaged one claims costs memory."""
_DESCRIPTOR_SIZE = 64
_WAVEFRONT_SIZE32 = 1 << 10


@dataclass(frozen=True, kw_only=True)
class _Descriptor:
    """The part of a 64-byte kernel descriptor that says again what the metadata says. Sizes are bytes."""

    group_segment: int
    private_segment: int
    kernarg: int
    code: int
    """address of the code"""
    wave32: bool


def read_hsaco(data: bytes) -> Reading:
    """What an hsaco with exactly one kernel says of it. Raises ImageError for anything else, damaged files included."""
    with reading("hsaco"):
        return _read(open_elf(data))


def _read(elf: Elf) -> Reading:
    if elf.machine != EM_AMDGPU:
        raise ImageError(
            "this ELF file holds no AMD device code",
            expected=f"machine {EM_AMDGPU} (AMDGPU)",
            actual=f"machine {elf.machine}",
            remedy=DAMAGED,
        )
    if elf.os_abi != ELFOSABI_AMDGPU_HSA or elf.abi_version not in ABI_VERSIONS:
        raise ImageError(
            "the hsaco is of a generation that Kiln does not know",
            expected="OSABI 64 with ABI version 2, 3 or 4 (code object 4, 5 or 6)",
            actual=f"OSABI {elf.os_abi} with ABI version {elf.abi_version}",
            remedy="compile for code object version 4 or later",
        )
    metadata = _metadata(elf)
    arch = _architecture(elf, metadata)
    kernel = _kernel(metadata)
    entry = _field(kernel, ".name", str)
    descriptor = _descriptor(elf, entry, _field(kernel, ".symbol", str))
    group_segment = _size(kernel, ".group_segment_fixed_size")
    private_segment = _size(kernel, ".private_segment_fixed_size")
    kernarg = _size(kernel, ".kernarg_segment_size")
    wavefront = _size(kernel, ".wavefront_size")
    _agree("kernel arguments", kernarg, descriptor.kernarg)
    _agree("group segment (LDS)", group_segment, descriptor.group_segment)
    _agree("private segment (stack)", private_segment, descriptor.private_segment)
    _agree("wavefront size", wavefront, 32 if descriptor.wave32 else 64)
    return Reading(
        arch=arch,
        entry=entry,
        parameters=_parameters(kernel, kernarg),
        parameter_bytes=kernarg,
        threads=_threads(kernel),
        max_threads=_size(kernel, ".max_flat_workgroup_size"),
        warp_size=wavefront,
        shared_static=group_segment,
        registers=_size(kernel, ".vgpr_count"),
        scalar_registers=_size(kernel, ".sgpr_count"),
        # Counted in registers of 32 bits. Those of SGPRs take no memory: they go to lanes of VGPRs.
        spills=4 * _size(kernel, ".vgpr_spill_count", default=0),
        stack=private_segment,
    )


def _metadata(elf: Elf) -> Mapping[str, Any]:
    found = [
        note.description
        for section in elf.sections
        if section.name == ".note"
        for note in notes(section)
        if note.owner == "AMDGPU" and note.type == NT_AMDGPU_METADATA
    ]
    if len(found) != 1:
        raise ImageError(
            "an hsaco carries its metadata in one note",
            expected="1 note AMDGPU of type 32",
            actual=f"{len(found)}",
            remedy=DAMAGED,
        )
    metadata = msgpack.unpackb(found[0], max_array_len=_MOST_ITEMS, max_map_len=_MOST_ITEMS)
    if not isinstance(metadata, dict):
        raise ImageError("the metadata note is no map", remedy=DAMAGED)
    version = _field(metadata, "amdhsa.version", list)
    if not version or version[0] != 1:
        raise ImageError(
            "the metadata is of a version that Kiln does not know", expected="1.x", actual=str(version), remedy=DAMAGED
        )
    return metadata


def _architecture(elf: Elf, metadata: Mapping[str, Any]) -> str:
    """The target ID: processor, then each feature that is fixed. Header and metadata must agree on it."""
    number = elf.flags & 0xFF
    if number not in MACHINES:
        raise ImageError(
            "the hsaco is for a processor that Kiln does not know",
            expected=", ".join(sorted(MACHINES.values())),
            actual=f"EF_AMDGPU_MACH {number:#x}",
            remedy=DAMAGED,
        )
    features = {name: values[elf.flags & mask] for name, (mask, values) in _FEATURES.items()}
    header = MACHINES[number] + "".join(f":{name}{sign}" for name, sign in features.items() if sign)
    target = _field(metadata, "amdhsa.target", str)
    # A feature that is off ends with the minus that also separates components.
    named = re.search(r"-(gfx[0-9a-z]+(?::[a-z]+[+-])*)$", target)
    if named is None or named[1] != header:
        raise ImageError(
            "the hsaco contradicts itself on its architecture",
            expected=f"{header}, by its header",
            actual=f"{target}, by its metadata",
            remedy=DAMAGED,
        )
    return header


def _kernel(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    kernels = _field(metadata, "amdhsa.kernels", list)
    if len(kernels) != 1 or not isinstance(kernels[0], dict):
        names = [_field(kernel, ".name", str) for kernel in kernels if isinstance(kernel, dict)]
        raise ImageError(
            "an image holds exactly one kernel",
            expected="1 kernel",
            actual=" ".join([str(len(kernels)), "kernels", *names]),
            remedy="compile each kernel into an image of its own",
        )
    kernel: dict[str, Any] = kernels[0]
    return kernel


def _descriptor(elf: Elf, entry: str, descriptor_name: str) -> _Descriptor:
    """The kernel's descriptor, found by its symbol, as the runtime does. It must lead to the kernel's own code."""
    if descriptor_name != f"{entry}.kd":
        raise ImageError(
            "the kernel's descriptor has a strange name", expected=f"{entry}.kd", actual=descriptor_name, remedy=DAMAGED
        )
    exported = {symbol.name: symbol for symbol in elf.symbols(".dynsym") if symbol.bind != STB_LOCAL}
    for name in (entry, descriptor_name):
        if name not in exported:
            raise ImageError(
                f"the hsaco does not export {name}",
                expected=f"{entry} and {descriptor_name}",
                actual=", ".join(sorted(exported)) or "nothing",
                remedy=DAMAGED,
            )
    descriptor = _decode(elf, exported[descriptor_name])
    if descriptor.code != exported[entry].value:
        raise ImageError(
            f"the descriptor of {entry} leads to other code",
            expected=f"{exported[entry].value:#x}",
            actual=f"{descriptor.code:#x}",
            remedy=DAMAGED,
        )
    return descriptor


def _decode(elf: Elf, symbol: Symbol) -> _Descriptor:
    section = elf.sections[symbol.section]
    at = symbol.value - section.address
    data = section.data[at : at + _DESCRIPTOR_SIZE] if at >= 0 else b""
    if len(data) != _DESCRIPTOR_SIZE:
        raise ImageError(f"{symbol.name} lies outside of {section.name}", remedy=DAMAGED)
    group, private, kernarg = struct.unpack_from("<III", data, 0)
    (code,) = struct.unpack_from("<q", data, 16)
    (properties,) = struct.unpack_from("<H", data, 56)
    return _Descriptor(
        group_segment=group,
        private_segment=private,
        kernarg=kernarg,
        code=symbol.value + code,
        wave32=bool(properties & _WAVEFRONT_SIZE32),
    )


def _threads(kernel: Mapping[str, Any]) -> int:
    """Threads of a block: of the three sides that the kernel demands, else the most that it takes."""
    if ".reqd_workgroup_size" not in kernel:
        return _size(kernel, ".max_flat_workgroup_size")
    sides = dict(zip("xyz", _field(kernel, ".reqd_workgroup_size", list), strict=True))
    return prod(_size(sides, side) for side in sides)


def _parameters(kernel: Mapping[str, Any], kernarg: int) -> tuple[Span, ...]:
    """The arguments in order, without those that the runtime fills in (`hidden_*`)."""
    spans = []
    for argument in _field(kernel, ".args", list) if ".args" in kernel else ():
        span = Span(offset=_size(argument, ".offset"), size=_size(argument, ".size"))
        if span.end > kernarg:
            raise ImageError(
                "an argument lies outside of the kernel's argument buffer",
                expected=f"at most {kernarg} bytes",
                actual=f"offset {span.offset}, size {span.size}",
                remedy=DAMAGED,
            )
        if not _field(argument, ".value_kind", str).startswith("hidden_"):
            spans.append(span)
    return tuple(spans)


def _field(mapping: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    value = mapping.get(key)
    if not isinstance(value, kind):
        raise ImageError(
            f"the metadata's {key} is missing or malformed",
            expected=kind.__name__,
            actual=type(value).__name__ if key in mapping else "nothing",
            remedy=DAMAGED,
        )
    if kind is str and not value.isprintable():
        raise ImageError(f"the metadata's {key} holds a control character", actual=ascii(value), remedy=DAMAGED)
    return value


def _size(mapping: Mapping[str, Any], key: str, *, default: int | None = None) -> int:
    if default is not None and key not in mapping:
        return default
    value = _field(mapping, key, int)
    if isinstance(value, bool) or not 0 <= value < 1 << 32:
        raise ImageError(f"the metadata's {key} is no size", actual=str(value), remedy=DAMAGED)
    return int(value)


def _agree(what: str, metadata: int, descriptor: int) -> None:
    if metadata != descriptor:
        raise ImageError(
            f"the hsaco contradicts itself on its {what}",
            expected=f"{metadata}, by its metadata",
            actual=f"{descriptor}, by its kernel descriptor",
            remedy=DAMAGED,
        )
