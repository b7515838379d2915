"""Steps that ride on another: done in its child, published at their turn; what goes wrong costs a job of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import wait_until
from engine_tree import Tree, writing

import kiln.engine.pool as pool_module
from kiln.engine.build import Build, Finished
from kiln.engine.state import State
from kiln.engine.step import Built, Call, Step
from kiln.engine.trace import TRACE, read_trace

MADE = "lib/a"
FIRST = {MADE: "one"}


def digest(state: State) -> str:
    """The digest of what the first step made, as it was published."""
    row = state.rows.get("first")
    return row.outputs[0].sha256 if row is not None else "not built"


def calling(build: Build, function: str, *outputs: str, seconds: float = 60.0, **arguments: Any) -> Step:
    """A step that rides on `first`."""
    call = Call(function=f"engine_jobs:{function}", arguments=arguments, seconds=seconds)
    return Step(
        after=("first",),
        rides=True,
        inputs=lambda: {"made": digest(build.state), "tool": "same"},
        call=lambda: call,
        outputs=outputs,
    )


def copying(build: Build, output: str = "out/copy") -> Step:
    """A step that copies what the first one made."""
    return calling(build, "copy", output, source=Built(MADE), name=output, pause=0)


def run(build: Build, riders: dict[str, Step], first: Step | None = None) -> dict[str, Finished | None]:
    """Run the first step with those that ride on it: how it ended, and what they have done ahead."""
    build.start("first", first or writing(FIRST), riders)
    finished: dict[str, Finished | None] = {"first": build.finish()}
    for name, rider in riders.items():
        finished[name] = build.finish_ahead(name, rider)
    return finished


def alone(build: Build, name: str, step: Step) -> Finished:
    """Run a step as a job of its own."""
    build.start(name, step)
    return build.finish()


def temporary(tree: Tree) -> list[Path]:
    return sorted((tree.private / "tmp").glob("*"))


# -- what goes well ----------------------------------------------------------------------------------------------------


def published(tree: Tree) -> dict[str, str]:
    """What lies in the build folder, once nothing is being removed there any more."""
    wait_until(lambda: temporary(tree) == [])
    return tree.files


def test_what_rides_is_done_in_the_child_of_the_first(tree: Tree) -> None:
    with tree.build() as build:
        riders = {"copy": copying(build), "other": copying(build, "out/other")}
        build.start("first", writing(FIRST), riders)
        first = build.finish()
        assert first.error is None
        # Published and recorded is each at its turn.
        assert tree.files == FIRST and set(build.state.rows) == {"first"}
        assert not build.status("copy", riders["copy"]).fresh
        for name, rider in riders.items():
            finished = build.finish_ahead(name, rider)
            assert finished is not None and finished.error is None and finished.name == name
            assert finished.seconds > 0 and 1 << 20 < finished.peak_memory < 1 << 30
            assert build.status(name, rider).fresh
            assert build.finish_ahead(name, rider) is None, "once"
        assert published(tree) == {**FIRST, "out/copy": "one", "out/other": "one"}
        assert build.running == 0 and not build.has_finished
        rode = dict(build.state.rows)
    with tree.build() as build:
        assert all(build.status(name, rider).fresh for name, rider in riders.items())
        build.state.invalidate("copy")
        assert alone(build, "copy", copying(build)).error is None
        row = build.state.rows["copy"]
        assert row.components == rode["copy"].components
        assert [output.sha256 for output in row.outputs] == [output.sha256 for output in rode["copy"].outputs]


def test_a_file_of_the_build_is_found_wherever_it_stands_among_the_arguments(tree: Tree) -> None:
    """For what rides it is what the first step makes now, and what was published before is not read."""
    tree.run({"first": writing({MADE: "old", "lib/b": "2"}), "third": writing({"third": "3"})})
    with tree.build() as build:
        sources = [(name, Built(name)) for name in (MADE, "lib/b", "third")]
        step = calling(build, "join", "all", sources=sources, name="all")
        assert run(build, {"all": step}, writing({MADE: "new", "lib/b": "4"}))["all"] is not None
        assert published(tree)["all"] == "new43"
        build.state.invalidate("all")
        assert alone(build, "all", step).error is None
        assert published(tree)["all"] == "new43"


def test_each_has_surroundings_and_figures_of_its_own(tree: Tree) -> None:
    with tree.build() as build:
        large = {"name": MADE, "words": "from the first", "size": 300 << 20}
        environment = {"ONLY": "the first's"}
        call = Call(function="engine_jobs:surroundings", arguments=large, environment=environment)
        first = Step(inputs=dict, call=lambda: call, outputs=(MADE,))
        small = {"name": "out", "words": "from the other", "size": 0}
        done = run(build, {"other": calling(build, "surroundings", "out", **small)}, first)
        assert done["first"] is not None and done["other"] is not None
        assert (done["first"].output, done["other"].output) == ("from the first\n", "from the other\n")
        assert done["first"].peak_memory > 300 << 20
        assert done["other"].peak_memory < 200 << 20
        assert done["other"].seconds < done["first"].seconds
    found = {name: text.splitlines() for name, text in tree.files.items()}
    assert "ONLY=the first's" in found[MADE]
    assert not [line for line in found["out"] if line.startswith(("ONLY=", "LEFT="))]
    logs = {line for name in (MADE, "out") for line in found[name] if line.startswith("KILN_LOG=")}
    assert len(logs) == 2


def test_the_memory_of_the_first_and_of_its_tools_is_not_that_of_what_rides(tree: Tree) -> None:
    """What starts beside others goes by what a step took before: a short one must not wait for room for a compiler."""
    with tree.build() as build:
        call = Call(function="engine_jobs:keep_memory", arguments={"name": MADE, "kept": 200 << 20, "tool": 300 << 20})
        first = Step(inputs=dict, call=lambda: call, outputs=(MADE,))
        riders = {
            "large": calling(build, "keep_memory", "large", name="large", kept=100 << 20, tool=0),
            "copy": copying(build),
            "tool": calling(build, "keep_memory", "tool", name="tool", kept=0, tool=400 << 20),
            "last": copying(build, "last"),
        }
        done = run(build, riders, first)
        peaks = {name: finished.peak_memory >> 20 for name, finished in done.items() if finished is not None}
        assert peaks["first"] >= 300
        assert 100 <= peaks["large"] < 180
        assert 400 <= peaks["tool"] < 480
        assert max(peaks["copy"], peaks["last"]) < 80
        build.state.invalidate("copy")
        assert abs((alone(build, "copy", riders["copy"]).peak_memory >> 20) - peaks["copy"]) < 20


def test_the_trace_has_each_by_itself(tree: Tree) -> None:
    with tree.build(size=1) as build:
        run(build, {"copy": copying(build), "other": copying(build, "out/other")})
    trace = read_trace(tree.private / TRACE)
    assert trace is not None
    first, copy, other = trace.spans
    assert [span.name for span in trace.spans] == ["first", "copy", "other"]
    assert {span.slot for span in trace.spans} == {0} and {span.result for span in trace.spans} == {"built"}
    assert first.asked <= first.began < first.ended == copy.began < copy.ended == other.began < other.ended
    assert all(span.cpu >= 0 and span.size > 0 for span in trace.spans)


# -- what is not used --------------------------------------------------------------------------------------------------


def test_what_is_fresh_after_the_first_is_dropped(tree: Tree) -> None:
    """The first makes the same bytes as before."""
    with tree.build() as build:
        run(build, {"copy": copying(build)})
    before = (tree.root / "out/copy").stat().st_ctime_ns
    with tree.build() as build:
        rider = copying(build)
        build.start("first", writing(FIRST, edit="of a comment"), {"copy": rider})
        assert build.finish().error is None
        assert build.status("copy", rider).fresh
        build.drop_ahead("copy")
        wait_until(lambda: temporary(tree) == [])
        assert build.finish_ahead("copy", rider) is None
    assert (tree.root / "out/copy").stat().st_ctime_ns == before


def test_what_nobody_asks_for_is_gone_at_the_end(tree: Tree) -> None:
    with tree.build() as build:
        build.start("first", writing(FIRST), {"copy": copying(build)})
        assert build.finish().error is None
        assert temporary(tree)
    assert not (tree.private / "tmp").exists()
    assert tree.files == FIRST
    with tree.build() as build:
        assert build.finish_ahead("copy", copying(build)) is None


def test_a_tool_that_was_replaced_meanwhile_is_not_recorded_with_what_the_old_one_made(tree: Tree) -> None:
    with tree.build() as build:
        tool = ["old"]
        step = copying(build)
        step = replace(step, inputs=lambda: {"made": digest(build.state), "tool": tool[0]})
        build.start("first", writing(FIRST), {"copy": step})
        assert build.finish().error is None
        tool[0] = "new"
        assert build.finish_ahead("copy", step) is None
        assert published(tree) == FIRST and "copy" not in build.state.rows


def test_a_step_that_would_be_asked_for_something_else_now_is_run(tree: Tree) -> None:
    with tree.build() as build:
        build.start("first", writing(FIRST), {"copy": copying(build, "x")})
        assert build.finish().error is None
        other = replace(copying(build, "x"), call=copying(build, "y").call)
        assert build.finish_ahead("copy", other) is None


def test_a_step_whose_inputs_do_not_tell_what_it_reads_is_run(tree: Tree) -> None:
    """Whether a digest of several files was to change nobody can see."""
    with tree.build() as build:
        step = replace(copying(build), inputs=lambda: {"made": f"all of {digest(build.state)}"})
        assert run(build, {"copy": step})["copy"] is None


def test_what_was_made_of_other_bytes_than_are_published_is_not_used(tree: Tree) -> None:
    with tree.build() as build:
        step = copying(build)
        build.start("first", writing(FIRST), {"copy": step})
        assert build.finish().error is None
        row = build.state.rows["first"]
        build.state.record("first", replace(row, outputs=(replace(row.outputs[0], sha256="0" * 64),)))
        assert build.finish_ahead("copy", step) is None


def test_what_cannot_be_asked_beforehand_does_not_ride(tree: Tree) -> None:
    with tree.build() as build:

        def refuse() -> Any:
            raise RuntimeError("no such tool")

        broken = {
            "inputs": replace(copying(build, "1"), inputs=refuse),
            "call": replace(copying(build, "2"), call=refuse),
            "data": calling(build, "nothing", data=lambda: None),
            "module": replace(
                copying(build, "3"), call=lambda: Call(function="engine_jobs:nothing", arguments={}, preload=("none",))
            ),
        }
        done = run(build, {**broken, "copy": copying(build)})
        assert {name for name, finished in done.items() if finished is not None} == {"first", "copy"}
        with pytest.raises(RuntimeError, match="no such tool"):
            build.start("call", broken["call"])


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_failure_is_told_by_a_run_of_its_own(tree: Tree) -> None:
    """As if nothing had ridden along; and it keeps the next from nothing."""
    with tree.build() as build:
        riders = {"loud": calling(build, "fail_loudly"), "copy": copying(build)}
        done = run(build, riders)
        assert done["first"] is not None and done["first"].error is None
        assert done["loud"] is None and done["copy"] is not None
        assert not (tree.private / "logs").exists()
        finished = alone(build, "loud", riders["loud"])
        assert str(finished.error) == "it does not compile" and finished.output == "what the compiler said\n"
        assert finished.log is not None


def test_nothing_rides_on_a_failure(tree: Tree, tmp_path: Path) -> None:
    with tree.build() as build:
        witness = calling(build, "leave_a_process", numbers=str(tmp_path / "numbers"))
        for first in ("fail_loudly", "divide", "crash"):
            failing = Step(
                inputs=dict, call=lambda first=first: Call(function=f"engine_jobs:{first}", arguments={}), outputs=()
            )
            done = run(build, {"witness": witness}, failing)
            assert done["first"] is not None and done["first"].error is not None
            assert done["witness"] is None
            wait_until(lambda: temporary(tree) == [])
    assert not (tmp_path / "numbers").exists()


def test_what_did_not_make_what_it_declared_has_nothing_ride_on_it(tree: Tree, tmp_path: Path) -> None:
    with tree.build() as build:
        witness = calling(build, "leave_a_process", numbers=str(tmp_path / "numbers"))
        first = replace(writing(FIRST), outputs=(MADE, "lib/b"))
        done = run(build, {"witness": witness}, first)
        assert done["first"] is not None and "did not make what it declared" in str(done["first"].error)
        assert done["witness"] is None
    assert not (tmp_path / "numbers").exists()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("crash", {}),
        ("kill_self", {"number": int(signal.SIGKILL)}),
        ("leave_at_once", {"code": 0}),
        ("leave_at_once", {"code": 3}),
    ],
    ids=["SIGSEGV", "SIGKILL", "exit 0", "exit 3"],
)
def test_the_end_of_the_child_leaves_the_first_whole(tree: Tree, function: str, arguments: dict[str, int]) -> None:
    with tree.build() as build:
        riders = {
            "before": copying(build, "before"),
            "end": calling(build, function, "out.txt", **arguments),
            "after": copying(build, "after"),
        }
        done = run(build, riders)
        assert done["first"] is not None and done["first"].error is None
        assert done["before"] is not None
        assert done["end"] is None and done["after"] is None
        assert published(tree) == {**FIRST, "before": "one"}
        assert alone(build, "end", riders["end"]).error is not None
        assert alone(build, "after", riders["after"]).error is None
        assert published(tree) == {**FIRST, "before": "one", "after": "one"}


def test_each_has_the_time_that_it_has_alone(tree: Tree) -> None:
    with tree.build() as build:
        hanging = calling(build, "sleep", pause=60, seconds=0.5)
        slow = calling(build, "copy", "slow", source=Built(MADE), name="slow", pause=0.4, seconds=30)
        quick = replace(writing(FIRST), call=lambda: replace(writing(FIRST).call(), seconds=0.3))
        began = time.monotonic()
        done = run(build, {"slow": slow, "hanging": hanging}, quick)
        assert 0.9 <= time.monotonic() - began < 5
        assert done["first"] is not None and done["first"].error is None, "its time was over long before the last"
        assert done["slow"] is not None and done["slow"].seconds >= 0.4
        assert done["hanging"] is None
        late = replace(quick, call=lambda: Call(function="engine_jobs:sleep", arguments={"pause": 60}, seconds=0.3))
        began = time.monotonic()
        done = run(build, {"slow": slow}, late)
        assert time.monotonic() - began < 10, "it does not have the time of what rides on it"
        assert done["first"] is not None and "ran past its time limit of 0.3 s" in str(done["first"].error)


def test_what_hangs_is_not_waited_for_as_long_as_it_may_take_by_itself(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "RIDING", 0.3)
    with tree.build() as build:
        hanging = calling(build, "sleep", pause=60, seconds=60)
        slow = calling(build, "copy", "slow", source=Built(MADE), name="slow", pause=0.6)
        began = time.monotonic()
        done = run(build, {"hanging": hanging}, replace(writing(FIRST), call=lambda: writing(FIRST, pause=0.6).call()))
        assert time.monotonic() - began < 30
        assert done["first"] is not None and done["first"].error is None, "it has its own time"
        assert done["hanging"] is None
        assert run(build, {"slow": slow})["slow"] is None
        assert alone(build, "slow", slow).error is None


def test_each_is_held_to_the_memory_that_it_may_take(tree: Tree) -> None:
    """What the first has mapped counts on: so what rides has as much as the one that may take most."""
    with tree.build() as build:

        def allocating(size: int, memory: int) -> Call:
            return Call(function="engine_jobs:allocate", arguments={"size": size}, memory=memory)

        small = replace(copying(build), call=lambda: replace(copying(build).call(), memory=1 << 30))
        greedy = replace(copying(build), call=lambda: allocating(4 << 30, 2 << 30), outputs=())
        first = replace(writing(FIRST), call=lambda: replace(writing(FIRST).call(), memory=1 << 30))
        done = run(build, {"greedy": greedy, "copy": small}, first)
        assert done["first"] is not None and done["first"].error is None
        assert done["greedy"] is None and done["copy"] is not None
        assert "its limit is 2048 MiB" in str(alone(build, "greedy", greedy).error)
        first = Step(inputs=dict, call=lambda: allocating(4 << 30, 2 << 30), outputs=())
        # What rides could have more.
        done = run(build, {"copy": copying(build)}, first)
        assert done["first"] is not None and "its limit is 2048 MiB" in str(done["first"].error)


def test_what_writes_nothing_is_told_by_a_run_of_its_own(tree: Tree) -> None:
    with tree.build() as build:
        step = calling(build, "nothing", "out")
        assert run(build, {"nothing": step})["nothing"] is None
        assert "did not make what it declared" in str(alone(build, "nothing", step).error)


def test_what_cannot_be_put_in_place_is_told_by_a_run_of_its_own(tree: Tree) -> None:
    with tree.build() as build:
        tree.root.mkdir(parents=True)
        (tree.root / "out").write_text("in the way", "utf-8")
        assert run(build, {"copy": copying(build)})["copy"] is None
        assert "copy" not in build.state.rows
        error = alone(build, "copy", copying(build)).error
        assert "something stands where the build folder needs a folder" in str(error)


def test_a_disk_that_is_full_for_what_rides_is_no_fault_of_the_first(tree: Tree) -> None:
    with tree.build() as build:
        full = calling(build, "fill_up", "large")
        done = run(build, {"large": full})
        assert done["first"] is not None and done["first"].error is None
        assert done["large"] is None
        error = str(alone(build, "large", full).error)
        assert "no space left on the disk: a step cannot write its files" in error


def in_a_killed_process(work: Callable[[], None]) -> None:
    """Do it in a fork of this process that kills itself then."""
    pid = os.fork()
    if pid == 0:
        work()
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def test_killed_between_the_first_and_what_rode_on_it_the_next_build_runs_that(tree: Tree) -> None:
    def work() -> None:
        build = tree.build().__enter__()
        build.start("first", writing(FIRST), {"copy": copying(build)})
        assert build.finish().error is None
        assert temporary(tree)

    in_a_killed_process(work)
    assert tree.files == FIRST
    with tree.build() as build:
        build.sweep({"first", "copy"})
        wait_until(lambda: temporary(tree) == [])
        assert build.status("first", writing(FIRST)).fresh
        assert not build.status("copy", copying(build)).fresh
        assert build.finish_ahead("copy", copying(build)) is None
        assert alone(build, "copy", copying(build)).error is None
    assert tree.files == {**FIRST, "out/copy": "one"}
