"""One build a tree at a time."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from engine_helpers import TOOLS, wait_until, without_root

from kiln.engine.lock import build_lock
from kiln.errors import StateError

HOLD = f"""
import sys, time
sys.path.insert(0, {str(TOOLS)!r})
from pathlib import Path
from kiln.engine.lock import build_lock
with build_lock(Path(sys.argv[1]), waiting=lambda text: print(text, flush=True)):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "build" / ".kiln" / "lock"


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that takes the lock, and holds it until its standard input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_second_holder_waits_and_is_told_who_the_first_is(path: Path) -> None:
    with holder(path) as first:
        assert line(first) == "held\n"
        second = holder(path)
        assert line(second) == (
            f"another build is running in {path.parent} (process {first.pid} on {socket.gethostname()}); "
            "waiting for it\n"
        )
        assert second.poll() is None
        first.communicate()
        assert line(second) == "held\n"
        assert str(second.pid) in path.read_text("utf-8")
        second.communicate()
    assert path.read_text("utf-8") == ""


def test_the_lock_dies_with_a_killed_holder(path: Path) -> None:
    with holder(path) as process:
        assert line(process) == "held\n"
        process.kill()
    said: list[str] = []
    with build_lock(path, waiting=said.append):
        assert str(os.getpid()) in path.read_text("utf-8")
    assert said == []


def test_a_holder_that_left_its_name_behind_is_not_named(path: Path) -> None:
    """The name of one that was killed stays in the file until the next writes its own, whatever its length."""
    path.parent.mkdir(parents=True)
    path.write_text("process 1234567 on a-host-with-a-very-long-name.example.org.of.old\n", "utf-8")
    with build_lock(path, waiting=lambda text: None):
        assert path.read_text("utf-8") == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_lock_that_was_removed_while_waiting_is_taken_anew(path: Path) -> None:
    """`rm -r build` by the holder: the waiting one would hold a file that nobody can find, and so keep nobody out."""
    told = threading.Event()
    held, leave = threading.Event(), threading.Event()

    def wait() -> None:
        with build_lock(path, waiting=lambda text: told.set()):
            held.set()
            leave.wait(10)

    thread = threading.Thread(target=wait)
    with build_lock(path, waiting=lambda text: None):
        thread.start()
        assert told.wait(10)
        path.unlink()
    assert held.wait(10)
    with path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    leave.set()
    thread.join()


def test_an_error_inside_frees_the_lock(path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), build_lock(path, waiting=lambda text: None):
        raise ValueError("inside")
    with build_lock(path, waiting=lambda text: pytest.fail("it is still held")):
        pass


def test_links_are_not_followed(path: Path, tmp_path: Path) -> None:
    """A lock file is emptied and written: through a link that would be somebody's file. `build` may be a link."""
    (tmp_path / "outside").mkdir()
    mine = tmp_path / "outside" / "lock"
    mine.write_text("mine", "utf-8")
    (tmp_path / "elsewhere").mkdir()
    path.parents[1].symlink_to(tmp_path / "elsewhere")
    path.parent.mkdir()
    path.symlink_to(mine)
    with pytest.raises(StateError) as caught, build_lock(path, waiting=print):
        pass
    assert caught.value.what == "the lock file is a symbolic link"
    assert caught.value.where == str(path)
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path / "outside")
    wrong = pytest.raises(StateError, match="something stands where the build folder needs a folder")
    with wrong, build_lock(path, waiting=print):
        pass
    assert mine.read_text("utf-8") == "mine"
    path.parent.unlink()
    with build_lock(path, waiting=print):
        assert (tmp_path / "elsewhere" / ".kiln" / "lock").exists()


def test_a_folder_that_cannot_be_written_is_a_clear_error(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o555)

    def take() -> None:
        with build_lock(path, waiting=print):
            pass

    with pytest.raises(StateError) as caught:
        without_root(take)
    assert str(caught.value).startswith(f"{path}: the build folder cannot be written: Permission denied\n  remedy: ")
    path.parent.rmdir()
    path.parents[1].chmod(0o555)
    with pytest.raises(StateError, match="a folder of the build cannot be made: Permission denied"):
        without_root(take)


def test_waiting_can_be_interrupted(path: Path) -> None:
    """Ctrl-C while another build runs."""
    with build_lock(path, waiting=print), holder(path) as process:
        assert "another build is running" in line(process)
        process.send_signal(2)
        wait_until(lambda: process.poll() is not None)
        assert process.returncode != 0
