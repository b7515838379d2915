"""The record of earlier builds: nothing is lost when a process dies, and damage costs a rebuild, never an abort."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from engine_helpers import TOOLS, can_mount, on_a_small_disk, run_python, wait_until, without_root

from kiln.engine.rows import Output, Row
from kiln.engine.state import State
from kiln.errors import StateError


def row(text: str = "abc", *paths: str) -> Row:
    """A row as a step leaves it."""
    return Row(
        components={"closure": text, "target": "sm_80"},
        outputs=tuple(Output(path=path, size=3, ctime_ns=1_700_000_000_123_456_789, sha256="0" * 64) for path in paths),
        seconds=0.25,
        peak_memory=1 << 33,
    )


def filled(path: Path, count: int = 40) -> State:
    """A state with rows, files and values in it, closed."""
    state = State(path)
    for index in range(count):
        state.record(f"compile:image{index}", row(f"{index:064}", f"images/{index}.cubin", f"images/{index}.json"))
    state.note("mine", "key", {"a": [1, None, "ü"]})
    state.files.learned["/usr/bin/tool"] = ((1 << 40, 1_700_000_000_123_456_789, 1 << 50, 5), "a" * 64)
    state.commit_files()
    state.close()
    return state


def listing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder: size, mtime and bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes()) for path in files}


# -- what is written is read -------------------------------------------------------------------------------------------


def test_all_that_is_recorded_is_read_back(tmp_path: Path) -> None:
    written = filled(tmp_path / "deep" / "state.sqlite")
    written.record("compile:größe ☃@sm_80", row("x", "images/größe ☃.cubin"))
    written.close()
    read = State(tmp_path / "deep" / "state.sqlite")
    assert read.rows == written.rows
    assert len(read.rows) == 41
    assert read.rows["compile:größe ☃@sm_80"] == row("x", "images/größe ☃.cubin")
    assert read.notes == {"mine": {"key": {"a": [1, None, "ü"]}}}
    assert dict(read.files._known) == {"/usr/bin/tool": ((1 << 40, 1_700_000_000_123_456_789, 1 << 50, 5), "a" * 64)}
    assert read.warnings == []


def test_few_rows_are_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    written = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE steps SET row = replace(row, '0.25', '0.26') WHERE name = 'compile:image39'")
        connection.commit()
    state = State(path)
    assert state.rows["compile:image3"] == written.rows["compile:image3"]
    assert state.rows.get("none") is None and state.warnings == []
    # What is damaged is told when it is asked for, or all are, which a write does; nothing counts any more then.
    assert state.rows.get("compile:image39") is None
    assert state.is_lost and "cannot be read" in "".join(state.untold())
    assert state.rows == {}
    other = State(path)
    assert other.rows["compile:image4"] == written.rows["compile:image4"] and not other.is_lost
    other.record("next", row())
    assert other.is_lost and set(other.rows) == {"next"} and len(other.untold()) == 1
    other.close()
    assert path.with_name("state.sqlite.unreadable").exists()


def test_many_rows_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    written = filled(path)
    names = [f"compile:image{index}" for index in range(40)]
    state = State(path)
    rows = [state.rows[name] for name in names[:20]]
    path.unlink()
    assert [*rows, *(state.rows[name] for name in names[20:])] == [written.rows[name] for name in names]


def test_a_folder_of_any_name_can_hold_the_state(tmp_path: Path) -> None:
    path = tmp_path / "a b%20?x#y ü" / "state.sqlite"
    filled(path)
    assert len(State(path).rows) == 40


def test_rows_are_replaced_invalidated_and_dropped(tmp_path: Path) -> None:
    state = State(tmp_path / "state.sqlite")
    state.record("a", row("one", "a.o"))
    state.record("a", row("two", "a.o"))
    state.record("b", row("one", "b.o"))
    state.invalidate("a")
    state.invalidate("no such step")
    state.drop("b")
    state.drop("no such step")
    state.close()
    again = State(tmp_path / "state.sqlite")
    assert set(again.rows) == {"a"}
    assert not again.rows["a"].valid
    assert [output.path for output in again.rows["a"].outputs] == ["a.o"], "the outputs are still ours to remove"


def test_values_of_doit_are_dropped_by_task(tmp_path: Path) -> None:
    state = State(tmp_path / "state.sqlite")
    state.note("a", "one", 1)
    state.note("a", "two", 2)
    state.note("b", "one", 3)
    state.drop_notes("a")
    state.drop_notes("no such task")
    state.close()
    assert State(tmp_path / "state.sqlite").notes == {"b": {"one": 3}}


def test_a_path_that_is_no_text_is_not_kept(tmp_path: Path) -> None:
    """File names are bytes; one that is no UTF-8 is hashed again each time, and stops nothing."""
    odd = tmp_path / os.fsdecode(b"\xff\xfe")
    state = State(tmp_path / "state.sqlite")
    entry = ((1, 2, 3, 4), "a" * 64)
    state.files.learned.update({str(odd): entry, "/plain": entry})
    state.commit_files()
    state.close()
    assert dict(State(tmp_path / "state.sqlite").files._known) == {"/plain": entry}


# -- killed ------------------------------------------------------------------------------------------------------------

RECORDING = f"""
import os, signal, sys
sys.path[:0] = {[str(TOOLS), str(Path(__file__).parent)]!r}
from pathlib import Path
from test_engine_state import row
from kiln.engine.state import State
state = State(Path(sys.argv[1]))
for index in range(10_000):
    state.record(f"step{{index}}", row("x" * 500, f"{{index}}.o"))
    print(index, flush=True)
    if index == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_recorded_is_there_after_a_kill(tmp_path: Path) -> None:
    """A kill right behind `record`: all rows are there, with no warning."""
    done = run_python(RECORDING, str(tmp_path / "state.sqlite"), "24")
    assert done.returncode == -signal.SIGKILL
    state = State(tmp_path / "state.sqlite")
    assert set(state.rows) == {f"step{index}" for index in range(25)}
    assert state.warnings == []


