"""Fat binaries: what the program makes of images is read back whole, and what is damaged in any place is refused."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from binaries_images import Built

from kiln.binaries.elf import open_elf
from kiln.binaries.fatbin import Entry, Part, check_fatbin, read_fatbin
from kiln.binaries.show import show
from kiln.errors import ImageError, PackagingError
from kiln.packaging.bundle import Bundled, check_alike, differing, make_bundle
from kiln.toolchain.nvcc import find_fatbinary

TARGETS = ("sm_80", "sm_90a", "sm_120a", "compute_80")
COUNT = 2000


@pytest.fixture(scope="module")
def bundled(images: dict[str, Built]) -> list[Bundled]:
    return [Bundled(target=name, data=images[name].data, facts=images[name].facts) for name in TARGETS]


@pytest.fixture(scope="module")
def made(bundled: list[Bundled], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_bundle(bundled, find_fatbinary(), tmp_path_factory.mktemp("bundle"))[0]


def parts(bundled: list[Bundled]) -> list[Part]:
    return [Part(target=image.target, data=image.data) for image in bundled]


def fake(folder: Path, script: str) -> Path:
    """A program in place of fatbinary; REAL in it is the real one."""
    path = folder / "fatbinary"
    path.write_text(f"#!/bin/sh\n{script.replace('REAL', str(find_fatbinary()))}\n")
    path.chmod(0o755)
    return path


def test_images_are_in_it_as_they_are(bundled: list[Bundled], made: bytes) -> None:
    """In their order: a cubin byte for byte, a PTX word for word, and where the entry says."""
    entries = read_fatbin(made)
    assert [entry.arch for entry in entries] == list(TARGETS)
    assert check_fatbin(entries, parts(bundled)) == []
    for entry, image in zip(entries[:3], bundled, strict=False):
        assert entry.data == image.data == made[entry.offset : entry.offset + len(image.data)]
    ptx = entries[3].data
    assert b"//" in bundled[3].data and b"//" not in ptx
    assert ptx.split()[:4] == [b".version", b"8.0", b".target", b"sm_80"]


def test_the_layout_is_the_one_that_is_written_down(bundled: list[Bundled], made: bytes) -> None:
    """Written by the docstring's words, with the PTX as the program leaves it, the file is the same byte for byte."""
    content = b""
    for image, entry in zip(bundled, read_fatbin(made), strict=True):
        is_ptx = entry.kind == "ptx"
        capability = int(re.sub(r"\D", "", image.target))
        said = open_elf(image.data).section(".nv.compat") if capability >= 100 else None
        flags = 0x11 | (0x100000 if image.target.endswith("a") else 0) | (0x1000000 if said else 0)
        data = entry.data + bytes(1 if is_ptx else 0)
        data += bytes(-len(data) % 8)
        minor, major = (0, 8) if is_ptx else (image.data[8], 1)
        behind = b"" if is_ptx else said.data if said else None
        extra = b"" if behind is None else struct.pack("<II", 72, len(behind)) + b"\0" + behind
        extra += bytes(-len(extra) % 8)
        content += struct.pack("<HHIQ", 1 if is_ptx else 2, 0x101, 64 + len(extra), len(data))
        content += struct.pack("<IIHHI", 0, 64 if extra else 0, minor, major, capability)
        content += struct.pack("<IIQQQ", 0, 0, flags, 0, 0) + extra + data
    assert made == struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def test_the_same_bytes_wherever_it_is_made(bundled: list[Bundled], made: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "somewhere else, with blanks"
    folder.mkdir()
    assert make_bundle(bundled, find_fatbinary(), folder)[0] == made
    assert str(tmp_path).encode() not in made


def test_2000_mutations_are_refused(bundled: list[Bundled], made: bytes) -> None:
    """Bytes changed, cut, added or moved in any place cost an error and nothing else.

    What is taken has the same words in its PTX, and all other bytes as they were.
    """
    originals, (*_, last) = parts(bundled), read_fatbin(made)
    chance = random.Random("fatbin")
    contents = [entry.offset for entry in read_fatbin(made)]
    taken = 0
    for number in range(COUNT):
        data = bytearray(made)
        # Headers are small, and half of the mutations are in them.
        before = chance.choice(contents) - chance.randrange(1, 81)
        place = before if number % 2 else chance.randrange(len(data))
        action = chance.randrange(5)
        if action == 0:
            data[place] ^= 1 << chance.randrange(8)
        elif action == 1:
            size = chance.choice((1, 2, 4, 8))
            data[place : place + size] = chance.choice((0, 1, 8, 64, 2**32 - 1, 2**64 - 1)).to_bytes(8, "little")[:size]
        elif action == 2:
            del data[place : place + chance.choice((1, 8, 64, len(data)))]
        elif action == 3:
            data[place:place] = bytes(chance.choice((1, 8, 64)))
        else:
            data[place : place + 8] = data[chance.randrange(len(data) - 8) :][:8]
        if data == made:
            continue
        try:
            findings = check_fatbin(read_fatbin(bytes(data)), originals)
        except ImageError as error:
            assert str(error).strip() and error.remedy
            continue
        assert all(finding.expected and finding.actual for finding in findings)
        if not findings:
            taken += 1
            assert data[: last.offset] == made[: last.offset]
            assert data[last.offset :].split() == made[last.offset :].split()
    assert taken < COUNT / 100


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("swapped", "the fat binary holds other images than were put in"),
        ("missing", "the fat binary holds other images than were put in"),
        ("other code", "the fat binary holds another image for sm_90a"),
        ("other words", "the fat binary holds another PTX for compute_80"),
    ],
)
def test_other_images_are_found(bundled: list[Bundled], made: bytes, edit: str, said: str) -> None:
    asked = parts(bundled)
    if edit == "swapped":
        asked[0], asked[1] = asked[1], asked[0]
    elif edit == "missing":
        del asked[2]
    elif edit == "other code":
        asked[1] = Part(target="sm_90a", data=asked[1].data[:-1] + b"\x01")
    else:
        asked[3] = Part(target="compute_80", data=asked[3].data.replace(b"ret;", b"exit;"))
    (finding,) = check_fatbin(read_fatbin(made), asked)
    assert finding.check == said


