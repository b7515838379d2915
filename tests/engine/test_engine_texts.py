"""What digests are of: kept with the state for people to compare with, bounded, and in nobody's way when damaged."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from kiln.digests import digest_bytes
from kiln.engine import state as state_module
from kiln.engine.rows import Output, Row
from kiln.engine.state import State


def text_of(number: int, length: int = 1000) -> tuple[str, str]:
    """A digest, and a text that does not pack well."""
    text = random.Random(number).randbytes(length).hex()
    return digest_bytes(text.encode()), text


def row(*digests: str) -> Row:
    """The record of a step with these inputs."""
    output = Output(path="a", size=1, ctime_ns=1, sha256="0" * 64)
    return Row(components=dict(zip("abc", digests, strict=False)), outputs=(output,), seconds=0.0, peak_memory=0)


def test_texts_outlive_the_process_and_are_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    digest, text = text_of(1)
    state = State(path)
    assert state.lacks_text(digest) and state.text(digest) is None
    state.keep_texts({digest: text})
    state.keep_texts({digest: "another"})
    assert not state.lacks_text(digest) and state.text(digest) == text
    state.close()
    again = State(path)
    assert again.text(digest) == text and not again.lacks_text(digest)
    assert again.text("0" * 64) is None


def test_bytes_that_are_no_text_are_kept_too(tmp_path: Path) -> None:
    state = State(tmp_path / "state.sqlite")
    text = b"caf\xe9 \xff".decode("utf-8", "surrogateescape")
    state.keep_texts({"0" * 64: text})
    assert State(state.path).text("0" * 64) == text


def test_reading_writes_nothing(tmp_path: Path) -> None:
    state = State(tmp_path / "state.sqlite")
    assert state.lacks_text("0" * 64) and state.text("0" * 64) is None
    assert not list(tmp_path.iterdir())


def test_a_text_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    state = State(tmp_path / "state.sqlite")
    state.keep_texts({"0" * 64: "x" * (256 << 10), "1" * 64: "x" * ((256 << 10) + 1)})
    assert state.text("0" * 64) is not None and state.text("1" * 64) is None


def test_what_no_record_speaks_of_goes_first_and_then_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_TEXTS_LIMIT", 20_000)
    texts = dict(map(text_of, range(30)))
    digests = list(texts)
    state = State(tmp_path / "state.sqlite")
    for number, digest in enumerate(digests):
        state.keep_texts({digest: texts[digest]})
        if number % 2 == 0:
            state.record(f"step {number}", row(digest))
        kept = sum(len(state.text(each) or "") for each in digests)
        # They pack to half their length or a little more.
        assert kept // 2 < 22_000
    left = [number for number, digest in enumerate(digests) if state.text(digest) is not None]
    assert left == sorted(left) and left[-1] == 29
    assert any(number % 2 == 0 for number in left)
    before_last_drop = [number for number in left if number < 20]
    assert all(number % 2 == 0 for number in before_last_drop)
    assert [number for number in range(30) if not State(state.path).lacks_text(digests[number])] == left


def test_a_damaged_text_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    state = State(path)
    digests = []
    for number in range(3):
        digest, text = text_of(number)
        digests.append(digest)
        state.keep_texts({digest: text})
    state.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE texts SET text = substr(text, 1, 100) WHERE digest = ?", (digests[0],))
        connection.execute("UPDATE texts SET text = 'text' WHERE digest = ?", (digests[1],))
    again = State(path)
    assert again.text(digests[0]) is None and again.text(digests[1]) is None
    assert again.text(digests[2]) == text_of(2)[1]


def test_a_state_that_cannot_be_read_has_no_texts_and_gets_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    digest, text = text_of(1)
    path.write_bytes(b"not a database" * 100)
    state = State(path)
    assert state.text(digest) is None and state.lacks_text(digest)
    state.keep_texts({digest: text})
    state.close()
    assert State(path).text(digest) == text


def test_a_file_that_lost_its_end_costs_no_build(tmp_path: Path) -> None:
    """SQLite itself does not miss what is cut off the last page: texts came back without a size."""
    whole = State(tmp_path / "whole.sqlite")
    for number in range(20):
        digest, text = text_of(number, 500)
        whole.keep_texts({digest: text})
        whole.record(str(number), row(digest))
    whole.close()
    data = whole.path.read_bytes()
    for cut in range(1, 4096, 256):
        path = tmp_path / f"{cut}.sqlite"
        path.write_bytes(data[:-cut])
        state = State(path)
        digest, text = text_of(100)
        state.record("new", row(digest))
        state.keep_texts({digest: text})
        state.close()
        assert state.warnings and State(path).text(digest) == text and not State(path).warnings
