"""Damages real images in many ways, and asks of each what it says and whether it is what its facts say.

    python binaries_mutate.py FOLDER COUNT [SEED]

Takes every image below FOLDER that has its facts beside it, a build's own folder as well. Prints a JSON object: how
many of each kind were made, how many of them were refused, and by reading alone; the longest time and the memory that
one took; and what went wrong. Each number of a seed is one mutation, so that a failure can be made again by its number.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from kiln.binaries.checks import check_clean
from kiln.binaries.elf import open_elf
from kiln.binaries.facts import SUFFIX, Facts
from kiln.binaries.inspect import check_against, inspect
from kiln.errors import ImageError

EXTREMES = (0, 1, 3, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, 1 << 40, 1 << 63, (1 << 64) - 1)
SECOND = 1.0
MEGABYTES = 200


@dataclass(frozen=True, kw_only=True)
class Original:
    name: str
    data: bytes
    facts: Facts


Chance = random.Random
Mutation = Callable[[Chance, Original, Sequence[Original]], bytes]


# -- any file


def some_bytes(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    data = bytearray(original.data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        place = chance.randrange(len(data))
        data[place] = chance.choice((0, 0xFF, 0x80, data[place] ^ 1 << chance.randrange(8), chance.randrange(256)))
    return bytes(data)


def cut(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    """At the end, or out of the middle."""
    data = original.data
    start = chance.randrange(len(data))
    return data[:start] + (b"" if chance.random() < 0.6 else data[start + chance.choice((1, 8, 64, 1000)) :])


def extended(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    more = chance.choice((b"\0", b"\n", b"x", b"}", b"\xff")) * chance.choice((1, 2, 64, 4096, 1 << 20))
    place = len(original.data) if chance.random() < 0.6 else chance.randrange(len(original.data))
    return original.data[:place] + more + original.data[place:]


def joined(chance: Chance, original: Original, others: Sequence[Original]) -> bytes:
    """With another or with itself, one after the other or the start of one with the rest of the other."""
    other = chance.choice((original, chance.choice(others)))
    if chance.random() < 0.5:
        return original.data + other.data
    place = chance.choice((16, 64, chance.randrange(len(original.data))))
    return original.data[:place] + other.data[place:]


# -- ELF: cubin and hsaco

_HEADER = {"type": (16, 2), "machine": (18, 2), "version": (20, 4), "entry": (24, 8), "phoff": (32, 8)}
_HEADER |= {"shoff": (40, 8), "flags": (48, 4), "ehsize": (52, 2), "phentsize": (54, 2), "phnum": (56, 2)}
_HEADER |= {
    "shentsize": (58, 2),
    "shnum": (60, 2),
    "shstrndx": (62, 2),
    "class": (4, 1),
    "abi": (7, 1),
    "abi version": (8, 1),
}
_SECTION = {"name": (0, 4), "type": (4, 4), "flags": (8, 8), "address": (16, 8), "offset": (24, 8), "size": (32, 8)}
_SECTION |= {"link": (40, 4), "info": (44, 4), "alignment": (48, 8), "entry size": (56, 8)}
_SYMBOL = {"name": (0, 4), "info": (4, 1), "other": (5, 1), "section": (6, 2), "value": (8, 8), "size": (16, 8)}


def put(chance: Chance, data: bytearray, start: int, fields: Mapping[str, tuple[int, int]], at: int) -> None:
    """Change a field of a structure: an extreme, a neighbour, or what the same field holds elsewhere."""
    offset, size = fields[chance.choice(list(fields))]
    place = slice(start + offset, start + offset + size)
    old = int.from_bytes(data[place], "little")
    new = chance.choice((*EXTREMES, old + 1, old - 1, old * 2, old ^ 1 << chance.randrange(8 * size), at, len(data)))
    data[place] = (new & (1 << 8 * size) - 1).to_bytes(size, "little")


def table(data: bytes) -> tuple[int, int]:
    """Where the section headers begin, and how many there are."""
    return struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]


def header(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    data = bytearray(original.data)
    put(chance, data, 0, _HEADER, table(data)[0])
    return bytes(data)


def section_headers(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    data = bytearray(original.data)
    start, count = table(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        put(chance, data, start + 64 * chance.randrange(count), _SECTION, chance.randrange(len(data)))
    return bytes(data)


def moved_table(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    """The section headers again behind the end, where the file's header says, or nearly; or many times over."""
    data = bytearray(original.data)
    start, count = table(data)
    heads = bytes(data[start : start + 64 * count])
    data += bytes(chance.choice((0, 1, 64, 1 << 16)))
    struct.pack_into("<Q", data, 40, len(data) + chance.choice((0, 0, 0, 1, -64)))
    times = chance.choice((1, 1, 2, 100, 0xFFFF // count))
    struct.pack_into("<H", data, 60, count * times)
    return bytes(data) + heads * times


def swapped_sections(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    """Two headers in each other's place: what links to one finds the other."""
    data = bytearray(original.data)
    start, count = table(data)
    one, two = chance.sample(range(count), 2)
    first, second = slice(start + 64 * one, start + 64 * one + 64), slice(start + 64 * two, start + 64 * two + 64)
    data[first], data[second] = data[second], data[first]
    return bytes(data)


def symbols(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    data = bytearray(original.data)
    tables = [section for section in open_elf(original.data).sections if section.name in (".symtab", ".dynsym")]
    section = chance.choice(tables)
    put(chance, data, section.offset + 24 * chance.randrange(section.size // 24), _SYMBOL, section.offset)
    return bytes(data)


def placed(data: bytes, index: int, content: bytes) -> bytes:
    """The file with other content for a section, which comes to lie in front of the section headers."""
    start, count = table(data)
    made = bytearray(data[:start] + content + bytes(-len(content) % 8) + data[start : start + 64 * count])
    made += data[start + 64 * count :]
    moved = len(made) - len(data)
    (programs,) = struct.unpack_from("<Q", data, 32)
    struct.pack_into("<QQ", made, 32, programs + (moved if programs >= start else 0), start + moved)
    struct.pack_into("<QQ", made, start + moved + 64 * index + 24, start, len(content))
    return bytes(made)


def notes(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    """What a kernel's own notes say: the attributes of a cubin, the metadata of an hsaco, whole and well formed."""
    elf = open_elf(original.data)
    if original.facts.kind == "hsaco":
        (section,) = [section for section in elf.sections if section.name == ".note"]
        owner, size, _ = struct.unpack_from("<III", section.data)
        start = 12 + -(-owner // 4) * 4
        content = changed_map(chance, section.data[start : start + size])
        note = struct.pack("<I", owner) + struct.pack("<I", len(content)) + section.data[8:start] + content
        return placed(original.data, section.index, note + bytes(-len(content) % 4))
    named = [section for section in elf.sections if section.name.startswith((".nv.info", ".note.nv"))]
    section = chance.choice(named)
    content = bytearray(section.data)
    for _ in range(chance.choice((1, 1, 3))):
        place = 4 * chance.randrange(max(1, len(content) // 4))
        value = chance.choice((*EXTREMES[:8], *range(0x40)))
        content[place : place + 4] = struct.pack("<I", value & 0xFFFFFFFF)
    if chance.random() < 0.3:
        content *= chance.choice((2, 50))
    return placed(original.data, section.index, bytes(content))


def changed_map(chance: Chance, packed: bytes) -> bytes:
    """The metadata with one value, key or level changed, or claims that no memory can serve."""
    if chance.random() < 0.2:
        return chance.choice(
            (
                b"\xdd\xff\xff\xff\xff",
                b"\x91" * 3000,
                b"\xdd\0\0\x1f\xff" * 400,
                b"\xdf\0\0\x1f\xff" * 400,
                b"\xc1",
                b"",
            )
        )
    metadata = msgpack.unpackb(packed)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(metadata)
    node, key = chance.choice(places)
    action = chance.randrange(4)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[chance.choice((1, "", "\x1b", None))] = node.pop(key)
    elif action == 2 and isinstance(node, list):
        node.extend([node[key]] * chance.choice((1, 9000)))
    else:
        strange = (-1, 1.5, None, True, "", "x" * 70000, "\n", b"\xff", [], {}, [[[]]], {"a": 1}, [1 << 63] * 8000)
        node[key] = chance.choice((*EXTREMES, *strange))
    return bytes(msgpack.packb(metadata))


# -- PTX


def lines(chance: Chance, original: Original, others: Sequence[Original]) -> bytes:
    """A line gone, twice, elsewhere, or of another PTX."""
    text = original.data.splitlines(keepends=True)
    declared = [index for index, line in enumerate(text) if line.lstrip().startswith((b".", b"}", b"{"))]
    place = chance.choice(declared)
    line = text.pop(place)
    action = chance.randrange(3)
    if action:
        text.insert(place, line)
    if action == 1:
        text.insert(chance.randrange(len(text)), line)
    elif action == 2:
        ptx = [other for other in others if other.facts.kind == "ptx"]
        text.insert(place, chance.choice(chance.choice(ptx).data.splitlines(keepends=True)))
    return b"".join(text)


def numbers(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    """A number of a declaration made another."""
    text = original.data.decode()
    head, brace, body = text.partition("{")
    words = [index for index, character in enumerate(head) if character.isdigit() and not head[index - 1].isdigit()]
    place = chance.choice(words)
    rest = head[place:].lstrip("0123456789")
    new = chance.choice((*map(str, EXTREMES), "9" * 30, "9" * 5000, "", "-1"))
    return (head[:place] + new + rest + brace + body).encode()


RUNS = (
    "\n",
    " ",
    "/*a",
    '"a',
    "// a\n",
    ".entry a ",
    ".visible ",
    ".extern\n",
    ".shared\n",
    ".shared .b8 a",
    "{",
    "}",
    ";",
)
RUNS += (".param .b8 a,", ".b8 x[9][9]", ".reqntid 1,", ".version 8.0\n", ".section .debug_x ", ".target a debug ")


def runs(chance: Chance, original: Original, _others: Sequence[Original]) -> bytes:
    """A piece of text very many times."""
    piece = chance.choice(RUNS).encode()
    more = piece * (chance.choice((300, 20_000, 400_000)) // len(piece))
    ends = [index + 1 for index, byte in enumerate(original.data) if byte in b"\n({"]
    place = chance.choice(ends)
    return original.data[:place] + more + original.data[place:]


_ANY: dict[str, Mutation] = {"bytes": some_bytes, "cut": cut, "extended": extended, "joined": joined}
_ELF: dict[str, Mutation] = {
    "header": header,
    "section headers": section_headers,
    "moved table": moved_table,
    "swapped sections": swapped_sections,
    "symbols": symbols,
    "notes": notes,
}
_PTX: dict[str, Mutation] = {"lines": lines, "numbers": numbers, "runs": runs}


def mutate(originals: Sequence[Original], seed: str, number: int) -> tuple[str, Original, bytes]:
    """The mutation of a number: its kind, what it was made of, and its bytes, which are never the original's."""
    chance = random.Random(f"{seed} {number}")
    original = originals[number % len(originals)]
    kinds = {**_ANY, **(_PTX if original.facts.kind == "ptx" else _ELF)}
    while True:
        kind = chance.choice(list(kinds))
        data = kinds[kind](chance, original, originals)
        if data != original.data:
            return f"{original.facts.kind}: {kind}", original, data


def run(originals: Sequence[Original], count: int, seed: str) -> dict[str, Any]:
    """Make them all, and say how it went."""
    made: Counter[str] = Counter()
    unread: Counter[str] = Counter()
    wrong: list[str] = []
    slowest, most = (0.0, ""), (0, "")
    for number in range(count):
        kind, original, data = mutate(originals, seed, number)
        what = f"{number}, {kind} of {original.name}"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        try:
            findings = check_against(data, original.facts)
            if not findings:
                wrong.append(f"{what}: taken")
            if {"image"} & {finding.field for finding in findings}:
                unread[kind] += 1
            else:
                assert all(str(part).strip() for finding in findings for part in (finding.expected, finding.actual))
                check_clean(data, inspect(data).kind)
        except ImageError:
            pass  # of check_clean; the PTX with a NUL
        except Exception:
            wrong.append(f"{what}: {traceback.format_exc()}")
        slowest = max(slowest, (time.process_time() - began, what))
        most = max(most, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, what))
        made[kind] += 1
    if slowest[0] > SECOND:
        wrong.append(f"{slowest[1]}: took {slowest[0]:.1f} s")
    if most[0] > MEGABYTES << 10:
        wrong.append(f"{most[1]}: took {most[0] >> 10} MB")
    return {
        "made": sum(made.values()),
        "kinds": {kind: {"made": made[kind], "unread": unread[kind]} for kind in sorted(made)},
        "slowest": slowest,
        "most_memory_kb": most,
        "wrong": wrong,
    }


def originals_of(folder: Path) -> list[Original]:
    """The images below a folder that have facts beside them, in order of their paths."""
    found = []
    for path in sorted(folder.rglob("*.facts.json")):
        facts = Facts.from_json(path.read_text("utf-8"))
        image = path.with_name(path.name.removesuffix(".facts.json") + SUFFIX[facts.kind])
        found.append(Original(name=image.name, data=image.read_bytes(), facts=facts))
    return found


if __name__ == "__main__":
    # What is sound passes, so that a refusal says something.
    sound = originals_of(Path(sys.argv[1]))
    assert sound
    assert not [finding for original in sound for finding in check_against(original.data, original.facts)]
    print(json.dumps(run(sound, int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "kiln"), indent=1))
