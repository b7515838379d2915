"""Whole steps: what makes them stale, what is recorded of them, and what is left when they fail or are gone."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import children, wait_until, without_root
from engine_tree import Tree, writing

from kiln.digests import digest_file
from kiln.engine.remover import Remover
from kiln.engine.state import State
from kiln.engine.step import Call, Step
from kiln.errors import KilnError, StateError


def calling(function: str, *outputs: str, **arguments: Any) -> Step:
    """A step that calls a function of engine_jobs."""
    return Step(
        inputs=lambda: {"input": "same"},
        call=lambda: Call(function=f"engine_jobs:{function}", arguments=arguments),
        outputs=outputs,
    )


# -- fresh and stale ---------------------------------------------------------------------------------------------------


def test_a_step_runs_once_and_is_fresh_then(tree: Tree) -> None:
    step = writing({"lib/a.o": "one"})
    assert tree.reasons("a", step) == ("it was never built here",)
    assert tree.run({"a": step})["a"].error is None
    assert tree.files == {"lib/a.o": "one"}
    assert tree.reasons("a", step) == ()
    assert tree.run({"a": step}) == {}


def test_a_build_with_nothing_to_do_starts_no_process_and_writes_nothing(tree: Tree) -> None:
    step = writing({"a": "one"})
    tree.run({"a": step})
    before = {path: path.stat().st_mtime_ns for path in tree.root.rglob("*")}
    with tree.build() as build:
        build.sweep({"a"})
        assert build.status("a", step).fresh
        assert not children()
        build.state.commit_files()
        build.state.close()
    assert {path: path.stat().st_mtime_ns for path in tree.root.rglob("*")} == before


def test_what_changed_is_told_in_words(tree: Tree) -> None:
    old, new = "a" * 64, "b" * 64
    tree.run({"a": writing({"x": "1"}, closure=old, target="sm_80", gone="yes")})
    reasons = tree.reasons("a", writing({"x": "1"}, closure=new, target="sm_90a", new="yes"))
    assert reasons == (
        f"closure changed: {'a' * 12} -> {'b' * 12}",
        "gone changed: yes -> nothing",
        "new changed: nothing -> yes",
        "target changed: sm_80 -> sm_90a",
    )


def test_damaged_outputs_are_told_and_made_anew(tree: Tree) -> None:
    step = writing({"lib/a": "one", "lib/b": "two"})
    for damage, word in (
        (lambda path: path.write_text("", "utf-8"), "does not hold what was built"),
        (lambda path: path.write_text("eno", "utf-8"), "does not hold what was built"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: shutil.rmtree(path.parent), "is missing"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "is no regular file any more"),
    ):
        tree.run({"a": step})
        damage(tree.root / "lib/a")
        assert tree.reasons("a", step) == (f"{tree.root / 'lib/a'} {word}",)
        assert set(tree.run({"a": step})) == {"a"}
        assert tree.files == {"lib/a": "one", "lib/b": "two"}


def test_a_time_stamp_alone_makes_nothing_stale_and_is_read_once(tree: Tree) -> None:
    step = writing({"a": "one"})
    tree.run({"a": step})
    os.utime(tree.root / "a", ns=(5, 5))
    time.sleep(0.15)  # a file that has just changed is not taken to have settled
    assert tree.run({"a": step}) == {}
    (tree.root / "a").chmod(0)
    with tree.build() as build:
        assert str(tree.root / "a") in build.state.files._known
    (tree.root / "a").chmod(0o644)


def test_another_list_of_outputs_makes_stale_and_removes_what_is_left_over(tree: Tree) -> None:
    tree.run({"a": calling("write", "old/x", "y", files={"old/x": "1", "y": "2"})})
    step = calling("write", "y", "new/z", files={"y": "2", "new/z": "3"})
    assert tree.reasons("a", step) == ("its list of outputs changed",)
    tree.run({"a": step})
    assert tree.files == {"y": "2", "new/z": "3"}
    assert not (tree.root / "old").exists()


def test_an_input_that_cannot_be_read_is_a_clear_error(tree: Tree, tmp_path: Path) -> None:
    step = Step(inputs=lambda: {"tool": digest_file(tmp_path / "none")}, call=lambda: pytest.fail(), outputs=())
    with pytest.raises(StateError) as caught:
        tree.reasons("a", step)
    assert str(caught.value) == f"{tmp_path / 'none'}: an input cannot be read: No such file or directory"


def test_an_edit_during_the_run_makes_the_step_stale_again(tree: Tree, tmp_path: Path) -> None:
    """What is recorded is what was asked before the start, not what lies there at the end."""
    source = tmp_path / "kernel.py"
    source.write_text("old", "utf-8")
    step = Step(
        inputs=lambda: {"source": digest_file(source)},
        call=lambda: Call(function="engine_jobs:copy", arguments={"source": str(source), "name": "a", "pause": 0.3}),
        outputs=("a",),
    )
    before = digest_file(source)
    with tree.build() as build:
        assert not build.status("a", step).fresh
        build.start("a", step)
        wait_until(lambda: any(tree.private.glob("tmp/*/out")))
        source.write_text("new", "utf-8")
        assert build.finish().error is None
        assert build.state.rows["a"].components == {"source": before}
        build.state.close()
    assert tree.reasons("a", step) != ()
    tree.run({"a": step})
    assert tree.files == {"a": "new"}
    assert tree.reasons("a", step) == ()


def test_a_build_that_waited_for_another_goes_by_what_that_one_recorded(tree: Tree) -> None:
    step = writing({"a": "one"})
    waiting = tree.build()
    assert not waiting.status("a", step).fresh
    tree.run({"a": step})
    with waiting:
        assert waiting.status("a", step).fresh


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failed_step_is_stale_and_its_old_outputs_stay_known(tree: Tree) -> None:
    tree.run({"a": calling("write", "x", files={"x": "1"})})
    failing = calling("fail_loudly", "x")
    with tree.build() as build:
        build.start("a", failing)
        finished = build.finish()
    assert str(finished.error) == "it does not compile"
    assert finished.output == "what the compiler said\n"
    assert tree.files == {"x": "1"}, "the old output stays whole"
    assert tree.reasons("a", failing) == ("its last run failed or was forgotten",)
    tree.run({})
    assert tree.files == {}, "and is removed with its step"


def test_what_a_failed_step_printed_is_kept_until_it_ends_well(tree: Tree) -> None:
    log = tree.private / "logs" / "compile" / "a@sm_80.log"
    with tree.build() as build:
        build.start("compile:a@sm_80", calling("fail_loudly"))
        assert build.finish().log == log
    assert log.read_text("utf-8") == "what the compiler said\n"
    with tree.build() as build:
        build.start("compile:a@sm_80", calling("divide"))
        assert build.finish().log == log
    assert "ZeroDivisionError" in log.read_text("utf-8")
    assert "what the compiler said" not in log.read_text("utf-8")
    assert tree.run({"compile:a@sm_80": calling("nothing")})["compile:a@sm_80"].log is None
    assert not log.exists()
    assert tree.run({"quiet": calling("fail_with_all_parts")})["quiet"].log is None


def test_a_log_goes_through_no_link(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("mine", "utf-8")
    tree.private.mkdir(parents=True)
    (tree.private / "logs").symlink_to(tmp_path)
    assert tree.run({"a": calling("fail_loudly")})["a"].log is None
    assert (tmp_path / "a.log").read_text("utf-8") == "mine"
    (tree.private / "logs").unlink()
    (tree.private / "logs").mkdir()
    (tree.private / "logs" / "a.log").symlink_to(tmp_path / "a.log")
    assert tree.run({"a": calling("fail_loudly")})["a"].log == tree.private / "logs" / "a.log"
    assert (tmp_path / "a.log").read_text("utf-8") == "mine"


def test_nothing_of_a_step_that_did_not_end_well_is_published(tree: Tree) -> None:
    """Half of the outputs, or all of them and then a crash: an exit code of 0 is no proof either."""
    finished = tree.run(
        {
            "half": calling("write", "a", "b", files={"a": "1"}),
            "crash": calling("leave_at_once", "out.txt", code=0),
        }
    )
    assert "did not make what it declared" in str(finished["half"].error)
    assert "left no result" in str(finished["crash"].error)
    assert tree.files == {}
    assert State(tree.state_path).rows == {}


def test_what_a_failed_step_wrote_takes_no_room_from_the_next(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone when the failure is told, however much there is to remove beside the build."""
    with tree.build() as build:
        monkeypatch.setattr(Remover, "remove", lambda *given: None)
        build.start("ends well", writing({"a": "1"}))
        assert build.finish().error is None
        (left,) = (tree.private / "tmp").iterdir()
        build.start("half", calling("write", "a", "b", files={"a": "1"}), {"rides": writing({"c": "1"})})
        assert build.finish().error is not None
        assert list((tree.private / "tmp").iterdir()) == [left]


