"""Files of choices: what Python reads and writes is what the tuner in C does, and what both refuse."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from c_doubles import Doubles
from kiln.errors import ChoicesError, Position
from kiln.packaging.choice_files import (
    EXTENTS,
    LONGEST_LINE,
    Choice,
    bucket_of,
    device_word,
    parse_choices,
    parse_line,
    read_choices,
    render_choices,
    write_choices,
)
from project import REPOSITORY

HERE = Position(file="choices", line=7)

names = st.text("abcXYZ019_", min_size=1, max_size=8)
words = st.text("abcXYZ019_+-.:", min_size=1, max_size=12)
buckets = st.integers(0, 2**64).map(bucket_of)
choices = st.builds(
    Choice,
    library=st.sampled_from(["kiln", "kernels"]),
    group=names,
    device=words,
    shape=st.lists(st.tuples(names, buckets), max_size=4).map(tuple),
    variant=names,
    target=words,
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    nanoseconds=st.integers(0, 2**63 - 1),
)


def example(**changes: object) -> Choice:
    values: dict[str, object] = {
        "library": "kernels",
        "group": "softmax_fp16",
        "device": "NVIDIA_H200",
        "shape": (("n_cols", 2048), ("n_rows", 8192)),
        "variant": "softmax_fp16_2048",
        "target": "sm_90a",
        "sha256": "5f" * 32,
        "nanoseconds": 12345,
    }
    return Choice(**{**values, **changes})  # type: ignore[arg-type]  # the values are of the right types


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder to work in, which the C program finds."""
    folder, before = tmp_path_factory.mktemp("place"), Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


shared = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_a_line() -> None:
    line = (
        "library=kernels group=softmax_fp16 device=NVIDIA_H200 shape=n_cols:2048,n_rows:8192"
        f" variant=softmax_fp16_2048 target=sm_90a sha256={'5f' * 32} nanoseconds=12345"
    )
    assert example().line == line
    assert parse_line(line, HERE) == example()
    assert parse_line(example(shape=()).line, HERE).shape == ()
    assert " shape=- " in example(shape=()).line


def test_the_page_shows_what_is_read() -> None:
    """The example of docs/choices.md is a file."""
    page = (REPOSITORY / "docs" / "choices.md").read_text()
    (text,) = re.findall(r"((?:    .*\n)*    kernel-choices 1\n(?:    .*\n)*)", page)
    found = parse_choices("".join(f"{line[4:]}\n" for line in text.splitlines()).encode(), "page")
    assert len(found) == 3
    assert f"The first {EXTENTS}" in page or f"first {EXTENTS}" in page
    assert str(LONGEST_LINE) in page


@shared
@given(found=st.lists(choices, max_size=6))
def test_what_python_writes_c_reads_and_writes_alike(
    tune_cases: Path, doubles: Doubles, place: Path, found: list[Choice]
) -> None:
    write_choices(Path("from"), found)
    done = doubles.run("none", tune_cases, "copied")
    own = [choice for choice in found if choice.library == "kiln"]
    kept = {choice.key for choice in found}
    foreign = sum(key[0] != "kiln" for key in kept)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == f"status 0 taken {len(kept) - foreign} foreign {foreign} bad 0"
    assert Path("to").read_text() == render_choices(own)
    assert set(read_choices(Path("to"))) == set({each.key: each for each in own}.values())


@shared
@given(first=st.lists(choices, max_size=5), second=st.lists(choices, max_size=5), shares=st.booleans())
def test_both_merge_alike(
    tune_cases: Path, doubles: Doubles, place: Path, first: list[Choice], second: list[Choice], shares: bool
) -> None:
    second = [*second, *(first[:2] if shares else [])]
    write_choices(Path("first"), first)
    write_choices(Path("second"), second)
    assert doubles.run("none", tune_cases, "merged").returncode == 0
    assert Path("to").read_text() == render_choices([*first, *second])


