"""kiln.lock: what it reads to and is written as, what differs, and each thing that can be wrong, with its place."""

from __future__ import annotations

import json
import os
import random
import resource
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kiln.errors import LockError
from kiln.toolchain.identity import Level, Tool
from kiln.toolchain.lock import (
    LOCK,
    Locked,
    changes,
    differences,
    locked,
    other_versions,
    read_lock,
    render,
    this_machine,
    with_entry,
    write_lock,
)

A, B = "a" * 64, "b" * 64
TEXT = f"""\
{{
  "version": 1,
  "device": {{
    "x86_64 cpython-311": {{
      "ptxas": {{"version": "12.9.86", "sha256": "{A}"}},
      "triton": {{"version": "3.9.0", "sha256": "{B}"}}
    }}
  }},
  "host": {{
    "x86_64 cpython-311": {{
      "ar": {{"version": "GNU ar (GNU Binutils) 2.40", "sha256": "{A}"}}
    }}
  }}
}}
"""


def tool(name: str, sha256: str, version: str = "", level: Level = "device") -> Tool:
    return Tool(name=name, version=version, sha256=sha256, level=level, used_for="tests")


def read(folder: Path, text: str | bytes) -> object:
    (folder / LOCK).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_lock(folder / LOCK)


TOOLS = (
    tool("triton", B, "3.9.0"),
    tool("ptxas", A, "12.9.86"),
    tool("ar", A, "GNU ar (GNU Binutils) 2.40", "host"),
)


def test_a_lock_is_written_as_it_is_read(tmp_path: Path) -> None:
    lock = with_entry(None, "x86_64 cpython-311", TOOLS)
    assert render(lock) == TEXT
    write_lock(tmp_path / LOCK, lock)
    assert (tmp_path / LOCK).read_text() == TEXT
    assert read_lock(tmp_path / LOCK) == lock
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_where_there_is_no_file_there_is_no_lock(tmp_path: Path) -> None:
    assert read_lock(tmp_path / LOCK) is None


def test_its_text_is_the_same_whatever_the_order(tmp_path: Path) -> None:
    machines = ["x86_64 cpython-311", "aarch64 cpython-312", "x86_64 cpython-314t"]
    texts = set()
    for seed in range(5):
        order = random.Random(seed)
        lock = None
        for machine in order.sample(machines, 3):
            lock = with_entry(lock, machine, order.sample(TOOLS, 3))
        assert lock is not None
        texts.add(render(lock))
    assert len(texts) == 1
    assert list(json.loads(texts.pop())["device"]) == sorted(machines)


def test_any_text_a_tool_gives_comes_back(tmp_path: Path) -> None:
    lock = with_entry(None, 'an "odd" \\ machine', [tool("ptxas", A, 'ü "quoted" \\ \t yes 1.10 null {} […]')])
    write_lock(tmp_path / LOCK, lock)
    assert read_lock(tmp_path / LOCK) == lock


def test_each_machine_has_its_own_entry(tmp_path: Path) -> None:
    """Two Pythons on one machine have two wheels of Triton."""
    first = with_entry(None, "x86_64 cpython-311", TOOLS)
    both = with_entry(first, "x86_64 cpython-312", [tool("triton", A, "3.9.0")])
    assert both.device["x86_64 cpython-311"] == first.device["x86_64 cpython-311"]
    assert both.tools("device", "x86_64 cpython-312") == {"triton": Locked(version="3.9.0", sha256=A)}
    assert both.tools("host", "x86_64 cpython-312") == {} == both.tools("device", "aarch64 cpython-312")
    again = with_entry(both, "x86_64 cpython-311", [tool("triton", A, "3.9.1")])
    assert list(again.device["x86_64 cpython-311"]) == ["triton"]
    assert again.device["x86_64 cpython-312"] == both.device["x86_64 cpython-312"]
    assert other_versions(both, "x86_64 cpython-312") == ()
    assert other_versions(again, "x86_64 cpython-311") == (
        "triton is 3.9.1 here, and 3.9.0 in the entry 'x86_64 cpython-312'",
    )


