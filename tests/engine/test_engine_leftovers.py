"""What no step makes any more is removed, and nothing else is, whatever stands in its place by now."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_helpers import without_root
from engine_jobs import write
from engine_tree import Tree, writing

from kiln.engine.leftovers import remove
from kiln.engine.state import State
from kiln.errors import StateError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "build"


def texts(folder: Path) -> dict[str, str]:
    """The files below a folder, with what they hold."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


# -- files by name -----------------------------------------------------------------------------------------------------


def test_files_and_the_folders_that_this_empties_are_removed(tmp_path: Path, root: Path) -> None:
    write({"a/b/c": "1", "a/d": "2", "e/f": "3"}, root)
    assert remove(root, ["a/b/c", "e/f", "no/such"]) == [root / "a/b/c", root / "e/f"]
    assert sorted(path.name for path in root.iterdir()) == ["a"]
    assert texts(root) == {"a/d": "2"}
    remove(root, ["a/d"])
    assert root.is_dir(), "the build folder itself stays"
    assert list(root.iterdir()) == []


def test_what_took_an_outputs_place_is_left_alone(tmp_path: Path, root: Path) -> None:
    (root / "a").mkdir(parents=True)
    (root / "b").write_text("mine", "utf-8")
    assert remove(root, ["a", "b/c"]) == []
    assert (root / "a").is_dir()
    assert texts(root) == {"b": "mine"}


@pytest.mark.parametrize("name", ["../mine", "sub/../../mine", "", ".", ".."])
def test_a_name_that_leads_out_is_never_removed(tmp_path: Path, root: Path, name: str) -> None:
    """Such a name can only come from a damaged record."""
    (root / "sub").mkdir(parents=True)
    (tmp_path / "mine").write_text("mine", "utf-8")
    assert remove(root, [name, str(tmp_path / "mine")]) == []
    assert texts(tmp_path) == {"mine": "mine"}
    assert (root / "sub").is_dir()


def test_what_cannot_be_removed_is_a_clear_error(tmp_path: Path, root: Path) -> None:
    write({"lib/a": "x"}, root)
    (root / "lib").chmod(0o555)
    with pytest.raises(StateError, match="an output that is not needed any more cannot be removed: Permission denied"):
        without_root(lambda: remove(root, ["lib/a"]))


# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_step_that_is_gone_is_removed_with_its_outputs(tree: Tree) -> None:
    steps = {"a": writing({"lib/a": "1"}), "b": writing({"lib/b": "2"})}
    tree.run(steps)
    with tree.build() as build:
        assert build.sweep({"b"}) == ["a"]
        assert build.sweep({"b"}) == []
    assert tree.files == {"lib/b": "2"}
    assert set(State(tree.state_path).rows) == {"b"}


def test_what_another_step_claims_now_stays(tree: Tree) -> None:
    """A step is renamed: its old name is gone, its output is not."""
    tree.run({"old": writing({"x": "1", "y": "1"})})
    tree.run({"old": writing({"x": "1", "y": "1"}), "new": writing({"x": "1"})})
    with tree.build() as build:
        assert build.sweep({"new"}) == ["old"]
    assert tree.files == {"x": "1"}


def test_an_output_that_moved_to_another_step_is_no_leftover(tree: Tree) -> None:
    """`b` takes over `x` from `a`, and ends before `a` does."""
    tree.run({"a": writing({"x": "1", "y": "1"})})
    tree.run({"b": writing({"x": "2"}), "a": writing({"y": "2"})})
    assert tree.files == {"x": "2", "y": "2"}
