"""Outputs reach the build folder whole or not at all, and nothing outside of it is touched."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from engine_helpers import can_mount, on_a_small_disk, without_root

from kiln.digests import FileDigests, digest_bytes
from kiln.engine.leftovers import remove
from kiln.engine.publish import intact, make_folder, publish
from kiln.errors import KilnError, StateError, os_failure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "build"


def staged(tmp_path: Path, **files: str) -> Path:
    """A new staging folder with files in it; `__` in a name stands for a slash, `_` for a dot."""
    staging = tmp_path / f"staging{len(list(tmp_path.glob('staging*')))}"
    staging.mkdir()
    for name, text in files.items():
        path = staging / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return staging


def tree(folder: Path) -> dict[str, str]:
    """The files below a folder, with their texts."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}


# -- publishing --------------------------------------------------------------------------------------------------------


def test_outputs_are_renamed_and_described(tmp_path: Path, root: Path) -> None:
    published = publish(staged(tmp_path, lib__a_o="one", b_h="two"), root, ("lib/a.o", "b.h"))
    assert tree(root) == {"lib/a.o": "one", "b.h": "two"}
    assert [output.path for output in published] == ["lib/a.o", "b.h"]
    assert [(output.size, output.sha256) for output in published] == [
        (3, digest_bytes(b"one")),
        (3, digest_bytes(b"two")),
    ]
    assert published[0].ctime_ns == (root / "lib/a.o").stat().st_ctime_ns
    assert intact(root, published) is None


def test_the_same_bytes_keep_their_time_stamp(tmp_path: Path, root: Path) -> None:
    publish(staged(tmp_path, a="same", b="old"), root, ("a", "b"))
    for name in "ab":
        os.utime(root / name, ns=(5, 5))
    publish(staged(tmp_path, a="same", b="new"), root, ("a", "b"))
    assert (root / "a").stat().st_mtime_ns == 5
    assert (root / "b").stat().st_mtime_ns != 5
    assert tree(root) == {"a": "same", "b": "new"}


def test_only_what_was_declared_is_taken_and_all_of_it(tmp_path: Path, root: Path) -> None:
    publish(staged(tmp_path, a="old"), root, ("a",))
    with pytest.raises(KilnError) as caught:
        publish(staged(tmp_path, a="new", sub__c="x"), root, ("a", "b"))
    assert caught.value.what == "a step did not make what it declared"
    assert caught.value.expected == "a, b"
    assert caught.value.actual == "missing: b; not declared: sub/c"
    with pytest.raises(KilnError, match="did not make what it declared") as caught:
        publish(staged(tmp_path), root, tuple("abcdefgh"))
    assert caught.value.actual == "missing: a, b, c, d, e and 3 more"
    assert tree(root) == {"a": "old"}


@pytest.mark.parametrize("name", ["../a", "/etc/kiln-test", "sub/../../a"])
def test_a_declared_name_that_leads_out_cannot_be_made(tmp_path: Path, root: Path, name: str) -> None:
    staging = staged(tmp_path)
    (tmp_path / "a").write_text("outside", "utf-8")
    with pytest.raises(KilnError, match="did not make what it declared"):
        publish(staging, root, (name,))
    assert not root.exists()


def test_what_is_no_regular_file_is_refused(tmp_path: Path, root: Path) -> None:
    (tmp_path / "secret").write_text("outside", "utf-8")
    for make in (lambda path: path.symlink_to(tmp_path / "secret"), os.mkfifo, lambda path: path.symlink_to(tmp_path)):
        staging = staged(tmp_path, a="x")
        make(staging / "b")
        with pytest.raises(KilnError, match="b: a step made something that is no regular file"):
            publish(staging, root, ("a", "b"))
    assert not root.exists()


def test_when_one_cannot_be_placed_none_is(tmp_path: Path, root: Path) -> None:
    """Old files are put back, new ones taken away: the rename of the last one fails here, in a folder of its own."""
    names = ("a", "new", "locked/b")
    publish(staged(tmp_path, a="old", locked__b="old"), root, ("a", "locked/b"))
    staging = staged(tmp_path, a="new", new="new", locked__b="new")
    (root / "locked").chmod(0o555)
    with pytest.raises(StateError) as caught:
        without_root(lambda: publish(staging, root, names))
    assert caught.value.what == "an output cannot be put in place: Permission denied"
    assert "locked/b" in str(caught.value.where)
    assert caught.value.remedy
    assert tree(root) == {"a": "old", "locked/b": "old"}
    (root / "locked").chmod(0o755)
    publish(staged(tmp_path, a="new", new="new", locked__b="new"), root, names)
    assert tree(root) == dict.fromkeys(names, "new")


def test_a_folder_in_the_place_of_an_output_is_named_before_anything_moves(tmp_path: Path, root: Path) -> None:
    (root / "b" / "mine").mkdir(parents=True)
    with pytest.raises(StateError, match="a folder stands where the build puts a file") as caught:
        publish(staged(tmp_path, a="x", b="y"), root, ("a", "b"))
    assert caught.value.where == str(root / "b")
    assert tree(root) == {}