def test_this_machine_is_named_as_its_wheels_are() -> None:
    machine, tag = this_machine().split(" ")
    assert machine == os.uname().machine
    assert tag == f"cpython-{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"


def test_places_are_no_part_of_a_lock(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == read(tmp_path, json.dumps(json.loads(TEXT)))
    lock = read_lock(tmp_path / LOCK)
    assert lock is not None and lock.positions["x86_64 cpython-311"].line == 1
    read(tmp_path, TEXT.replace("\n", "\r\n"))
    lock = read_lock(tmp_path / LOCK)
    assert lock is not None
    place = lock.positions["x86_64 cpython-311"]
    assert (str(lock.position), place.line, place.column) == (f"{tmp_path / LOCK}:3:3", 4, 5)


# -- differences


def test_what_differs_is_told_by_bytes_and_in_order() -> None:
    before = locked(
        [tool("same", A, "1"), tool("swapped", A, "12.9"), tool("newer", A, "1.0"), tool("gone", A)], "device"
    )
    before |= locked([tool("silent", A)], "device")
    now = locked(
        [tool("newer", B, "1.1"), tool("swapped", B, "12.9"), tool("same", A, "said otherwise"), tool("added", B, "2"),
         tool("silent", B)],
        "device",
    )  # fmt: skip
    found = differences(before, now)
    assert [each.name for each in found] == ["newer", "swapped", "added", "silent", "gone"]
    assert [each.lines() for each in found] == [
        ["newer is 1.1, locked is 1.0", f"  locked  1.0, sha256 {A}", f"  here    1.1, sha256 {B}"],
        ["swapped has the same version, 12.9, and other bytes",
         f"  locked  12.9, sha256 {A}", f"  here    12.9, sha256 {B}"],
        ["added is not locked", f"  here    2, sha256 {B}"],
        ["silent has other bytes", f"  locked  -, sha256 {A}", f"  here    -, sha256 {B}"],
        ["gone is not needed any more", f"  locked  -, sha256 {A}"],
    ]  # fmt: skip


def test_levels_are_looked_at_apart() -> None:
    one = with_entry(None, "m", [tool("ptxas", A), tool("ar", A, level="host")])
    two = with_entry(None, "m", [tool("ptxas", A), tool("ar", B, level="host")])
    assert changes(one, two, "m", "device") == []
    assert changes(one, two, "m", "host")[0] == "ar has other bytes"


# -- what is wrong


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ('"version": 1,', '"version": 1', "3:3", ("the file is no JSON", "delimiter", "`doit lock`")),
        ("    }\n  }\n}\n", "", "12:1", ("the file is no JSON", "at the end")),
        (TEXT, "", "1:1", ("the file is no JSON", "at the end")),
        (TEXT, "[1, 2]\n", "1:1", ("the file is no lock", "actual: a list of 2")),
        (TEXT, "NaN", "1:1", ("NaN is no number of JSON",)),
        (TEXT, "[" * 100000, "1:1", ("the file is no lock", "brackets within brackets")),
        (TEXT, "[" * 50 + "]" * 50, "1:22", ("the file is no lock", "brackets within brackets")),
        ("12.9.86", "\udcff", "5:1", ("it is no text in UTF-8",)),
        ('"version": 1,', '"version": 2,', "2:14", ("a format that this Kiln does not know", "version 1", "newer one")),
        ('"version": 1,', '"version": true,', "2:14", ("wrong value for `version`", "the truth value 'true'")),
        ('"version": 1,', '"version": "1",', "2:14", ("wrong value for `version`", "remove the quotes")),
        ('  "version": 1,\n', "", "1:1", ("lacks the key `version`",)),
        ('"device"', '"devices"', "3:3", ("unknown key 'devices' in the file", "did you mean 'device'")),
        ('  "version": 1,', '  "version": 1, "version": 1,', "2:17", ("the key 'version' stands twice", "at line 2")),
        ('      "triton"', '      "ptxas"', "6:7", ("the key 'ptxas' stands twice", "the first is at line 5")),
        ('"device": {', '"device": {}, "host": {}, "other": {', "9:3", ("the key 'host' stands twice",)),
        ('"x86_64 cpython-311": {\n      "ar"', '"x": [], "x": {\n      "ar"', "10:14", ("the key 'x' stands twice",)),
        (f'{{"version": "12.9.86", "sha256": "{A}"}}', "[]", "5:16", (
            "wrong value for `device.x86_64 cpython-311.ptxas`", "an empty list")),
        (f', "sha256": "{A}"}},\n', "},\n", "5:16", ("`device.x86_64 cpython-311.ptxas` lacks the key `sha256`",)),
        ('"12.9.86"', "12.9", "5:28", ("`device.x86_64 cpython-311.ptxas.version`", "the number '12.9'")),
        ('"12.9.86"', "null", "5:28", ("actual: nothing",)),
        (f'"{B}"', f'"{B[:-1]}"', "6:48", ("wrong value for `device.x86_64 cpython-311.triton.sha256`", "64 hexa")),
        (f'"{B}"', f'"{B.upper()}"', "6:48", ("64 hexadecimal digits in lower case",)),
        (f'"3.9.0", "sha256": "{B}"', f'"3.9.0", "sha265": "{B}"', "6:38", ("did you mean 'sha256'",)),
        ('  "host"', '<<<<<<< ours\n  "host"', "9:1", ("the marks of a merge", "run `doit lock` on each machine")),
        ('  "host"', '=======\n  "host"', "9:1", ("the marks of a merge",)),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, place: str, said: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert old in TEXT
    Path(LOCK).write_bytes(TEXT.replace(old, new, 1).encode("utf-8", "surrogateescape"))
    with pytest.raises(LockError) as caught:
        read_lock(Path(LOCK))
    print(caught.value)
    assert str(caught.value).startswith(f"{LOCK}:{place}: ")
    assert [words for words in said if words not in str(caught.value)] == []
    assert "remedy: " in str(caught.value)


def test_a_lock_that_is_cut_or_changed_anywhere_is_read_or_refused(tmp_path: Path) -> None:
    """No other exception, whatever a text looks like."""
    order = random.Random(8)
    for _ in range(400):
        at, letter = order.randrange(len(TEXT)), order.choice('{}[]:," 1a\n\\u\ud800\0')
        text = TEXT[:at] + order.choice(["", letter, letter + TEXT[at + 1 :]])
        try:
            read(tmp_path, text.encode("utf-8", "surrogatepass"))
        except LockError as error:
            assert str(error).startswith(f"{tmp_path / LOCK}:")


def test_a_lock_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with pytest.raises(LockError, match=r"kiln\.lock: the lock cannot be read: Is a directory"):
        read_lock(tmp_path / LOCK)


# -- writing


def test_a_link_stays_one_and_a_mode_is_as_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / LOCK).symlink_to("real/locked")
    before = os.umask(0o027)
    try:
        write_lock(tmp_path / LOCK, with_entry(None, "m", TOOLS))
    finally:
        os.umask(before)
    assert (tmp_path / LOCK).is_symlink()
    assert stat.S_IMODE((tmp_path / "real/locked").stat().st_mode) == 0o640
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["locked"]


@pytest.fixture
def guarded() -> Iterator[Path]:
    """A folder with a lock, in which this process may write nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / LOCK).write_text(TEXT)
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o755)


def test_a_lock_that_cannot_be_written_is_told(guarded: Path) -> None:
    with pytest.raises(LockError) as caught:
        write_lock(guarded / LOCK, with_entry(None, "m", TOOLS))
    assert str(caught.value).startswith(f"{guarded / LOCK}: the lock cannot be written: Permission denied\n")
    assert "remedy: give yourself the rights to it" in str(caught.value)
    assert (guarded / LOCK).read_text() == TEXT


def test_a_write_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(TEXT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(LockError, match="the lock cannot be written: File too large"):
            write_lock(tmp_path / LOCK, with_entry(None, "m", TOOLS))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]
    assert (tmp_path / LOCK).read_text() == TEXT


def test_no_lock_is_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="the lock cannot be written: No such file or directory"):
        write_lock(tmp_path / "gone" / LOCK, with_entry(None, "m", TOOLS))
