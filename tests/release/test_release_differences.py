"""In what two files of one name differ: the place in words that people can look up, and what the bytes tell of why."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.packaging.archive import read_archive
from kiln.release.differences import difference
from kiln.release.places import is_text, parts, place

STEM = "scratch-1.2.0"


@pytest.mark.parametrize(
    "name",
    [
        "images/sm_80/twice_fp32_128.cubin",
        "images/gfx942/twice_fp32_128.hsaco",
        "lib/libscratch.a",
        "bundles/scale_fp32_128.fatbin",
    ],
)
def test_parts_are_the_whole_file(released: Path, name: str) -> None:
    data = (released / STEM / name).read_bytes()
    covered = bytearray(len(data))
    for part in parts(data):
        covered[part.start : part.end] = b"\1" * (part.end - part.start)
    assert set(covered) == {1}
    names = [part.name for part in parts(data)]
    assert len(names) == len(set(names)) > 3


def test_a_byte_of_a_cubin_is_in_its_section(released: Path) -> None:
    data = (released / STEM / "images/sm_80/twice_fp32_128.cubin").read_bytes()
    text = next(part for part in parts(data) if part.name == "section .text.scale_kernel")
    changed = bytearray(data)
    changed[text.start + 5] ^= 1
    found = difference(data, bytes(changed), "x.cubin")
    assert found.place == "section .text.scale_kernel"
    assert "at byte 5 of it" in found.actual
    assert found.expected.split()[0] != found.actual.split()[0]
    assert found.others == ()


def test_a_byte_of_an_archive_is_in_its_members_section(released: Path) -> None:
    data = (released / STEM / "lib/libscratch.a").read_bytes()
    members, _ = read_archive(data)
    inner = next(part for part in parts(members[0].data) if part.name.startswith("section .text"))
    changed = bytearray(data)
    changed[members[0].offset + inner.start] ^= 0x40
    assert difference(data, bytes(changed), "x.a").place == f"member {members[0].name}, {inner.name}"


def test_a_file_that_its_damage_makes_unreadable_is_told_by_the_other_one(released: Path) -> None:
    """A cubin whose header lies has no sections; where the byte is, the one that is whole tells."""
    data = (released / STEM / "images/sm_80/twice_fp32_128.cubin").read_bytes()
    changed = bytearray(data)
    changed[40] ^= 1
    assert parts(bytes(changed)) == ()
    assert difference(data, bytes(changed), "x.cubin").place == "the ELF header"
    assert place(bytes(changed), 40, parts(data)) == "the ELF header"


def test_a_file_that_ends_early_is_told(released: Path) -> None:
    data = (released / STEM / "images/sm_80/twice_fp32_128.cubin").read_bytes()
    found = difference(data, data[:-9], "x.cubin")
    assert (found.expected.split(", of ")[1], found.actual.split(", of ")[1]) == (
        f"{len(data)} bytes",
        f"{len(data) - 9} bytes",
    )
    assert found.actual.startswith("the end")


def archive(*members: tuple[str, bytes, int]) -> bytes:
    """name, content, time"""
    head = "{:<16}{:<12}0     0     644     {:<10}`\n"
    made = b"!<arch>\n"
    for name, data, time in members:
        made += head.format(f"{name}/", time, len(data)).encode() + data + b"\n" * (len(data) % 2)
    return made


def test_a_time_in_an_archive_is_called_one() -> None:
    found = difference(archive(("a.o", b"xx", 0)), archive(("a.o", b"xx", 1_700_000_000)), "lib.a")
    assert found.place == "header of member a.o"
    assert found.hint is not None and found.hint.startswith("the time of a file, which ar wrote down")


def test_another_order_of_members_is_called_one() -> None:
    first, second = ("a.o", b"xx", 0), ("b.o", b"yy", 0)
    found = difference(archive(first, second), archive(second, first), "lib.a")
    assert found.place == "the order of its parts"
    assert (found.expected, found.actual) == ("header of member a.o", "header of member b.o")
    assert found.hint is not None and "order" in found.hint


def test_a_member_that_is_missing_or_added_is_named() -> None:
    first, second = ("a.o", b"xx", 0), ("b.o", b"yy", 0)
    found = difference(archive(first, second), archive(first), "lib.a")
    assert (found.place, found.actual, found.others) == ("header of member b.o", "none", ("member b.o",))
    found = difference(archive(first), archive(first, second), "lib.a")
    assert (found.place, found.actual) == ("header of member b.o", "there is one")


def test_a_line_of_text_is_shown_as_both_have_it() -> None:
    found = difference(b"one\ntwo\nthree\nfour\n", b"one\n2\nthree\n4\n", "x.h")
    assert (found.place, found.expected, found.actual) == ("line 2", r"'two\n'", r"'2\n'")
    assert found.others == ("line 4",)
    assert found.hint is None


@pytest.mark.parametrize(
    ("expected", "actual", "hint"),
    [
        (b"a\nb\n", b"b\na\n", "the order of lines"),
        (b"a\nb\n", b"a\r\nb\r\n", "the ends of lines"),
        (b"made\n", b"made in /srv/build/kiln\n", "a path stands in it: /srv/build/kiln"),
        (b"on 2024-01-02\n", b"on 2025-03-04\n", "a date or a time"),
        (b"\0\1\2\3\x00\xf1\x53\x65", b"\0\1\2\3\x84\xf4\x53\x65", "4 bytes that may be a time"),
    ],
)
def test_bytes_tell_of_their_cause(expected: bytes, actual: bytes, hint: str) -> None:
    found = difference(expected, actual, "x")
    assert found.hint is not None and found.hint.startswith(hint)


def test_json_is_told_by_path() -> None:
    found = difference(b'{"a": [1, {"b c": 2}]}', b'{"a": [1, {"b c": "2"}]}', "x.json")
    assert (found.place, found.expected, found.actual) == ('$.a[1]["b c"]', "2", '"2"')
    found = difference(b'{"a": [1, 2]}', b'{"a": [2, 1]}', "x.json")
    assert found.hint is not None and "order of the elements" in found.hint
    found = difference(b'{"a": 1, "b": 2}', b'{"a": 1}', "x.json")
    assert (found.place, found.actual) == ("$.b", "nothing")


def test_json_of_the_same_data_is_told_by_line() -> None:
    assert difference(b'{"a": 1}\n', b'{"a":1}\n', "x.json").place == "line 1"


def test_what_is_text() -> None:
    assert is_text("straße\n".encode())
    assert not is_text(b"a\0b") and not is_text(b"\xff") and not is_text(b"\x1b[0m")
