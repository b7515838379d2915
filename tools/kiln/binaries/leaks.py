"""What an image gives away of the machine that built it: debug sections and absolute paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kiln.binaries.elf import SHF_EXECINSTR, Elf, open_elf, reading
from kiln.binaries.ptx import declarations
from kiln.toolchain.targets import Kind

_CALL_FRAMES = ".debug_frame"
_DEBUG = re.compile(r"\.(nv_)?debug_\w+$")
_MERCURY = ".nv.capmerc"
"""ptxas from sm_100 on keeps a second, packed form of the code in sections of this prefix, not marked as code"""

# A path begins a word, or an include option's value; behind a `>` it is virtual, as in /<kiln>/kernels/softmax.py.
# Two components of two characters at least: shorter ones turn up in binary data by chance.
_NAME = rb"(?:[\w.+~@-]|[\xc2-\xf4][\x80-\xbf]{1,3}){2,}"
_PATH = re.compile(rb"(?:(?<![\w.:/\\~+@>-])|(?<=\s-[IL]))(?:[A-Za-z]:[\\/]|/)" + _NAME + rb"(?:[\\/]" + _NAME + rb")+")


@dataclass(frozen=True, kw_only=True)
class Leaks:
    debug: tuple[str, ...]
    """names of debug sections, or the directives that stand for them in PTX"""
    paths: tuple[str, ...]


def find_leaks(data: bytes, kind: Kind) -> Leaks:
    """Debug sections and texts that look like absolute paths, each once, in order. Raises ImageError if unreadable.

    `.debug_frame` is none: ptxas writes it for every kernel, and it holds unwind rules without a name or a line.
    Paths are looked for in every byte of the file but machine code, where chance makes some.
    """
    with reading(kind):
        if kind == "ptx":
            debug = re.findall(
                r"(?m)^[ \t]*(\.loc\b|\.file\b|\.section\s+\.debug_\w+|\.target\b[^\n]*\bdebug\b)",
                declarations(data.decode()),
            )
            return Leaks(debug=_distinct(" ".join(text.split()) for text in debug), paths=_paths(data))
        elf = open_elf(data)
        names = (section.name for section in elf.sections)
        return Leaks(
            debug=_distinct(name for name in names if _DEBUG.search(name) and not name.endswith(_CALL_FRAMES)),
            paths=_paths(_without_code(data, elf)),
        )


def _paths(data: bytes) -> tuple[str, ...]:
    return _distinct(found.decode("utf-8", "replace") for found in _PATH.findall(data))


def _without_code(data: bytes, elf: Elf) -> bytes:
    blank = bytearray(data)
    for section in elf.sections:
        if section.data and (section.flags & SHF_EXECINSTR or section.name.startswith(_MERCURY)):
            blank[section.offset : section.offset + len(section.data)] = bytes(len(section.data))
    return bytes(blank)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
