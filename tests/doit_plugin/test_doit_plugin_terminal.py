"""Builds on a terminal, as a person sees them: the board, failures above it, and what Ctrl-C does at any time."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from slow_steps import on_terminal, slow_project

from project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Shared: each test asks for steps with -a, or for some that no other does."""
    return slow_project(tmp_path_factory.mktemp("slow") / "slow")


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_board_shows_what_runs_and_goes_without_a_trace(project: Project) -> None:
    terminal = on_terminal(project, "-a", "-n", "2", "sleep")
    terminal.until("[0/4] 0:0")
    terminal.until("0:01  sleep:scale_fp32_")
    assert sum("  sleep:scale_fp32_" in line for line in terminal.screen) == 2
    terminal.until("[2/4] 2 built, ")
    terminal.until("to go")
    assert terminal.end() == 0
    (line,) = terminal.everything
    assert line.startswith("4 built, 0 up to date, 0 failed in ") and line.endswith(" s CPU)")


def test_the_board_follows_the_window(project: Project) -> None:
    terminal = on_terminal(project, "-a", "-n", "2", "sleep", columns=100, rows=30)
    terminal.until("sleep:scale_fp32_128@sm_80")
    terminal.resize(24, 5)
    terminal.until("sleep:scal..")
    assert sum(line.startswith("[") for line in terminal.screen) == 1
    terminal.resize(60, 3)
    terminal.until("[2/4]")
    assert len(terminal.screen) == 1
    terminal.resize(120, 40)
    terminal.until("0:01  sleep:")
    assert sum(line.startswith("[") for line in terminal.screen) == 1
    assert terminal.end() == 0
    assert len(terminal.everything) == 1


def test_a_failure_is_told_at_once_above_the_board(project: Project) -> None:
    """Once for both images, in red where colours are welcome; what its process printed last is there when it died."""
    terminal = on_terminal(project, "-a", "-n", "3", "broken", "crash", "sleep")
    terminal.until("FAILED crash")
    terminal.until("3 failed")
    # The steps that take their places begin a moment later.
    terminal.until_screen(
        lambda screen: screen[-1].endswith(("@sm_80", "@gfx942")) and "sleep:" in screen[-2],
        "a board of two steps that run",
    )
    assert any("3 failed" in line for line in terminal.screen[:-2])
    assert terminal.end() == 1
    text = "\n".join(terminal.everything)
    assert text.count("FAILED broken:") == 1
    assert re.search(r"^the failure of broken:\w+ is also that of broken:\w+$", text, re.MULTILINE)
    assert "    printed:\n      LLVM ERROR: it is broken\n  reproduce: doit -v 2 crash" in text.replace(
        "  log: build/.kiln/logs/crash.log\n", ""
    )
    assert terminal.everything[-1].startswith("4 built, 0 up to date, 3 failed in ")
    assert b"\x1b[1;31mFAILED" in terminal.raw


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"CI": "true"}], ids=["dumb", "ci"])
def test_lines_where_no_board_can_be_drawn(project: Project, environment: dict[str, str]) -> None:
    terminal = on_terminal(project, "-a", "broken", "quick", **environment)
    assert terminal.end() == 1
    assert b"\x1b" not in terminal.raw
    assert sum(bool(re.fullmatch(r"\[\d/4\] quick:\w+", line)) for line in terminal.everything) == 2


def test_no_colour_where_none_is_wanted(project: Project) -> None:
    terminal = on_terminal(project, "-a", "broken", NO_COLOR="1")
    assert terminal.end() == 1
    assert b"\x1b[1;31m" not in terminal.raw
    assert b"FAILED broken:" in terminal.raw


def test_a_users_task_has_the_terminal_to_itself(project: Project) -> None:
    terminal = on_terminal(project, "-a", "-n", "1", "sleep:scale_fp32_128@sm_80", "print")
    assert terminal.end() == 0
    lines = terminal.everything
    assert [line for line in lines if "from " in line] == ["from a command", "from Python"]
    assert not [line for line in lines if line.startswith("[")]


@pytest.mark.parametrize("presses", [1, 2, 7])
def test_ctrl_c_ends_a_build_cleanly_however_often_it_is_pressed(project: Project, presses: int) -> None:
    terminal = on_terminal(project, "-a", "-n", "2", "sleep")
    terminal.until("[2/4]")
    (server,) = children(terminal.pid)
    for _ in range(presses):
        terminal.press("\x03")
        time.sleep(0.002)
    began = time.monotonic()
    assert terminal.end() == 130
    assert time.monotonic() - began < 1.1, "it waited for a step"
    # The terminal itself echoes keys, those too that nobody was left to take.
    lines = [line for line in terminal.everything if line.strip("^C")]
    assert lines[-1] == "kiln: stopped; what was finished is kept"
    assert lines[-2].startswith("2 built, 0 up to date, 0 failed, 2 not tried in ")
    assert len(lines) == 2
    assert not Path(f"/proc/{server}").exists()
    assert not (project.folder / "build/.kiln/tmp").exists()


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [(("forever",), ".  forever"), (("-a", "-n", "1", "forever", "sleep"), ".  forever")],
    ids=["alone", "with steps"],
)
def test_ctrl_c_ends_a_users_python_task(project: Project, arguments: tuple[str, ...], seen: str) -> None:
    terminal = on_terminal(project, *arguments)
    terminal.until(seen)
    time.sleep(0.1)
    terminal.press("\x03\x03\x03")
    assert terminal.end() == 130
    assert "Traceback" not in "\n".join(terminal.everything)
    assert terminal.everything[-1] == "kiln: stopped; what was finished is kept"


def test_ctrl_c_while_dodo_py_is_loaded(tmp_path: Path) -> None:
    project = slow_project(tmp_path / "slow")
    project.write("dodo.py", project.read("dodo.py") + "\nprint('loading', flush=True)\ntime.sleep(600)\n")
    terminal = on_terminal(project, "list")
    terminal.until("loading")
    terminal.press("\x03\x03")
    assert terminal.end() == 130
    assert "kiln: stopped" in terminal.everything
    assert "Traceback" not in "\n".join(terminal.everything)


def test_ctrl_c_while_another_build_is_waited_for(project: Project) -> None:
    first = on_terminal(project, "-a", "sleep")
    first.until("[0/4]")
    second = on_terminal(project, "-a", "sleep")
    second.until("another build is running")
    second.press("\x03")
    assert second.end(seconds=1) == 130
    assert "kiln: stopped" in second.everything
    assert first.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_it_as_cleanly(project: Project, number: signal.Signals) -> None:
    terminal = on_terminal(project, "-a", "-n", "2", "sleep")
    terminal.until("[0/4] 0:0")
    for _ in range(3):
        os.kill(terminal.pid, number)
    assert terminal.end() == 128 + number
    assert terminal.everything[-1] == "kiln: stopped; what was finished is kept"
