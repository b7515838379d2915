"""Copies of an object in which references to some symbols are weak: a linker takes no archive member for those."""

from __future__ import annotations

import struct
from collections.abc import Collection

_SECTION_HEADERS = struct.Struct("<Q")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_SYMTAB = 2
_SHN_UNDEF = 0
_STB_GLOBAL, _STB_WEAK = 1, 2


def weakened(data: bytes, symbols: Collection[str]) -> bytes:
    """An object file of a 64-bit little-endian host, with its undefined references to `symbols` made weak.

    What differs is the binding of each, four bits of its entry in the symbol table (System V ABI, "Symbol Table"):
    the compiler would write the same for `__attribute__((weak))`, in a translation unit more for each target. Raises
    ValueError where the file is no such object.
    """
    wanted = {name.encode() for name in symbols}
    result = bytearray(data)
    try:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("it is no ELF file of a 64-bit little-endian host")
        (table,) = _SECTION_HEADERS.unpack_from(data, 0x28)
        (count,) = struct.unpack_from("<H", data, 0x3C)
        sections = [_SECTION.unpack_from(data, table + index * _SECTION.size) for index in range(count)]
        for _, kind, _, _, offset, size, link, *_ in sections:
            if kind != _SHT_SYMTAB:
                continue
            names = sections[link][4]
            for at in range(offset, offset + size, _SYMBOL.size):
                name, info, _, section, *_ = _SYMBOL.unpack_from(data, at)
                text = data[names + name : data.index(b"\0", names + name)]
                if section == _SHN_UNDEF and info >> 4 == _STB_GLOBAL and text in wanted:
                    result[at + 4] = _STB_WEAK << 4 | info & 0xF
    except (struct.error, IndexError) as error:
        raise ValueError("it ends too early") from error
    return bytes(result)
