"""Folders that go beside the build: all that were named are gone in the end, and no signal is lost to it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from kiln.engine.remover import Remover


def test_all_that_it_was_told_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(50)]
    for folder in folders:
        (folder / "out/images").mkdir(parents=True)
        (folder / "out/images/a").write_text("a", "utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine", "utf-8")
    (folders[0] / "link").symlink_to(tmp_path / "mine")
    remover = Remover()
    for folder in (*folders, tmp_path / "none"):
        remover.remove(folder)
    remover.close()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine/file").read_text("utf-8") == "mine"
    assert not [thread for thread in threading.enumerate() if thread.name == "remover"]


def test_where_no_thread_is_to_be_had_it_removes_by_itself(tmp_path: Path) -> None:
    (tmp_path / "folder/out").mkdir(parents=True)
    # A stack that is larger than any machine's memory.
    before = threading.stack_size(1 << 46)
    try:
        remover = Remover()
    finally:
        threading.stack_size(before)
    remover.remove(tmp_path / "folder")
    remover.remove(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    remover.close()


def test_a_signal_reaches_the_main_thread(tmp_path: Path) -> None:
    """It would not interrupt what that waits for, if another thread got it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    remover = Remover()
    try:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "remover")
        lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text("utf-8").splitlines()
        (blocked,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            assert blocked & 1 << (number - 1)
    finally:
        remover.close()
