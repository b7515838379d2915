"""What a child does aside is what this process would have found, whatever becomes of the child."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from kiln.engine.aside import Aside


def test_the_answer_is_that_of_a_child(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1", "ascii")
    aside = Aside(lambda: [os.getpid(), "x" * 300_000, (tmp_path / "x").stat().st_size, None])
    child, *found = aside.answer()
    assert found == ["x" * 300_000, 1, None]
    assert child != os.getpid()
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)


def test_a_child_that_dies_costs_time_only() -> None:
    here = os.getpid()

    def work() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    assert Aside(work).answer() == here
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_nobody_may_be_told_how_a_child_ends() -> None:
    """Whoever starts a build may ignore how children end, and then the build does, too."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert Aside(lambda: "found").answer() == "found"
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_there_is_no_child_beside_threads_or_without_the_systems_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert Aside(os.getpid).answer() == os.getpid()
    finally:
        done.set()
        thread.join()

    def refused() -> int:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(os, "fork", refused)
    assert Aside(os.getpid).answer() == os.getpid()
