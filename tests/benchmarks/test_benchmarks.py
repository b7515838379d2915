"""The benchmarks can be run, and their arithmetic is right. No figure of theirs is held to anything here."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import bench
import pytest
from bench_graph import covered
from bench_runner import BenchError, Contender, Settings, in_turns, measured
from bench_table import Row, as_table


def test_all_of_them_run_in_small(tmp_path: Path) -> None:
    command = [sys.executable, bench.__file__, "--quick", "--large", "--json", "--scratch", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not report["failed"]
    assert {row["bench"] for row in report["rows"]} == set(bench.BENCHES)
    with_bars = [(row["bench"], row["bar"], row["stretch"]) for row in report["rows"] if row["bar"] is not None]
    assert with_bars == [
        ("null", 2.5, 1.6),
        ("select", 3.0, 1.5),
        ("edit", 0.7, 0.3),
        ("large", 4.0, 2.0),
        ("large", 1500.0, None),
        ("compile", 0.55, 0.45),
        ("compile", 1.1, 0.9),
        ("softmax", 0.25, 0.2),
        ("cache", 25.0, 60.0),
        ("dispatch", 5.0, 2.5),
        ("link", 1.0, None),
        ("link", 200.0, None),
        ("link", 1.0, None),
        ("link", 200.0, None),
    ]
    for row in report["rows"]:
        figures = [row["kiln"], row["value"], *([row["peer"]] if row["peer_name"] else [])]
        assert all(math.isfinite(figure) and figure > 0 for figure in figures), row
    assert not list(tmp_path.iterdir()), "what was made for the benchmarks is gone"


def test_contenders_take_turns_and_medians_are_taken() -> None:
    order: list[str] = []
    walls = {"a": iter([9.0, 1.0, 7.0, 2.0]), "b": iter([4.0, 6.0, 5.0])}

    def contender(name: str, warm_ups: int) -> Contender:
        def run() -> dict[str, float]:
            order.append(name)
            return {"wall": next(walls[name])}

        return Contender(run=run, prepare=lambda: order.append("prepare"), warm_ups=warm_ups)

    found = in_turns({"a": contender("a", 1), "b": contender("b", 0)}, 3)
    assert found == {"a": {"wall": 2.0}, "b": {"wall": 5.0}}
    assert [word for word in order if word != "prepare"] == ["a", *"ababab"]
    assert order[::2] == ["prepare"] * 7


@pytest.mark.parametrize(
    ("by", "kiln", "peer", "bar", "stretch", "value", "verdict"),
    [
        ("ratio", 0.3, 0.2, 2.5, 1.6, 1.5, "stretch"),
        ("ratio", 0.4, 0.2, 2.5, 1.6, 2.0, "ok"),
        ("ratio", 0.6, 0.2, 2.5, 1.6, 3.0, "over"),
        ("ratio", 0.6, 0.2, None, None, 3.0, ""),
        ("speed-up", 2.0, 200.0, 25.0, 60.0, 100.0, "stretch"),
        ("speed-up", 2.0, 80.0, 25.0, 60.0, 40.0, "ok"),
        ("speed-up", 2.0, 20.0, 25.0, 60.0, 10.0, "over"),
        ("figure", 0.004, None, 5.0, 2.5, 4.0, "ok"),
        ("figure", 0.001, None, 5.0, None, 1.0, "ok"),
    ],
)
def test_what_is_held_against_a_bar(
    by: Literal["ratio", "speed-up", "figure"],
    kiln: float,
    peer: float | None,
    bar: float | None,
    stretch: float | None,
    value: float,
    verdict: str,
) -> None:
    row = Row(bench="x", what="x", kiln=kiln, peer=peer, unit="ms", by=by, bar=bar, stretch=stretch)
    assert row.value == pytest.approx(value)
    assert row.verdict == verdict


def test_the_table_reads_well() -> None:
    null = Row(bench="null", what="null", kiln=0.3, peer=0.2, peer_name="ninja", by="ratio", bar=2.5, stretch=1.6)
    memory = Row(bench="large", what="peak memory", kiln=2e9, unit="MB", by="figure", bar=1500.0)
    assert as_table([null, memory]).splitlines() == [
        "what              Kiln     peer           value         bar  stretch",
        "-----------  ---------  -------  -----  -------  ----------  -------  -------",
        "null           0.300 s  0.200 s  ninja     1.5x     <= 2.5x  <= 1.6x  stretch",
        "peak memory  2000.0 MB                  2000 MB  <= 1500 MB           over",
    ]


def test_time_that_several_spans_cover_counts_once() -> None:
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]) == pytest.approx(4.0)


def test_a_command_that_fails_or_does_something_else_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"(?s)exit code 3\n.*what went wrong"):
        measured([sys.executable, "-c", "print('what went wrong'); exit(3)"], tmp_path)
    with pytest.raises(BenchError, match="its output lacks '0 built'"):
        measured([sys.executable, "-c", "print('1 built')"], tmp_path, "0 built")
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    figures = measured([sys.executable, "-c", child], tmp_path)
    assert figures["cpu"] > 0.2, "what children take counts"


def test_one_that_cannot_be_run_costs_the_exit_code_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(settings: Settings) -> Iterator[Row]:
        yield Row(bench="null", what="before it failed", kiln=1.0, by="figure")
        raise BenchError("no such thing")

    def works(settings: Settings) -> Iterator[Row]:
        yield Row(bench="select", what="after that", kiln=1.0, by="figure", bar=0.5, stretch=0.1)

    monkeypatch.setattr(bench, "BENCHES", {"null": fails, "select": works, "large": fails})
    assert bench.main(["--scratch", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "after that" in out and "over" in out and "before it failed" in out
    assert "null could not be run: no such thing" in err and "large" not in err
    assert bench.main(["--scratch", str(tmp_path), "--only", "select"]) == 0


def test_ctrl_c_shows_what_has_been_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def works(settings: Settings) -> Iterator[Row]:
        yield Row(bench="null", what="measured before", kiln=1.0, by="figure")

    def stopped(settings: Settings) -> Iterator[Row]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(bench, "BENCHES", {"null": works, "select": stopped, "edit": works})
    assert bench.main(["--scratch", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out.count("measured before") == 1 and "edit" not in err
    assert not list(tmp_path.iterdir())
