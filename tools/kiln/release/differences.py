"""What differs between two files of one name: the first place, by section, member, line or JSON path, and the kind."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kiln.release.places import BEHIND, Part, is_text, parts, place

_SHOWN_BYTES = 16
_SHOWN_CHARACTERS = 160
_SHOWN_PLACES = 5

_DATE = re.compile(
    rb"(?:19|20)\d\d-[01]\d-[0-3]\d|[0-2]\d:[0-5]\d:[0-5]\d|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d"
)
_NAME = rb"[\w.+~@ \x80-\xff-]{2,}"
_PATH = re.compile(rb"(?<![\w.:>-])/" + _NAME + rb"(?:/" + _NAME + rb")+")
_LISTS = re.compile(r"(^|, )(the |section \.((dyn)?sym(tab)?|(dyn|sh)?str(tab)?|(gnu\.)?hash|rela?|(nv_)?debug_\w+)\b)")
"""names of parts that say something of others"""
_SECONDS = (1_262_304_000, 2_051_222_400)
"""the years in which a time in seconds may lie that a build wrote: from 2010 up to 2035"""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first thing in which a file is not as it should be."""

    place: str
    """`section .text`, `member a.o, section .comment`, `line 3`, `$.files[3].sha256`; empty for a whole file"""
    expected: str
    actual: str
    others: tuple[str, ...] = ()
    """further places, in order"""
    hint: str | None = None
    """what the difference itself tells of its cause"""

    @property
    def others_text(self) -> str:
        """Further places, in a few words; empty where there are none."""
        if not self.others:
            return ""
        shown = "; ".join(self.others[:_SHOWN_PLACES])
        more = len(self.others) - _SHOWN_PLACES
        return f"also {shown}" + (f" and {more} more" if more > 0 else "")


def difference(expected: bytes, actual: bytes, name: str) -> Difference:
    """In what `actual`, which is not `expected`, differs from it; `name` tells of JSON."""
    if name.endswith(".json"):
        with suppress(ValueError, RecursionError):
            found = _in_json(expected, actual)
            if found is not None:
                return found
    mine, other = parts(expected), parts(actual)
    if mine and other:
        return _in_parts(expected, mine, actual, other)
    if mine and len(expected) == len(actual):
        # It cannot be read any more: what lies where, the other file tells.
        return _in_bytes(expected, actual, mine)
    if is_text(expected) and is_text(actual):
        return _in_lines(expected, actual)
    return _in_bytes(expected, actual, mine)