def test_a_step_whose_call_cannot_be_made_does_not_count_as_running(tree: Tree) -> None:
    def refuse() -> Call:
        raise KilnError("no such tool")

    with tree.build() as build:
        with pytest.raises(KilnError, match="no such tool"):
            build.start("a", Step(inputs=dict, call=refuse, outputs=()))
        assert build.running == 0
        assert build.free


def test_a_record_that_cannot_be_written_fails_the_step_with_the_reason(tree: Tree) -> None:
    """And only that: to note the failure would meet the same wall, which must not end the build."""
    tree.run({"a": writing({"a": "1"})})

    def run() -> str:
        with tree.build() as build:
            build.start("a", writing({"a": "2"}))
            wait_until(lambda: any(tree.private.glob("tmp/*/out/a")))
            tree.private.chmod(0o555)
            error = str(build.finish().error)
            tree.private.chmod(0o755)
            return error

    assert "the record of this build cannot be written" in without_root(run)
    assert tree.reasons("a", writing({"a": "2"})) == ("content changed: 1 -> 2",)


def test_steps_overlap_as_far_as_the_size_allows(tree: Tree, tmp_path: Path) -> None:
    with tree.build(size=2) as build:
        for name, other in ("ab", "ba"):
            assert build.free
            build.start(name, calling("meet", own=str(tmp_path / name), other=str(tmp_path / other)))
        assert not build.free
        assert build.running == 2
        finished = [build.finish(), build.finish()]
        assert {each.name: each.error for each in finished} == {"a": None, "b": None}
        build.size = 3
        assert (build.size, build.free, build.running) == (3, True, 0)


