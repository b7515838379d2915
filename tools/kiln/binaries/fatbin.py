"""Fat binary: several images for NVIDIA's GPUs in one file, from which a driver takes the one for its device.

Source of the layout: a header (magic, version, bytes of the header, bytes of what follows), then for each image a
header of its own (kind, version, bytes of it, bytes of the content, capability, flags) and the content, padded to 8
bytes. NVIDIA documents the program that writes it (NVIDIA, "CUDA Compiler Driver NVCC", "fatbinary") and not the file:
the fields were compared with what fatbinary of CUDA 13.0 makes of cubins and PTX for each kind of target. It keeps a
cubin byte for byte, and a PTX without its comments and blanks. What is not known here is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kiln.binaries.checks import Finding
from kiln.binaries.elf import DAMAGED, open_elf, reading
from kiln.errors import ImageError

MAGIC = b"\x50\xed\x55\xba"
_HEADER = struct.Struct("<4sHHQ")
"""magic, version, bytes of this header, bytes behind it"""
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
"""kind, version, bytes of this header with what lies behind it, bytes of the content, of it compressed, where the place
and size of that are, minor and major version of the content, capability, two for a name, flags, one of no use, bytes of
it unpacked"""
_KINDS: dict[int, Literal["ptx", "cubin"]] = {1: "ptx", 2: "cubin"}
_PREFIX: dict[str, str] = {"ptx": "compute_", "cubin": "sm_"}
_LETTERS = {0x100000: "a", 0x200000: "f"}
"""flag -> the letter of the architecture"""
_COMPATIBLE = 0x1000000
"""flag of a cubin whose section .nv.compat lies behind the header, too"""
_PACKED = 0xE000
"""flags of a content that is compressed, one for each way"""
_PLAIN = 0x11
"""flags that all have: 64-bit, made on Linux"""
_VERSION = 0x101
_MOST_ENTRIES = 4096
"""far above the targets that there are"""

_ISA = re.compile(rb"^\s*\.version\s+(\d{1,3})\.(\d{1,3})\b", re.MULTILINE)
_COMMENT = re.compile(rb'("[^"\n]*")|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One image in a fat binary. Offset and size are bytes."""

    kind: Literal["ptx", "cubin"]
    arch: str
    """sm_90a or compute_80"""
    offset: int
    """of the content, from the start of the file"""
    data: bytes = field(repr=False)
    """without the padding; a PTX without the NUL behind it"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """An image that goes into a fat binary."""

    target: str
    """sm_90a or compute_80"""
    data: bytes = field(repr=False)


def read_fatbin(data: bytes) -> tuple[Entry, ...]:
    """The images of a fat binary, in order. Raises ImageError for anything else, and for what is compressed."""
    if data[:4] != MAGIC or len(data) < _HEADER.size:
        raise _damaged(
            "this is no fat binary", f"a file that starts with {MAGIC.hex(' ')}", data[:4].hex(" ") or "nothing"
        )
    _, version, header, size = _HEADER.unpack_from(data)
    if (version, header) != (1, _HEADER.size):
        raise _damaged(
            "the fat binary has another layout than this Kiln knows",
            f"version 1 with a header of {_HEADER.size} bytes",
            f"version {version} with one of {header}",
        )
    if header + size != len(data):
        raise _damaged("the fat binary is not whole", f"{header + size} bytes", f"{len(data)} bytes")
    entries: list[Entry] = []
    at = header
    while at < len(data):
        if len(entries) == _MOST_ENTRIES:
            raise _damaged("the fat binary has too many images", f"at most {_MOST_ENTRIES}", "more")
        entry, at = _entry(data, at)
        entries.append(entry)
    return tuple(entries)


def _entry(data: bytes, at: int) -> tuple[Entry, int]:
    """The image whose header is at an offset, and the offset behind it."""
    where = f"the image at offset {at}"
    if at + _ENTRY.size > len(data):
        raise _damaged(f"{where} is not whole", f"a header of {_ENTRY.size} bytes", f"{len(data) - at} bytes")
    number, version, header, size, packed, options, minor, major, capability, *name, flags, unused, unpacked = (
        _ENTRY.unpack_from(data, at)
    )
    kind = _KINDS.get(number)
    if kind is None or version != _VERSION:
        raise _damaged(f"{where} is of another kind", "a cubin or a PTX", f"kind {number} of version {version:#x}")
    if flags & _PACKED or packed or unpacked:
        raise _damaged(f"{where} is compressed", "images as they are", f"flags {flags:#x}")
    letters = flags & ~_PLAIN & ~_COMPATIBLE
    if flags & _PLAIN != _PLAIN or (letters and letters not in _LETTERS):
        raise _damaged(f"{where} has flags that are not known", "those of an architecture", f"{flags:#x}")
    start = at + header
    if size == 0 or size % 8 or start + size > len(data):
        raise _damaged(f"{where} is not whole", f"{header} and {size} bytes", f"{len(data) - at} bytes to the end")
    content = data[start : start + size]
    if kind == "ptx":
        text = content.rstrip(b"\0")
        if not 1 <= size - len(text) <= 8:
            raise _damaged(
                f"{where} does not end as a PTX does", "a NUL, and padding", f"{size - len(text)} bytes of 0"
            )
        content = text
    said = (header, options, major, minor, *name, unused, data[at + _ENTRY.size : start])
    usual = _usual(kind, content, has_compatibility=bool(flags & _COMPATIBLE))
    if said != usual:
        raise _damaged(f"{where} has a header that is not known", f"{usual}", f"{said}")
    arch = f"{_PREFIX[kind]}{capability}{_LETTERS.get(letters, '')}"
    return Entry(kind=kind, arch=arch, offset=start, data=content), start + size


def _usual(kind: str, content: bytes, *, has_compatibility: bool) -> tuple[object, ...]:
    """What a header says beside kind, size, architecture and flags: no name, and a version of the content.

    That is the ABI of a cubin, and the ISA of a PTX. Behind the header lie options for the compiler, which are an empty
    text, and what a cubin from sm_100 on says of compatible GPUs; both are left out of other cubins.
    """
    if kind == "cubin":
        with reading("cubin"):
            elf = open_elf(content)
            section = elf.section(".nv.compat") if has_compatibility else None
        version, extra = (1, elf.abi_version), section.data if section is not None else None
    else:
        isa = _ISA.search(content)
        version, extra = (int(isa[1]), int(isa[2])) if isa else (0, 0), b""
    if extra is None:
        return (_ENTRY.size, 0, *version, 0, 0, 0, b"")
    behind = struct.pack("<II", _ENTRY.size + 8, len(extra)) + b"\0" + extra
    behind += bytes(-len(behind) % 8)
    return (_ENTRY.size + len(behind), _ENTRY.size, *version, 0, 0, 0, behind)


def _damaged(what: str, expected: str, actual: str) -> ImageError:
    return ImageError(what, expected=expected, actual=actual, remedy=DAMAGED)


def check_fatbin(entries: Sequence[Entry], parts: Sequence[Part]) -> list[Finding]:
    """Are these the images that were put in, in their order: each for its target, and with its bytes?

    Of a PTX, the words are compared: the program leaves out comments and blanks.
    """
    found, asked = [entry.arch for entry in entries], [part.target for part in parts]
    if found != asked:
        return [_finding("holds other images than were put in", "images", ", ".join(asked), ", ".join(found) or "none")]
    return [finding for entry, part in zip(entries, parts, strict=True) for finding in _differences(entry, part)]


def _differences(entry: Entry, part: Part) -> Iterator[Finding]:
    if entry.kind == "ptx":
        if _words(entry.data) != _words(part.data):
            yield _finding(
                f"holds another PTX for {part.target}", part.target, "the PTX that was put in", "other words"
            )
        return
    # The program pads what does not end at a multiple of 8.
    padding = -len(part.data) % 8
    if entry.data != part.data + bytes(padding):
        expected, actual = f"the {len(part.data)} bytes that were put in", f"{len(entry.data)} bytes, which differ"
        yield _finding(f"holds another image for {part.target}", part.target, expected, actual)


def _words(text: bytes) -> list[bytes]:
    return _COMMENT.sub(lambda found: found[1] or b" ", text).split()


def _finding(what: str, name: str, expected: str, actual: str) -> Finding:
    return Finding(
        check=f"the fat binary {what}",
        field=name,
        expected=expected,
        actual=actual,
        remedy="build again; if it comes back, set CUDA_HOME to another CUDA toolkit: fatbinary of 13.0 is known to do",
    )
