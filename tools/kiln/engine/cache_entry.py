"""An entry of the cache as bytes: whole, as it was made for its key, or refused.

`kiln cache 1 <sha256 of what follows>\\n`, the length of a table in 8 bytes, little end first, the table as JSON, and
the bytes of the files that it lists, in that order.
"""

from __future__ import annotations

import hashlib
import json
import struct

from kiln.engine.cache import Entry

_MAGIC = b"kiln cache 1 "
_LENGTH = struct.Struct("<Q")


def pack(key: str, entry: Entry) -> bytes:
    """An entry's file."""
    table = {
        "key": key,
        "files": [[role, len(data)] for role, data in entry.files.items()],
        "found": [{name: list(names) for name, names in found.items()} for found in entry.found],
        "seconds": entry.seconds,
        "peak_memory": entry.peak_memory,
    }
    head = json.dumps(table).encode()
    body = b"".join((_LENGTH.pack(len(head)), head, *entry.files.values()))
    return b"".join((_MAGIC, hashlib.sha256(body).hexdigest().encode(), b"\n", body))


def unpack(key: str, data: bytes) -> Entry:
    """The entry of a file that `pack` made for the key. Raises ValueError for any other."""
    start = len(_MAGIC) + 65
    body = memoryview(data)[start:]
    if data[:start] != _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise ValueError("is damaged")
    (length,) = _LENGTH.unpack(body[: _LENGTH.size])
    table = json.loads(bytes(body[_LENGTH.size : _LENGTH.size + length]))
    if table["key"] != key:
        raise ValueError("is the entry of another key")
    files, place = {}, _LENGTH.size + length
    for role, size in table["files"]:
        files[role] = bytes(body[place : place + size])
        place += size
    return Entry(files=files, found=tuple(table["found"]), seconds=table["seconds"], peak_memory=table["peak_memory"])
