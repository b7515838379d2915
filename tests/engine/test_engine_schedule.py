"""Which step starts next, and beside which others."""

from __future__ import annotations

import random
from collections.abc import Mapping

from kiln.engine.rows import Row
from kiln.engine.schedule import Schedule

MIB = 1 << 20


def row(seconds: float, peak: int = 0) -> Row:
    """A row of a step that took so long, and so many MiB."""
    return Row(components={}, outputs=(), seconds=seconds, peak_memory=peak * MIB)


def order(rows: Mapping[str, Row], *waiting: str) -> list[str]:
    """The order in which steps start, one after the other."""
    schedule = Schedule(rows, None)
    for name in waiting:
        schedule.add(name)
    started = []
    while name := schedule.next([]):
        started.append(name)
    assert len(schedule) == 0
    return started


def test_the_longest_goes_first() -> None:
    rows = {"compile:a": row(1), "compile:b": row(9), "objcopy:c": row(4), "compile:d": row(4)}
    assert order(rows, *rows) == ["compile:b", "objcopy:c", "compile:d", "compile:a"]


def test_one_that_never_ran_goes_by_the_longest_of_its_kind_and_before_it() -> None:
    rows = {"compile:a": row(9), "compile:gone": row(5), "link:b": row(3)}
    assert order(rows, "compile:a", "link:b", "link:new", "compile:new") == [
        "compile:new",
        "compile:a",
        "link:new",
        "link:b",
    ]


def test_kinds_of_which_nothing_is_known_go_first_in_the_order_in_which_they_come() -> None:
    assert order({"a:1": row(99)}, "b:2", "a:1", "b:1", "c") == ["b:2", "b:1", "c", "a:1"]


def test_what_ends_meanwhile_is_learned_from() -> None:
    schedule = Schedule({}, None)
    for name in ("validate:1", "compile:1", "compile:2", "validate:2"):
        schedule.add(name)
    assert [schedule.next([]) for _ in range(2)] == ["validate:1", "compile:1"]
    schedule.learn("validate:1", row(0.1))
    schedule.learn("compile:1", row(5))
    assert [schedule.next([]) for _ in range(3)] == ["compile:2", "validate:2", None]


def test_steps_run_beside_each_other_while_their_memory_fits() -> None:
    rows = {"a:large": row(9, 700), "a:second": row(8, 600), "a:small": row(1, 200), "a:smaller": row(0.5, 200)}
    schedule = Schedule(rows, 1000 * MIB)
    for name in rows:
        schedule.add(name)
    assert schedule.next([]) == "a:large"
    assert schedule.next(["a:large"]) == "a:small", "the second does not fit beside the first"
    assert schedule.next(["a:large", "a:small"]) is None
    assert schedule.next(["a:small"]) == "a:second"
    assert schedule.next(["a:small", "a:second"]) == "a:smaller"


def test_one_that_never_fits_runs_alone() -> None:
    schedule = Schedule({"a:huge": row(9, 5000), "a:small": row(1, 10)}, 1000 * MIB)
    schedule.add("a:huge")
    schedule.add("a:small")
    assert schedule.next([]) == "a:huge"
    assert schedule.next(["a:huge"]) is None
    assert schedule.next([]) == "a:small"


def test_one_that_never_ran_is_expected_to_take_what_the_largest_of_its_kind_took() -> None:
    schedule = Schedule({"a:known": row(1, 600)}, 1000 * MIB)
    for name in ("a:new", "b:new", "b:other"):
        schedule.add(name)
    assert schedule.next(["a:known"]) is None, "600 and 600 MiB do not fit, nor do 600 and 512"
    assert schedule.next([]) == "b:new"
    schedule.learn("b:new", row(1, 100))
    assert schedule.next(["a:known"]) == "b:other", "beside 600 there is room for 100"


def test_nothing_waits_any_more_once_it_is_cleared() -> None:
    schedule = Schedule({"a:1": row(1)}, None)
    for name in ("a:1", "a:2"):
        schedule.add(name)
    schedule.clear()
    assert len(schedule) == 0
    assert schedule.next([]) is None


def test_random_orders_start_each_once_and_never_more_than_fits() -> None:
    chance = random.Random(3)
    for _ in range(30):
        names = [f"{chance.choice('abc')}:{index}" for index in range(40)]
        peaks = {name: chance.randrange(1, 400) for name in names}
        rows = {name: row(chance.random(), peaks[name]) for name in names if chance.random() < 0.9}
        unknown = {kind: max((peaks[n] for n in rows if n[0] == kind), default=512) for kind in "abc"}
        expected = {name: peaks[name] if name in rows else unknown[name[0]] for name in names}
        schedule = Schedule(rows, 1000 * MIB)
        for name in names:
            schedule.add(name)
        running: list[str] = []
        started: list[str] = []
        while len(started) < len(names) or running:
            found = schedule.next(running)
            if found is None:
                running.pop(chance.randrange(len(running)))
                continue
            running.append(found)
            started.append(found)
            assert len(running) == 1 or sum(expected[name] for name in running) <= 1000
        assert sorted(started) == sorted(names)