def test_a_kill_at_any_time_loses_at_most_what_was_in_flight(tmp_path: Path) -> None:
    generator = random.Random(5)
    for attempt in range(6):
        path = tmp_path / f"{attempt}.sqlite"
        # Before the first row, while the file is made, and among the commits.
        with subprocess.Popen([sys.executable, "-c", RECORDING, str(path), "-1"], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            wait_until(lambda path=path: any(path.parent.glob(f"{path.name}*")))
            time.sleep(generator.random() * 0.05 * attempt)
            process.kill()
            said = len(process.stdout.read().splitlines())
        state = State(path)
        assert state.warnings == []
        assert said <= len(state.rows) <= said + 1
        state.record("next", row())
        state.close()
        assert "next" in State(path).rows


IN_A_COMMIT = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA synchronous=OFF")
connection.execute("PRAGMA cache_size=1")
connection.execute("BEGIN")
connection.execute("UPDATE steps SET row = '[]'")
connection.executemany("INSERT INTO steps VALUES (?, '[]')", [(f"new{i}" * 100,) for i in range(1000)])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_in_the_middle_of_a_commit_is_undone(tmp_path: Path) -> None:
    """The file is half changed then: readers see what was before without writing, the next writer mends it."""
    path = tmp_path / "state" / "state.sqlite"
    expected = filled(path).rows
    before = path.read_bytes()
    assert run_python(IN_A_COMMIT, str(path)).returncode == -signal.SIGKILL
    found = listing(path.parent)
    assert set(found) == {"state.sqlite", "state.sqlite-journal"}
    assert path.read_bytes() != before
    state = State(path)
    assert state.rows == expected
    assert state.warnings == []
    assert listing(path.parent) == found
    state.record("next", row())
    state.close()
    assert set(listing(path.parent)) == {"state.sqlite"}
    again = State(path)
    assert set(again.rows) == {*expected, "next"}
    assert again.warnings == []


# -- damaged -----------------------------------------------------------------------------------------------------------


def check_mended(path: Path, expected: State) -> None:
    """Reading a damaged file changes nothing, and what is recorded next is there afterwards."""
    before = listing(path.parent)
    state = State(path)
    assert set(state.rows) <= set(expected.rows)
    assert listing(path.parent) == before, "reading wrote"
    if state.warnings:
        assert str(path) in state.warnings[0]
        assert "state.sqlite.unreadable" in state.warnings[0]
        assert state.rows == {}
    survivors = dict(state.rows)
    for index in range(5):
        state.record(f"next{index}", row())
    state.close()
    again = State(path)
    assert again.warnings == []
    assert again.rows == {**survivors, **{f"next{index}": row() for index in range(5)}}
    if state.warnings:
        assert path.with_name("state.sqlite.unreadable").exists()


def test_a_truncated_file_is_set_aside_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    expected = filled(path)
    whole = path.read_bytes()
    lengths = [
        0,
        1,
        15,
        16,
        17,
        99,
        100,
        101,
        511,
        4095,
        4096,
        4097,
        len(whole) // 2,
        len(whole) - 4096,
        len(whole) - 1,
    ]
    for length in lengths:
        path.write_bytes(whole[:length])
        assert State(path).rows == {}
        assert len(State(path).warnings) == 0  # nothing has been read yet
        check_mended(path, expected)
        assert path.with_name("state.sqlite.unreadable").read_bytes() == whole[:length]
        path.with_name("state.sqlite.unreadable").unlink()


def test_a_file_that_ends_at_any_byte_is_told_and_nothing_of_it_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    filled(path)
    for length in range(path.stat().st_size - 1, -1, -1):
        os.truncate(path, length)
        state = State(path)
        assert state.rows == {} and state.notes == {} and len(state.warnings) == 1, length
        assert str(path) in state.warnings[0], length


def test_flipped_bytes_cost_rows_and_never_an_abort(tmp_path: Path) -> None:
    """Some are noticed by SQLite, some in a row, some only when the row's step is checked; none may raise."""
    path = tmp_path / "state.sqlite"
    filled(path)
    whole = path.read_bytes()
    generator = random.Random(1)
    places = [*range(16, 112, 2), *(generator.randrange(len(whole)) for _ in range(150))]
    warned = 0
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << generator.randrange(8)
        path.write_bytes(data)
        before = listing(tmp_path)
        state = State(path)
        known = dict(state.rows)
        assert listing(tmp_path) == before
        warned += bool(state.warnings)
        assert all(not output.path.startswith(("/", "..")) for found in known.values() for output in found.outputs)
        state.record("next", row())
        state.close()
        again = State(path)
        assert again.rows == {**known, "next": row()}
    assert 10 < warned < len(places)


def test_damage_that_only_a_write_meets_is_mended_with_what_was_read(tmp_path: Path) -> None:
    """The list of free pages is no part of any table: reading succeeds, and a commit would fail for ever."""
    path = tmp_path / "state.sqlite"
    state = filled(path, 400)
    for index in range(50, 400):
        state.drop(f"compile:image{index}")
    state.close()
    data = bytearray(path.read_bytes())
    assert int.from_bytes(data[36:40], "big") > 20, "no free pages to damage"
    trunk = (int.from_bytes(data[32:36], "big") - 1) * 4096
    data[trunk : trunk + 8] = b"\xff" * 8
    path.write_bytes(data)
    again = State(path)
    assert len(again.rows) == 50
    assert again.warnings == []
    for index in range(60):
        again.record(f"new{index}", row("x" * 3000))
    again.close()
    assert len(again.warnings) == 1
    assert "was damaged" in again.warnings[0]
    last = State(path)
    assert len(last.rows) == 110
    assert last.notes == state.notes
    assert last.warnings == []


def test_another_schema_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    expected = filled(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=999")
    connection.close()
    state = State(path)
    assert state.rows == {}
    assert "it has schema 999, and this Kiln reads schema" in state.warnings[0]
    check_mended(path, expected)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        "[[], [], 1, 1, true]",
        '[{"a": 1}, [], 1, 1, true]',
        '[{}, [["a", 1, 1]], 1, 1, true]',
        '[{}, [["/etc/passwd", 1, 1, "0"]], 1, 1, true]',
        '[{}, [["a/../../x", 1, 1, "0"]], 1, 1, true]',
        '[{}, [["", 1, 1, "0"]], 1, 1, true]',
        '[{}, [[7, 1, 1, "0"]], 1, 1, true]',
        '[{}, [], "1", 1, true]',
        "[{}, [], 1, 1, 1]",
    ],
)
def test_a_row_that_was_never_written_so_is_damage(text: str) -> None:
    """What a row says is published is removed one day: it must lie below the build folder."""
    with pytest.raises((ValueError, TypeError)):
        Row.from_json(text)