@shared
@given(choice=choices, data=st.data())
def test_both_refuse_the_same_lines(
    tune_cases: Path, doubles: Doubles, place: Path, choice: Choice, data: st.DataObject
) -> None:
    """A line with some bytes of it changed, left out or put in."""
    line = bytearray(choice.line.encode())
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(line) - 1))
        byte = data.draw(st.sampled_from(b"0189aZ=:,-_ \t\r\0#\xc3"))
        line[at : at + data.draw(st.integers(0, 1))] = bytes([byte]) if data.draw(st.booleans()) else b""
    Path("from").write_bytes(b"kernel-choices 1\n" + line + b"\n")
    last = doubles.run("none", tune_cases, "copied").stdout.splitlines()[-1]
    try:
        found = read_choices(Path("from"))
    except ChoicesError:
        assert last == "status 0 taken 0 foreign 0 bad 1"
    else:
        own = sum(each.library == "kiln" for each in found)
        assert last == f"status 0 taken {own} foreign {len(found) - own} bad 0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "choices:1:1: this is no file of choices\n  expected: a first line kernel-choices 1"),
        ("kernel-choices\n", "choices:1:1: the file is of another schema version\n  expected: 1\n  actual: ''"),
        ("kernel-choices 2\nx\n", "choices:1:1: the file is of another schema version\n  expected: 1\n  actual: '2'"),
        (
            "kernel-choices 1\n\n# x\nnonsense\n",
            "choices:4:1: word 1 of the line is not its library\n  expected: library=",
        ),
        ("kernel-choices 1\nlibrary=a\n", "choices:2:1: word 2 of the line is not its group\n"),
    ],
)
def test_a_file_that_is_none(text: str, said: str) -> None:
    with pytest.raises(ChoicesError) as caught:
        parse_choices(text.encode(), "choices")
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("n_cols:2048", "n_cols:2047", "shape has no such value"),
        ("n_cols:2048", "n_cols:02048", "shape has no such value"),
        ("n_cols:2048", f"n_cols:{2**65}", "shape has no such value"),
        ("n_cols:2048", "n cols:2048", "shape has no such value"),
        ("NVIDIA_H200", "NVIDIA H200", "word 4 of the line is not its shape"),
        ("NVIDIA_H200", "NVIDIA/H200", "device has no such value"),
        ("5f", "5F", "sha256 has no such value"),
        ("=12345", f"={2**63}", "nanoseconds has no such value"),
        ("=12345", "=12345 ", "something follows the last word of the line"),
        ("=softmax_fp16 ", "= ", "group has no such value"),
        ("=softmax_fp16 ", f"={'a' * LONGEST_LINE} ", "the line has 2"),
    ],
)
def test_a_line_that_is_none(before: str, after: str, said: str) -> None:
    with pytest.raises(ChoicesError) as caught:
        parse_line(example().line.replace(before, after), HERE)
    assert str(caught.value).startswith(f"choices:7:1: {said}")
    assert "remove" in str(caught.value)


def test_lines_end_as_editors_end_them_and_the_last_choice_holds() -> None:
    later = example(nanoseconds=1)
    text = f"kernel-choices 1\r\n{example().line}\r\nkernel-choices 1\n{later.line}"
    assert parse_choices(text.encode(), "choices") == (example(), later)
    assert render_choices([example(), later]) == f"kernel-choices 1\n{later.line}\n"


def test_what_no_file_can_hold_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "choices"
    write_choices(path, [example()])
    for wrong in ({"group": "a b"}, {"shape": (("n", 3),)}, {"nanoseconds": -1}, {"device": ""}):
        with pytest.raises(ChoicesError):
            write_choices(path, [example(), example(**wrong)])
    assert read_choices(path) == (example(),)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ChoicesError, match="cannot be written: Is a directory"):
        (tmp_path / "folder").mkdir()
        write_choices(tmp_path / "folder", [example()])
    with pytest.raises(ChoicesError, match="cannot be read: No such file"):
        read_choices(tmp_path / "missing")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["choices", "folder"]


def test_buckets_and_devices() -> None:
    assert [bucket_of(value) for value in (-5, 0, 1, 2, 3, 4, 5, 2**63, 2**64 - 1)] == [
        *(0, 0, 1, 2, 4, 4, 8),
        *(2**63, 2**64),
    ]
    assert device_word("NVIDIA H100 (80 GB)") == "NVIDIA_H100__80_GB_"
    assert device_word("gfx90a:sramecc+:xnack-") == "gfx90a:sramecc+:xnack-"
    assert device_word("é" * 100) == "_" * 127
