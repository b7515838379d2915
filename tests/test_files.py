"""What a build asks of files and the environment is noted, and what was noted tells when an answer is another one."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kiln import files
from kiln.files import FOR_ALL, Memo, Notes, asked_by, holds, noted_in

LONG_AGO = time.time() - 1000


def settle() -> None:
    """Wait until what was written shows by its time stamps when it is written again."""
    time.sleep(files._SETTLED / 1e9 + 0.02)


def notes_of(ask: Callable[[], object]) -> Notes:
    notes = Notes()
    with noted_in(notes):
        ask()
    return notes


def test_every_question_is_noted_for_whoever_asks(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    notes = Notes()
    with noted_in(notes):
        files.read(tmp_path / "a")
        with asked_by("kernel"):
            files.is_file(tmp_path / "b")
            with asked_by(FOR_ALL):
                files.variable("HOME")
    assert notes.asked == {
        FOR_ALL: {("bytes", str(tmp_path / "a")), ("variable", "HOME")},
        "kernel": {("kind", str(tmp_path / "b"))},
    }
    files.read(tmp_path / "a")
    assert len(notes.answers) == 3, "nothing is noted behind the block"


def test_who_asks_for_a_remembered_value_has_asked_what_it_was_found_with(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    outer, inner = Memo[str, bytes](), Memo[str, bytes]()

    def find() -> bytes:
        return inner.get("a", lambda: files.read(tmp_path / "a"))

    inner.get("a", lambda: files.read(tmp_path / "a"))
    notes = Notes()
    with noted_in(notes):
        for owner in ("one", "two"):
            with asked_by(owner):
                assert outer.get("a", find) == b"one"
    question = ("bytes", str(tmp_path / "a"))
    assert notes.asked == {"one": {question}, "two": {question}}


def test_what_could_not_be_found_is_not_remembered(tmp_path: Path) -> None:
    memo = Memo[str, bytes]()
    with pytest.raises(FileNotFoundError):
        memo.get("a", lambda: files.read(tmp_path / "a"))
    (tmp_path / "a").write_text("one")
    assert memo.get("a", lambda: files.read(tmp_path / "a")) == b"one"


def test_two_answers_to_one_question_are_told(tmp_path: Path) -> None:
    def ask() -> None:
        files.is_file(tmp_path / "a")
        (tmp_path / "a").touch()
        files.is_file(tmp_path / "a")

    assert notes_of(ask).unsteady == {("kind", str(tmp_path / "a"))}


def test_a_file_that_is_edited_behind_its_time_stamps_is_noticed(tmp_path: Path) -> None:
    """Written right before it is read, a file may be written again in the same tick of the file system's clock."""
    path = tmp_path / "a"
    path.write_text("one")
    notes = notes_of(lambda: files.read(path))
    ((question, noted),) = notes.answers.items()
    assert noted[1] is None, "its state says nothing yet"
    path.write_text("two")
    assert not holds(question, noted)[0]


def test_a_touched_file_holds_and_gets_a_new_state(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    settle()
    ((question, noted),) = notes_of(lambda: files.read(path)).answers.items()
    assert noted[1] is not None
    assert holds(question, noted) == (True, noted[1])
    os.utime(path)
    settle()
    is_so, state = holds(question, noted)
    assert is_so
    assert state not in (None, noted[1])


def test_links_programs_variables_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    for folder in (early, late):
        folder.mkdir()
    (late / "tool").write_text("#!/bin/sh\n")
    (late / "tool").chmod(0o755)
    (late / "package").mkdir()
    (late / "package" / "__init__.py").touch()
    (tmp_path / "link").symlink_to(late)
    monkeypatch.setenv("PATH", f"{early}:{late}")
    monkeypatch.setenv("WORD", "one")

    def changed(ask: Callable[[], object], edit: Callable[[], object]) -> bool:
        answers = notes_of(ask).answers
        assert all(holds(*each)[0] for each in answers.items())
        edit()
        return not all(holds(*each)[0] for each in answers.items())

    def shadow(name: str) -> None:
        (early / name).write_text("#!/bin/sh\n")
        (early / name).chmod(0o755)

    def relink() -> None:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(early)

    assert changed(lambda: files.find_package("package", [str(early), str(late)]), lambda: shadow("package.py"))
    assert changed(lambda: files.which("tool"), lambda: shadow("tool"))
    assert changed(lambda: files.real(tmp_path / "link"), relink)
    assert changed(lambda: files.variable("WORD"), lambda: monkeypatch.setenv("WORD", "two"))
    assert changed(lambda: files.below(late, ".py"), lambda: (late / "package" / "new.py").touch())
    assert not changed(lambda: files.below(late, ".py"), lambda: (late / "__pycache__").mkdir())


@pytest.mark.parametrize("seed", range(20))
def test_answers_hold_just_as_long_as_they_are_the_same(tmp_path: Path, seed: int) -> None:
    """Random files, questions and edits: what `holds` says from time stamps is what asking again would say."""
    chance = random.Random(seed)
    places = [tmp_path / name for name in ("a", "b", "c/d", "c/e", "f/g/h")]

    def edit() -> None:
        path = chance.choice(places)
        match chance.choice(["write", "touch", "remove", "link", "folder"]):
            case "write":
                if not path.is_dir():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.unlink(missing_ok=True)
                    path.write_text(chance.choice(["one", "two", "three"]))
            case "touch" if path.is_file():
                os.utime(path, (LONG_AGO, chance.choice([LONG_AGO, time.time()])))
            case "remove" if path.is_file():
                path.unlink()
            case "link" if path.parent.is_dir() and not os.path.lexists(path):
                path.symlink_to(chance.choice(places))
            case "folder" if not os.path.lexists(path) and (path.parent.is_dir() or not path.parent.exists()):
                path.mkdir(parents=True)

    def ask() -> None:
        for path in places:
            for question in (files.is_file, files.is_entry, files.names, files.read, files.real):
                with suppress(OSError, RuntimeError):
                    question(path)
        files.below(tmp_path)

    for _ in range(8):
        edit()
    if chance.random() < 0.5:
        settle()
    before = notes_of(ask).answers
    for _ in range(chance.randrange(4)):
        edit()
    after = notes_of(ask).answers
    for question, noted in before.items():
        if question in after:
            assert holds(question, noted)[0] == (after[question][0] == noted[0]), question


def test_a_memo_within_a_memo_that_has_asked_nothing_yet(tmp_path: Path) -> None:
    """Each hears its own questions: two that have heard the same so far are not one."""
    (tmp_path / "a").write_text("one")
    outer, inner = Memo[str, bytes](), Memo[str, int]()

    def find() -> bytes:
        inner.get("a", lambda: 1)
        return files.read(tmp_path / "a")

    outer.get("a", find)
    assert notes_of(lambda: outer.get("a", find)).asked == {FOR_ALL: {("bytes", str(tmp_path / "a"))}}
