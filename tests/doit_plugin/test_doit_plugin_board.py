"""The board on a screen: in its place after every drawing, whatever becomes of the window, and gone without a trace."""

from __future__ import annotations

import io
import sys

import pyte
import pytest

from kiln.doit_plugin.reporting import board
from kiln.doit_plugin.reporting.board import Board, clock, is_live, running_lines


class Screen(io.StringIO):
    """A stream whose text goes to a terminal of a changeable size."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, rows)
        self.screen.set_mode(pyte.modes.LNM)
        self._parser = pyte.Stream(self.screen)

    def write(self, text: str) -> int:
        self._parser.feed(text)
        return super().write(text)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen(40, 8)
    monkeypatch.setattr(board, "_size", lambda _: (screen.screen.columns, screen.screen.lines))
    return screen


def test_it_is_drawn_over_itself_and_erased(stream: Screen) -> None:
    shown = Board(stream, stream.write)
    stream.write("before\n")
    shown.draw(1.0, lambda height: ["one", "two", "three"])
    shown.draw(2.0, lambda height: ["four"])
    assert stream.lines == ["before", "four"]
    shown.draw(3.0, lambda height: ["five", "six"])
    assert stream.lines == ["before", "five", "six"]
    shown.erase()
    stream.write("after\n")
    shown.draw(4.0, lambda height: ["seven"])
    assert stream.lines == ["before", "after", "seven"]


def test_it_stays_at_the_bottom_while_lines_scroll_above(stream: Screen) -> None:
    shown = Board(stream, stream.write)
    for number in range(20):
        shown.erase()
        stream.write(f"line {number}\n")
        shown.draw(float(number), lambda height: ["one", "two"])
    assert stream.lines == [*(f"line {number}" for number in range(14, 20)), "one", "two"]


THREE = tuple(f"{letter} with forty letters, or not much more" for letter in "abc")


@pytest.mark.parametrize("columns", [200, 60, 40, 20, 12])
def test_a_window_of_another_width_holds_one_board(stream: Screen, columns: int) -> None:
    shown = Board(stream, stream.write)
    stream.write("above\n")
    shown.draw(1.0, lambda height: THREE)
    stream.screen.resize(8, columns)
    shown.draw(2.0, lambda height: THREE)
    assert [line[:6] for line in stream.lines] == ["above", "a with", "b with", "c with"]
    assert all(len(line) < columns for line in stream.lines)
    shown.erase()
    assert stream.lines == ["above"]


@pytest.mark.parametrize(("columns", "rows"), [(40, 3), (40, 2), (40, 1), (3, 2), (1, 1)])
def test_a_window_that_is_too_small_holds_the_beginning(stream: Screen, columns: int, rows: int) -> None:
    """One row is left free, for the line on which the board begins may not be the first one."""
    shown = Board(stream, stream.write)
    stream.screen.resize(rows, columns)
    for now in (1.0, 2.0, 3.0):
        lines = [f"{line} {now}" for line in THREE]
        shown.draw(now, lambda height, lines=lines: lines)
    assert [line[:1] for line in stream.lines] == list("abc"[: max(1, rows - 1)]) or columns == 1
    shown.erase()
    assert stream.lines == []


def test_it_is_drawn_ten_times_a_second_at_most_and_only_when_it_changed(stream: Screen) -> None:
    shown = Board(stream, stream.write)
    for tick in range(1000):
        shown.draw(tick / 100, lambda height: [f"second {len(stream.getvalue())}"])
    assert 95 <= stream.getvalue().count("second") <= 101
    before = stream.getvalue()
    for tick in range(1000, 2000):
        shown.draw(tick / 100, lambda height: ["the same"])
    assert stream.getvalue()[len(before) :].count("the same") == 1


def test_wide_letters_are_counted_as_they_are_shown(stream: Screen) -> None:
    Board(stream, stream.write).draw(1.0, lambda height: ["核" * 30, "below"])
    assert [line.replace(" ", "") for line in stream.lines] == ["核" * 19, "below"]


def test_what_runs_is_shown_longest_first_as_much_as_fits() -> None:
    running = {f"step {number}": float(number * 40) for number in range(12)}
    assert running_lines(running, 8) == ["     7:20  step 11", "     6:40  step 10", "           and 10 more"]
    assert len(running_lines(running, 100)) == 8
    assert running_lines({"a": 1.0}, 24) == ["     0:01  a"]
    assert running_lines(running, 4) == ["     7:20  step 11"]
    assert running_lines(running, 2) == []


def test_time_is_written_as_on_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 65, 3600, 3725.9)] == ["0:00", "1:05", "1:00:00", "1:02:05"]


def test_only_a_terminal_with_somebody_in_front_has_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_live(io.StringIO(), {"TERM": "xterm"})
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert is_live(sys.stdout, {"TERM": "xterm"})
    assert not is_live(sys.stdout, {"TERM": "dumb"})
    assert not is_live(sys.stdout, {})
    assert not is_live(sys.stdout, {"TERM": "xterm", "CI": "true"})