def json_differences(expected: Any, actual: Any, path: str = "$") -> Iterator[tuple[str, Any, Any]]:
    """(path, value, value) wherever two JSON documents differ; a missing value is `...`."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in dict.fromkeys((*expected, *actual)):
            step = f".{key}" if re.fullmatch(r"[A-Za-z_]\w*", key) else f"[{json.dumps(key, ensure_ascii=False)}]"
            yield from json_differences(expected.get(key, ...), actual.get(key, ...), path + step)
    elif isinstance(expected, list) and isinstance(actual, list):
        for index in range(max(len(expected), len(actual))):
            mine = expected[index] if index < len(expected) else ...
            other = actual[index] if index < len(actual) else ...
            yield from json_differences(mine, other, f"{path}[{index}]")
    elif type(expected) is not type(actual) or expected != actual:
        yield path, expected, actual


def _in_json(expected: bytes, actual: bytes) -> Difference | None:
    """None where they are the same data. Raises ValueError and RecursionError for what is no JSON."""
    mine, other = json.loads(expected), json.loads(actual)
    found = list(json_differences(mine, other))
    if not found:
        return None
    path, value, other_value = found[0]
    hint = None
    if _sorted_lists(mine) == _sorted_lists(other):
        hint = "the order of the elements of a list: what wrote them went by the order of a folder or of a set"
    return Difference(
        place=path,
        expected=_json_text(value),
        actual=_json_text(other_value),
        others=tuple(path for path, _, _ in found[1:]),
        hint=hint or _hint(_json_text(value).encode(), _json_text(other_value).encode()),
    )


def _sorted_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted_lists(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((_sorted_lists(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def _json_text(value: Any) -> str:
    return "nothing" if value is ... else _short(json.dumps(value, ensure_ascii=False))


def _in_parts(expected: bytes, all_mine: Sequence[Part], actual: bytes, all_other: Sequence[Part]) -> Difference:
    # What lies between comes and goes as what is before it grows.
    mine, other = ([part for part in own if not part.name.startswith(BEHIND)] for own in (all_mine, all_other))
    names, other_names = [part.name for part in mine], [part.name for part in other]
    if names != other_names:
        missing = [name for name in names if name not in set(other_names)]
        added = [name for name in other_names if name not in set(names)]
        if not missing and not added:
            index = next(index for index, name in enumerate(names) if other_names[index] != name)
            return Difference(
                place="the order of its parts",
                expected=names[index],
                actual=other_names[index],
                hint="the order of members or sections: what made the file went by the order of a folder or of a set",
            )
        return Difference(
            place=(missing or added)[0],
            expected="such a part" if missing else "no such part",
            actual="none" if missing else "there is one",
            others=(*missing, *added)[1:],
        )
    by_name = {part.name: part for part in other}
    pairs = [(part, by_name[part.name]) for part in mine]
    differing = [(part, its) for part, its in pairs if part.of(expected) != its.of(actual)]
    if not differing:
        return _in_bytes(expected, actual, all_mine)
    # What lists other parts follows from them.
    differing.sort(key=lambda pair: _LISTS.search(pair[0].name) is not None)
    part, its = differing[0]
    text, other_text = part.of(expected), its.of(actual)
    hint = next(
        filter(None, (_hint_of_part(part, part.of(expected), its.of(actual)) for part, its in differing)),
        None,
    )
    at = _first(text, other_text)
    return Difference(
        place=part.name,
        expected=f"{_bytes_text(text, at)} of it",
        actual=f"{_bytes_text(other_text, at)} of it",
        others=tuple(part.name for part, _ in differing[1:]),
        hint=hint,
    )


def _hint_of_part(part: Part, expected: bytes, actual: bytes) -> str | None:
    if part.name.startswith("header of member"):
        fields = (("time", 16, 28), ("owner", 28, 34), ("group", 34, 40), ("mode", 40, 48))
        moved = [name for name, start, end in fields if expected[start:end] != actual[start:end]]
        if moved:
            return f"the {', '.join(moved)} of a file, which ar wrote down: it was not told to leave that out (ar -D)"
    return _hint(expected, actual)


def _in_lines(expected: bytes, actual: bytes) -> Difference:
    mine, other = expected.splitlines(keepends=True), actual.splitlines(keepends=True)
    index = _first(mine, other)
    line = mine[index] if index < len(mine) else b""
    other_line = other[index] if index < len(other) else b""
    hint = None
    if Counter(mine) == Counter(other):
        hint = "the order of lines: what wrote them went by the order of a folder or of a set"
    elif expected.replace(b"\r\n", b"\n") == actual.replace(b"\r\n", b"\n"):
        hint = "the ends of lines, which an editor or a checkout changed"
    others = [
        f"line {number + 1}"
        for number in range(index + 1, max(len(mine), len(other)))
        if mine[number : number + 1] != other[number : number + 1]
    ]
    return Difference(
        place=f"line {index + 1}",
        expected=_line_text(line),
        actual=_line_text(other_line),
        others=tuple(others),
        hint=hint or _hint(line, other_line),
    )


def _in_bytes(expected: bytes, actual: bytes, like: tuple[Part, ...] | Sequence[Part]) -> Difference:
    at = _first(expected, actual)
    sizes = "" if len(expected) == len(actual) else f", of {len(expected)} bytes"
    other_sizes = "" if not sizes else f", of {len(actual)} bytes"
    same_layout = tuple(like) if len(expected) == len(actual) else ()
    found = place(expected, at, same_layout) if at < len(expected) else "its end"
    others = []
    for part in same_layout:
        if part.name != found and part.of(expected) != part.of(actual):
            others.append(part.name)
    return Difference(
        place=found,
        expected=_bytes_text(expected, at) + sizes,
        actual=_bytes_text(actual, at) + other_sizes,
        others=tuple(others),
        hint=_hint(expected, actual),
    )


def _hint(expected: bytes, actual: bytes) -> str | None:
    """What two versions of a text or of a part of a file tell of why they differ."""
    only_actual, only_expected = _only(actual, expected), _only(expected, actual)
    for found in (only_actual, only_expected):
        if found and (path := _PATH.search(found)):
            return f"a path stands in it: {_short(path[0].decode(errors='replace'))}"
    if only_actual and only_expected and _DATE.search(only_actual) and _DATE.search(only_expected):
        return "a date or a time of day stands in it"
    if len(expected) == len(actual) and not (is_text(expected) and is_text(actual)):
        moved = [index for index, pair in enumerate(zip(expected, actual, strict=True)) if pair[0] != pair[1]]
        # Of two times, more than one byte differs.
        if len(moved) > 1 and moved[-1] - moved[0] < 4 and _is_time(expected, moved[0]) and _is_time(actual, moved[0]):
            return "4 bytes that may be a time in seconds"
    return None


def _only(text: bytes, other: bytes) -> bytes:
    """The words of `text`, to the ends of the line or the string, that `other` does not have."""
    known = set(re.split(rb"[\0\n\"]", other))
    return b"\n".join(word for word in re.split(rb"[\0\n\"]", text) if word not in known)


def _is_time(data: bytes, at: int) -> bool:
    """Whether the 4 bytes around an offset, as they are aligned, can be a time in seconds."""
    start = at & ~3
    return _SECONDS[0] <= int.from_bytes(data[start : start + 4], "little") < _SECONDS[1]


def _first(mine: Sequence[Any], other: Sequence[Any]) -> int:
    """The index of the first element in which two sequences, which are not equal, differ."""
    shorter = min(len(mine), len(other))
    if isinstance(mine, bytes) and isinstance(other, bytes):
        # Of a long file, not byte by byte.
        low, high = 0, shorter
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if mine[low:middle] == other[low:middle] else (low, middle - 1)
        return low
    return next((index for index in range(shorter) if mine[index] != other[index]), shorter)


def _bytes_text(data: bytes, at: int) -> str:
    """Some bytes from an offset on, as text where they are one."""
    some = data[at : at + _SHOWN_BYTES]
    if not some:
        return f"the end, at byte {at}"
    text = some.rstrip(b"\0")
    if len(text) >= 4 and text.isascii() and text.decode("ascii").isprintable():
        start = max(data.rfind(b"\0", 0, at), data.rfind(b"\n", 0, at)) + 1
        start = max(start, at - 60)
        around = data[start : at + 100].split(b"\0")[0].split(b"\n")[0]
        if around.isascii() and around.decode("ascii").isprintable():
            return f"{around.decode('ascii')!r}, at byte {at}"
    return f"{some.hex(' ')}, at byte {at}"


def _line_text(line: bytes) -> str:
    if not line:
        return "no such line"
    return _short(repr(line.decode("utf-8", "backslashreplace")))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