# -- temporary files ---------------------------------------------------------------------------------------------------


def test_old_temporary_files_are_cleared_and_links_are_not_followed(tree: Tree, tmp_path: Path) -> None:
    (tree.private / "tmp" / "left" / "out").mkdir(parents=True)
    (tmp_path / "mine").write_text("mine", "utf-8")
    (tree.private / "tmp" / "left" / "link").symlink_to(tmp_path)
    with tree.build() as build:
        build.sweep(set())
    assert not (tree.private / "tmp").exists()
    (tree.private / "tmp").symlink_to(tmp_path)
    with tree.build() as build:
        build.sweep(set())
        with pytest.raises(StateError, match="something stands where the build folder needs a folder"):
            build.start("a", writing({"a": "1"}))
    assert (tmp_path / "mine").read_text("utf-8") == "mine"


def test_an_interrupted_build_keeps_what_is_finished(tree: Tree) -> None:
    """Ctrl-C: children dead, temporary files gone, finished steps recorded."""
    with pytest.raises(KeyboardInterrupt), tree.build() as build:
        build.start("done", writing({"a": "1"}))
        build.finish()
        build.start("flying", calling("sleep", "b", pause=100))
        raise KeyboardInterrupt
    assert not (tree.private / "tmp").exists()
    assert tree.files == {"a": "1"}
    assert tree.reasons("done", writing({"a": "1"})) == ()