def test_a_comment_that_is_none_counts() -> None:
    """What looks like a comment in a text of the PTX is part of it."""
    one, other = (b'.version 8.0 .file 1 "/a//%s" /* c */ .target sm_80' % name for name in (b"b", b"c"))
    entry = Entry(kind="ptx", arch="compute_80", offset=96, data=one)
    assert check_fatbin([entry], [Part(target="compute_80", data=one)]) == []
    assert len(check_fatbin([entry], [Part(target="compute_80", data=other)])) == 1


def test_what_is_compressed_is_refused(bundled: list[Bundled], tmp_path: Path) -> None:
    """No driver has to unpack it, whatever it knows; and the images can be compared."""
    program = fake(tmp_path, 'shift 3; exec REAL -64 --create=bundle --compress-all "$@"')
    with pytest.raises(PackagingError) as caught:
        make_bundle(bundled, program, tmp_path)
    print(caught.value)
    assert "fatbinary ended well, but what it made is not what was asked for: the image at offset 16 is compressed" in (
        str(caught.value)
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", "the file cannot be read: No such file or directory"),
        (": > bundle", "this is no fat binary"),
        ('REAL "$@"; truncate -s -8 bundle', "the fat binary is not whole"),
        ("exec REAL $1 $2 $3 $5 $4 $6 $7", "the fat binary holds other images than were put in"),
        ("cp 1 0; exec REAL $1 $2 $3 ${4%%sm=*}sm=90a,file=0 $5 $6 $7", "holds other images"),
        ("echo 'no space left' >&2; exit 7", "fatbinary could not make a fat binary: exit code 7"),
        ('exec REAL --no-such-option "$@"', "fatbinary could not make a fat binary: exit code 1"),
        ("kill -9 $$", "fatbinary could not make a fat binary: signal 9"),
    ],
)
def test_the_program_is_not_believed(bundled: list[Bundled], tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(PackagingError) as caught:
        make_bundle(bundled, fake(tmp_path, script), tmp_path)
    print(caught.value)
    assert said in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["fatbinary"]


# -- what a launch must know


def test_images_for_one_capability_are_launched_alike(bundled: list[Bundled]) -> None:
    """For others, a driver says which it took."""
    check_alike("softmax", bundled)
    other = {name: Bundled(target=name, data=b"", facts=bundled[0].facts) for name in ("sm_80", "compute_80", "sm_90a")}
    larger = replace(bundled[0].facts, shared_dynamic=4096, cluster=(2, 1, 1))
    assert differing([bundled[0].facts, larger]) == ["cluster", "shared_dynamic"]
    check_alike("softmax", [other["sm_80"], replace(other["sm_90a"], facts=larger)])
    with pytest.raises(PackagingError) as caught:
        check_alike("softmax", [other["sm_80"], replace(other["compute_80"], facts=larger)])
    print(caught.value)
    assert "softmax cannot have a fat binary: the images for capability 80 are not launched alike (cluster)" in (
        str(caught.value)
    )
    assert "sm_80: 1 x 1 x 1; compute_80: 2 x 1 x 1" in str(caught.value)
    renamed = replace(bundled[0].facts, entry="another")
    with pytest.raises(PackagingError, match="the images have different entries"):
        check_alike("softmax", [other["sm_80"], replace(other["sm_90a"], facts=renamed)])


# -- shown to people


def test_what_inspect_shows(made: bytes, tmp_path: Path) -> None:
    path = tmp_path / "softmax.fatbin"
    path.write_bytes(made)
    shown = show(path)
    text = "\n".join(shown.lines())
    print(text)
    assert re.search(r"^  kind +fatbin$", text, re.MULTILINE)
    for target in TARGETS:
        assert re.search(rf"^  {target} +(cubin|ptx) of \d+ bytes at offset \d+, entry \w+$", text, re.MULTILINE)
    plain = shown.plain()
    assert [image["arch"] for image in plain["images"]] == list(TARGETS)
    assert plain["kind"] == "fatbin" and plain["size"] == len(made)


def test_inspect_refuses_what_says_another_target(made: bytes, tmp_path: Path) -> None:
    """The header says 8.6 of a cubin for 8.0."""
    path = tmp_path / "softmax.fatbin"
    path.write_bytes(made[:44] + struct.pack("<I", 86) + made[48:])
    with pytest.raises(ImageError) as caught:
        show(path)
    print(caught.value)
    assert str(caught.value).startswith(f"{path}: an image in the fat binary is for another target than it says")