def test_a_file_with_a_write_ahead_log_is_not_opened(tmp_path: Path) -> None:
    """SQLite would make two files beside it only to read it."""
    path = tmp_path / "state.sqlite"
    expected = filled(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    check_mended(path, expected)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.sqlite"
    filled(outside)
    before = outside.read_bytes()
    path = tmp_path / "state.sqlite"
    path.symlink_to(outside)
    state = State(path)
    assert state.rows == {}
    assert "symbolic link" in state.warnings[0]
    state.record("next", row())
    state.close()
    assert outside.read_bytes() == before
    assert not path.is_symlink()
    assert set(State(path).rows) == {"next"}


# -- reading never writes ----------------------------------------------------------------------------------------------


def test_reading_makes_and_changes_no_file(tmp_path: Path) -> None:
    missing = State(tmp_path / "none" / "state.sqlite")
    assert (missing.rows, missing.notes, missing.warnings) == ({}, {}, [])
    missing.close()
    assert not (tmp_path / "none").exists()
    filled(tmp_path / "some" / "state.sqlite")
    before = listing(tmp_path)
    state = State(tmp_path / "some" / "state.sqlite")
    assert len(state.rows) == 40
    state.files.of(Path(__file__))
    state.close()
    assert listing(tmp_path) == before
    assert set(before) == {"state.sqlite"}


def test_a_state_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.sqlite"
    filled(path)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    rows, warnings = without_root(lambda: (lambda state: (len(state.rows), state.warnings))(State(path)))
    assert (rows, warnings) == (40, [])


def test_a_state_can_be_read_while_a_build_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    writer = State(path)
    for index in range(5):
        writer.record(f"step{index}", row())
        reader = State(path)
        assert len(reader.rows) == index + 1
        assert reader.warnings == []


def test_what_another_process_wrote_is_read_again(tmp_path: Path) -> None:
    """A build that waited for the lock must not go by what it read before."""
    path = tmp_path / "state.sqlite"
    waiting = State(path)
    assert waiting.rows == {}
    waiting.files.learned["/some/file"] = ((1, 2, 3, 4), "a" * 64)
    filled(path)
    waiting.refresh()
    assert len(waiting.rows) == 40
    assert set(waiting.files.learned) == {"/some/file"}
    rows = waiting.rows
    waiting.refresh()
    assert waiting.rows is rows


# -- where nothing can be written --------------------------------------------------------------------------------------


def test_a_read_only_folder_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "state.sqlite"
    filled(path)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    for function in (lambda: State(path).record("a", row()), lambda: State(path.with_name("other")).record("a", row())):
        with pytest.raises(StateError) as caught:
            without_root(function)
        assert "the record of this build cannot be written" in caught.value.what
        assert str(path.parent) in str(caught.value.where)
        assert caught.value.remedy


def test_a_write_that_failed_is_not_believed_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    filled(path)
    path.chmod(0o444)
    tmp_path.chmod(0o555)

    def names() -> set[str]:
        state = State(path)
        for action in (lambda: state.record("a", row()), lambda: state.drop("compile:image0")):
            with pytest.raises(StateError):
                action()
        return set(state.rows)

    assert without_root(names) == {f"compile:image{index}" for index in range(40)}


FILLING = """
import sys
import time
from pathlib import Path
from test_engine_state import row
from kiln.engine.state import State
from kiln.errors import StateError
path = Path(sys.argv[1])
state = State(path)
try:
    for index in range(1000):
        state.record(f"step{index}", row("x" * 2000))
except StateError as error:
    print(error)
state.close()
again = State(path)
print(0 < len(again.rows) == index, again.warnings)
"""


def test_a_full_disk_is_named_and_leaves_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    if can_mount():
        done = on_a_small_disk(tmp_path, FILLING, str(path))
        expected = f"{path}: no space left on the disk: the record of this build cannot be written: "
        assert done.stdout.startswith(expected), done.stderr
        assert "\n  remedy: make room there and run again; finished work is kept\n" in done.stdout
    else:
        # Where no disk can be made: files that may not grow past 64 KiB.
        limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        done = run_python(limit + FILLING, str(path))
        assert "the record of this build cannot be written" in done.stdout, done.stderr
    assert done.stdout.endswith("\nTrue []\n"), done.stdout + done.stderr
