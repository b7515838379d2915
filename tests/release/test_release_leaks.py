"""What of this machine stands in a release is found wherever it stands; what proves nothing is not looked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kiln.release.leaks import Sign, choose, find_leaks, signs_of_this_machine
from project import Project

HOME = {"the home folder": Path("/home/mallory")}
STEM = "scratch-1.2.0"


def leaks(
    files: Mapping[str, bytes],
    folders: Mapping[str, Path] | None = None,
    names: tuple[str, ...] = (),
    texts: tuple[bytes, ...] = (),
) -> list[str]:
    """What is found, as `file, place: what`."""
    found = choose(folders or {}, [("the user's name", name) for name in names], texts, sum(map(len, files.values())))
    return [f"{fault.where}: {fault.what}" for fault in find_leaks(files, found.signs)]


@pytest.mark.parametrize(
    "data",
    [
        b"from /home/mallory/x.c\n",
        b'"file:///home/mallory/x"\n',
        b"-I/home/mallory/include\n",
        b"/home/mallory",
        "/home/mallory/x".encode("utf-16-le"),
        b"\0\x7f/home/mallory/x.c\0",
    ],
)
def test_a_folder_is_found_however_it_is_written(data: bytes) -> None:
    assert len(leaks({"a": data}, HOME)) == 1


@pytest.mark.parametrize("data", [b"/home/mallory2/x", b"/home/mallory-x", b"/home/Mallory/x", b"/home/\0mallory"])
def test_another_folder_is_none(data: bytes) -> None:
    assert leaks({"a": data}, HOME) == []


@pytest.mark.parametrize(
    "data",
    [
        "/srv/Käfig eins/x".encode(),
        b'"/srv/K\\u00e4fig eins/x"',
        b'"/srv/K\\303\\244fig eins/x"',
        b"file:///srv/K%C3%A4fig%20eins/x",
        b"file:///srv/K%c3%a4fig%20eins/x",
        "x: /srv/Käfig\\ eins/x".encode(),
    ],
)
def test_a_folder_with_a_blank_and_a_letter_beyond_ascii(data: bytes) -> None:
    """As it is, and as JSON, assemblers, URLs and depfiles of make write it."""
    assert len(leaks({"a": data}, {"the build folder": Path("/srv/Käfig eins")})) == 1


def test_a_folder_of_one_component_has_to_begin_a_path() -> None:
    """Where a container builds in /src, that word is in many a text; a path to a file below it is not."""
    folders = {"the project's folder": Path("/srcs")}
    others = b"lives in /srcs or elsewhere; https://example.org/srcs/x; /<kiln>/srcs/x; ./srcs/x"
    assert leaks({"a": others}, folders) == []
    assert len(leaks({"a": b"at /srcs/kernels/x.py\n"}, folders)) == 1
    assert leaks({"a": b"at /srcs/kernels/x.py\n"}, folders, texts=(b"for example /srcs/x",)) == []


def test_the_place_is_told() -> None:
    assert leaks({"a/b.h": b"one\ntwo /home/mallory/x\n"}, HOME) == [
        "a/b.h, line 2: the home folder stands in a released file"
    ]


def test_one_place_is_told_once_as_the_longest() -> None:
    """The project lies in the home folder of a user who is called like it."""
    folders = {**HOME, "the project's folder": Path("/home/mallory/kernels")}
    data = b"/home/mallory/kernels/a.py /home/mallory/kernels/b.py"
    assert leaks({"a": data}, folders, ("mallory",)) == ["a, line 1: the project's folder stands in a released file"]
    found = leaks({"a": data + b" by mallory in /home/mallory/x"}, folders, ("mallory",))
    assert [line.partition(": ")[2].partition(" stands")[0] for line in found] == [
        "the project's folder",
        "the home folder",
        "the user's name",
    ]


def test_a_name_is_found_as_a_word() -> None:
    assert len(leaks({"a": b"built by mallory\n"}, names=("mallory",))) == 1
    assert len(leaks({"a": b"\0mallory@host\0"}, names=("mallory",))) == 1
    assert leaks({"a": b"mallory_kernel mallorys xmallory"}, names=("mallory",)) == []


@pytest.mark.parametrize("name", ["root", "user", "localhost", "build", "ubuntu", "vm", "x", "1234", "cafe", "0ff1ce"])
def test_a_name_that_tells_nothing_is_not_looked_for(name: str) -> None:
    found = choose({}, [("the host's name", name)], (), 1)
    assert found.signs == ()
    assert len(found.left_out) == 1 and repr(name) in found.left_out[0]


def test_a_word_of_what_releases_are_made_from_is_not_looked_for() -> None:
    """A user may be called like a word of a license or of a kernel: `grid`, `mark`."""
    assert leaks({"a": b"set the mark\n"}, names=("mark",), texts=(b"a mark of quality",)) == []
    assert len(leaks({"a": b"set the mark\n"}, names=("mark",), texts=(b"a benchmark",))) == 1


def test_chance_raises_no_alarm() -> None:
    """Of three letters, machine code of 100 MB has some six; in texts they are still found."""
    (sign,) = choose({}, [("the user's name", "zoe")], (), 100_000_000).signs
    assert sign.only_in_texts
    assert not list(find_leaks({"x.cubin": b"\x7fELF\0\1 zoe \xff"}, [sign]))
    assert len(list(find_leaks({"x.h": b"/* zoe */\n"}, [sign]))) == 1
    (sign,) = choose({}, [("the user's name", "zoe.washburne")], (), 100_000_000).signs
    assert not sign.only_in_texts


def test_no_folder_is_the_root_of_all() -> None:
    assert choose({"the home folder": Path("/")}, (), (), 1).signs == ()


def test_a_release_has_nothing_of_the_machine_that_made_it(release_library: Project, released: Path) -> None:
    """The signs of this machine are those that are looked for, and none is in any file."""
    folder = released / STEM
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    project = release_library.folder
    found = signs_of_this_machine({"the project's folder": project}, (), sum(map(len, files.values())))
    assert Sign(what="the project's folder", text=str(project)) in found.signs
    assert list(find_leaks(files, found.signs)) == []
    files["include/scratch/scratch.h"] += f"/* {project}/kernels/twice.py */\n".encode()
    (fault,) = find_leaks(files, found.signs)
    assert str(fault.where).startswith("include/scratch/scratch.h, line ")
    assert str(project) in str(fault.actual)
