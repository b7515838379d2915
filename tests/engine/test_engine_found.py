"""What a run finds out that it reads: recorded with the step, compared before the next run, and replaced by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_tree import Tree

from kiln.digests import digest_file
from kiln.engine.step import Call, Found, Step


def including(source: Path) -> Step:
    """A step that reads what the file `source` lists; only the run knows what that is."""

    def digests(found: Found) -> dict[str, str]:
        paths = {name: Path(names[0]) for name, names in found.items()}
        return {name: digest_file(path) if path.exists() else "missing" for name, path in paths.items()}

    return Step(
        inputs=lambda: {"source": digest_file(source)},
        found=digests,
        call=lambda: Call(function="engine_jobs:include", arguments={"source": str(source), "name": "out/all"}),
        outputs=("out/all",),
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "source"
    path.write_text(f"{tmp_path}/a {tmp_path}/b")
    return path


def test_an_edit_of_what_was_read_makes_the_step_stale(tree: Tree, source: Path) -> None:
    step = including(source)
    tree.run({"all": step})
    assert tree.reasons("all", step) == ()
    source.with_name("c").write_text("an edit of what it does not read")
    assert tree.reasons("all", step) == ()
    source.with_name("b").write_text("B")
    (reason,) = tree.reasons("all", step)
    assert reason.startswith("include b changed: ")
    tree.run({"all": step})
    assert tree.files == {"out/all": "aB"}
    assert tree.reasons("all", step) == ()


def test_what_is_not_read_any_more_is_forgotten(tree: Tree, source: Path) -> None:
    step = including(source)
    tree.run({"all": step})
    source.write_text(f"{source.parent}/a {source.parent}/c")
    tree.run({"all": step})
    assert tree.reasons("all", step) == ()
    source.with_name("b").write_text("B")
    assert tree.reasons("all", step) == ()
    source.with_name("c").unlink()
    (reason,) = tree.reasons("all", step)
    assert reason.startswith("include c changed: ") and reason.endswith(" -> missing")


def test_what_was_found_outlives_a_failure(tree: Tree, source: Path) -> None:
    step = including(source)
    tree.run({"all": step})
    source.with_name("b").unlink()
    assert tree.run({"all": step})["all"].error is not None
    assert tree.reasons("all", step) == ("its last run failed or was forgotten",)
    source.with_name("b").write_text("b")
    assert tree.run({"all": step})["all"].error is None
    assert tree.reasons("all", step) == ()


def test_any_other_value_is_dropped(tree: Tree) -> None:
    step = Step(
        inputs=dict,
        call=lambda: Call(function="engine_jobs:return_a_number", arguments={}),
        outputs=("out/a",),
    )
    assert tree.run({"a": step})["a"].error is None
    assert tree.reasons("a", step) == ()
