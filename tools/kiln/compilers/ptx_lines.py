"""The line table of a PTX as nvcc writes it -> the same with virtual file names, at one place, on every machine.

Source of the syntax: NVIDIA, "PTX ISA", debugging directives: `.file`, `.loc`, `.section`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kiln.compilers.ptx_entry import without_path

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"((?:[^"\\\n]|\\.)*)"[^\n]*\n', re.MULTILINE)
"""behind the name may stand a time stamp and a size, which are left out"""
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[^\n]*?(?:inlined_at[ \t]+(\d+)[^\n]*)?$", re.MULTILINE)
_ADDRESS_SIZE = re.compile(r"^[ \t]*\.address_size[ \t]+\d+[ \t]*\n", re.MULTILINE)
_STRINGS = re.compile(r"^[ \t]*\.section[ \t]+\.debug_str\s*\{[^{}]*\}", re.MULTILINE)
_STRING = re.compile(r"(?:^[ \t]*\.b8[ \t]+[\d, \t]+\n)+", re.MULTILINE)


def with_virtual_files(text: str, virtual: Callable[[str], str]) -> str | None:
    """The text with the names that `virtual` gives its files, and those of functions as `without_path` has them.

    nvcc lists the files at the end, where a text that is cut short has lost some: None where a line's file is not
    among them. They come to stand in front of the code.
    """
    names = {number: virtual(_unescaped(name)) for number, name in _FILE.findall(text)}
    used = {number for found in _LOC.findall(text) for number in found if number}
    if not used <= names.keys():
        return None
    listed = "".join(f'\t.file\t{number} "{name}"\n' for number, name in names.items())
    text = _ADDRESS_SIZE.sub(lambda found: found[0] + listed, _FILE.sub("", text), count=1)
    return _STRINGS.sub(lambda found: _STRING.sub(_string, found[0]), text)


def without_lines(text: str) -> str:
    """The text without its line table."""
    return _STRINGS.sub("", _FILE.sub("", _LOC.sub("", text)))


def _unescaped(name: str) -> str:
    """A name as nvcc means it: it writes bytes beyond ASCII in octal, and a backslash before quotes and backslashes."""
    data = _ESCAPED.sub(
        lambda found: bytes([int(found[1], 8) & 0xFF]) if len(found[1]) == 3 else found[1],
        name.encode("utf-8", "surrogateescape"),
    )
    return data.decode("utf-8", "surrogateescape")


def _string(found: re.Match[str]) -> str:
    """The bytes of one string, which nvcc writes as numbers on as many lines as they fill."""
    name = bytes(int(number) & 0xFF for number in re.findall(r"(?<!\.b)\d+", found[0])).decode("latin-1")
    return f"\t.b8 {','.join(str(byte) for byte in without_path(name).encode('latin-1'))}\n"