ON_A_SMALL_DISK = """
import os, sys
from pathlib import Path
from kiln.engine.publish import publish
from kiln.errors import StateError
root = Path(sys.argv[1])
for round in ("old", "new"):
    staging = root / f"staging-{round}"
    names = ["a", *(f"{round}{index}/x" for index in range(3))]
    for name in names:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_text(round)
    if round == "new":
        number = 0
        try:
            while True:
                (root / f"fill{number}").mkdir()
                number += 1
        except OSError:
            pass
    try:
        publish(staging, root / "build", tuple(names))
    except StateError as error:
        print(error)
print((root / "build/a").read_text())
"""


def test_no_space_is_named_and_old_outputs_stay(tmp_path: Path) -> None:
    if can_mount():
        done = on_a_small_disk(tmp_path, ON_A_SMALL_DISK, str(tmp_path))
        assert "no space left on the disk: a folder of the build cannot be made\n" in done.stdout, done.stderr
        assert "remedy: make room there and run again; finished work is kept\n" in done.stdout
        assert done.stdout.endswith("\nold\n")
        return
    # Where no disk can be made: /dev/full is one that is always full.
    with pytest.raises(OSError, match="No space left") as caught:
        Path("/dev/full").write_bytes(b"x")
    assert "no space left on the disk: it failed" in str(os_failure("it failed", caught.value, tmp_path))


# -- links -------------------------------------------------------------------------------------------------------------


def test_the_build_folder_may_be_a_link(tmp_path: Path, root: Path) -> None:
    (tmp_path / "fast disk").mkdir()
    root.symlink_to(tmp_path / "fast disk")
    publish(staged(tmp_path, lib__a="x"), root, ("lib/a",))
    assert tree(tmp_path / "fast disk") == {"lib/a": "x"}
    assert remove(root, ["lib/a"]) == [root / "lib/a"]
    assert list((tmp_path / "fast disk").iterdir()) == []


def test_a_link_below_it_is_not_followed(tmp_path: Path, root: Path) -> None:
    """Neither where a folder is needed, nor in the place of an output, nor when outputs are removed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("mine", "utf-8")
    root.mkdir()
    (root / "lib").symlink_to(outside)
    with pytest.raises(StateError) as caught:
        publish(staged(tmp_path, lib__a="x"), root, ("lib/a",))
    assert caught.value.where == str(root / "lib")
    assert caught.value.actual == "a symbolic link"
    assert "follows no links" in str(caught.value.remedy)
    assert remove(root, ["lib/a", "lib/deeper/a"]) == []
    (root / "b").symlink_to(outside / "a")
    publish(staged(tmp_path, b="x"), root, ("b",))
    assert tree(outside) == {"a": "mine"}
    assert not (root / "b").is_symlink()
    (root / "c").symlink_to(outside / "a")
    assert remove(root, ["c"]) == [root / "c"]
    assert tree(outside) == {"a": "mine"}


def test_a_file_where_a_folder_is_needed_is_named(tmp_path: Path, root: Path) -> None:
    root.mkdir()
    (root / "lib").write_text("mine", "utf-8")
    with pytest.raises(StateError) as caught:
        make_folder(root, root / "lib" / "deep")
    assert (caught.value.where, caught.value.actual) == (str(root / "lib"), "a file")


# -- checking ----------------------------------------------------------------------------------------------------------


def test_damage_is_told_in_words(tmp_path: Path, root: Path) -> None:
    """An output that is touched is fine; one that is cut, changed, gone or no file is not."""
    files = FileDigests({})
    path = root / "lib" / "a"
    published = publish(staged(tmp_path, lib__a="text"), root, ("lib/a",))
    assert intact(root, published, files) is None
    os.utime(path)
    assert intact(root, published, files) is None
    path.write_text("tex", "utf-8")
    assert intact(root, published, files) == f"{path} does not hold what was built"
    path.write_text("texT", "utf-8")
    assert intact(root, published, files) == f"{path} does not hold what was built"
    path.unlink()
    assert intact(root, published, files) == f"{path} is missing"
    path.mkdir()
    assert intact(root, published, files) == f"{path} is no regular file any more"
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere")
    assert intact(root, published, files) == f"{path} is no regular file any more"
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file", "utf-8")
    assert intact(root, published, files) == f"{path} is missing"


def test_the_bytes_alone_decide_when_asked_to(tmp_path: Path, root: Path) -> None:
    """A byte that the disk flipped moves no time stamp: it passes the quick check, and not the full one."""
    (output,) = publish(staged(tmp_path, a="text"), root, ("a",))
    (root / "a").write_text("teXt", "utf-8")
    output = replace(output, ctime_ns=(root / "a").stat().st_ctime_ns)
    assert intact(root, [output], FileDigests({})) is None
    assert intact(root, [output]) == f"{root / 'a'} does not hold what was built"


def test_an_output_that_cannot_be_read_is_stale_and_stops_nothing(tmp_path: Path, root: Path) -> None:
    published = publish(staged(tmp_path, a="text"), root, ("a",))
    os.utime(root / "a")
    (root / "a").chmod(0)
    found = without_root(lambda: intact(root, published, FileDigests({})))
    assert found == f"{root / 'a'} cannot be read: Permission denied"
