"""How long a build still takes, by what is recorded."""

from __future__ import annotations

import time

import pytest

from kiln.engine.estimate import Estimate
from kiln.engine.rows import Row


def row(seconds: float) -> Row:
    return Row(components={}, outputs=(), seconds=seconds, peak_memory=0)


def test_nothing_is_known_until_something_has_run() -> None:
    estimate = Estimate({}, ["compile:a", "compile:b"], 1)
    estimate.waits("compile:a")
    assert estimate.left({"compile:a": 3.0}) is None
    estimate.is_over("compile:a", 4.0)
    assert estimate.left({}) == 4.0, "the other one will take as long"


def test_recorded_seconds_over_what_runs_at_once() -> None:
    rows = {"compile:a": row(10), "compile:b": row(30), "copy:a": row(1)}
    estimate = Estimate(rows, ["compile:a", "compile:b", "compile:new", "copy:a"], 2)
    # a, b, the mean of both for the new one, and the copy
    assert estimate.left({}) == pytest.approx((10 + 30 + 20 + 1) / 2)
    for name in ("compile:a", "compile:b", "compile:new"):
        estimate.waits(name)
    assert estimate.left({"compile:a": 4.0, "compile:new": 1.0}) == pytest.approx((6 + 30 + 19 + 1) / 2)
    estimate.is_over("compile:a", 10.0)
    estimate.is_over("compile:new")
    assert estimate.left({"compile:b": 2.0}) == pytest.approx(28.0), "it cannot end before its longest step"
    assert estimate.left({"compile:b": 99.0}) == pytest.approx(0.5), "a step that takes longer may end at any time"
    estimate.is_over("compile:b", 100.0)
    estimate.is_over("copy:a")
    assert estimate.left({}) == 0


def test_a_large_library_is_estimated_at_once() -> None:
    names = [f"{kind}:{number}" for kind in ("compile", "validate", "objcopy") for number in range(10_000)]
    began = time.process_time()
    estimate = Estimate({name: row(1) for name in names}, names, 4)
    for name in names[:10_000]:
        estimate.waits(name)
        estimate.left({name: 0.5})
        estimate.is_over(name, 1.0)
    assert time.process_time() - began < 2
    assert estimate.left({}) == pytest.approx(5_000)
