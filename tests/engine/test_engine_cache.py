"""The cache as builds use it: what is one step's and another's, what is kept, and what of a folder can be wrong."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import TOOLS, can_mount, children, on_a_small_disk, run_python, without_root

from kiln.digests import FileDigests, digest_file
from kiln.engine.build import Build
from kiln.engine.cache import Counts, Entry, StepCache, key_of, read_counts
from kiln.engine.cache_entry import pack, unpack
from kiln.engine.local_cache import DEFAULT_LIMIT, LocalCache, Settings, settings
from kiln.engine.state import State
from kiln.engine.step import Call, Found, Step
from kiln.errors import StateError

KEY = key_of({"content": "one"}, ("text",))
ENTRY = Entry(files={"text": b"one", "more": b""}, seconds=1.5, peak_memory=1 << 20)


@dataclass
class Tree:
    """A build folder that asks a cache, and what it had to say."""

    root: Path
    cache: Path
    limit: int = DEFAULT_LIMIT
    said: list[str] = field(default_factory=list)

    def run(self, **steps: Step) -> dict[str, str]:
        """Build what is stale; how each step came to be: `ran`, `restored` or `failed`."""
        done: dict[str, str] = {}
        private = self.root / ".kiln"
        build = Build(state=State(private / "state.sqlite"), root=self.root, folder=private, size=1)
        store = LocalCache(Settings(folder=self.cache, limit=self.limit), warn=self.said.append)
        build.cache = StepCache(store, root=self.root, files=build.state.files, warn=self.said.append)
        with build:
            build.sweep(set(steps))
            for name, step in steps.items():
                if build.status(name, step).fresh:
                    continue
                if build.restore(name, step):
                    done[name] = "restored"
                    continue
                build.start(name, step)
                done[name] = "ran" if build.finish().error is None else "failed"
            build.state.close()
        store.close(build.cache.counts)
        return done

    @property
    def files(self) -> dict[str, str]:
        found = [path for path in self.root.rglob("*") if path.is_file() and ".kiln" not in path.parts]
        return {path.relative_to(self.root).as_posix(): path.read_text("utf-8") for path in found}


@pytest.fixture
def make_tree(tmp_path: Path, own_jobs: None) -> Iterator[Callable[..., Tree]]:
    before = children()
    yield lambda name="a", **settings: Tree(root=tmp_path / name, cache=tmp_path / "cache", **settings)
    assert children() == before


def writing(text: str, output: str = "x", **inputs: str) -> Step:
    """A step that writes a text under a role that is the same whatever its name."""
    return Step(
        inputs=lambda: {"content": text, **inputs},
        call=lambda: Call(function="engine_jobs:write", arguments={"files": {output: text}}),
        outputs=(output,),
        cached=("text",),
    )


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("v1/??/*") if len(path.name) == 62)


def store(folder: Path, *, limit: int = DEFAULT_LIMIT, said: list[str] | None = None) -> LocalCache:
    return LocalCache(Settings(folder=folder, limit=limit), warn=(said if said is not None else []).append)


# -- what is equal -----------------------------------------------------------------------------------------------------


def test_another_tree_and_another_step_with_the_same_inputs_run_nothing(make_tree: Callable[..., Tree]) -> None:
    assert make_tree().run(a=writing("one")) == {"a": "ran"}
    other = make_tree("b")
    assert other.run(renamed=writing("one", "lib/other")) == {"renamed": "restored"}
    assert other.files == {"lib/other": "one"}
    assert other.run(renamed=writing("one", "lib/other")) == {}
    assert read_counts(other.root / ".kiln") == Counts(hits=1)
    assert other.said == []


def test_what_it_cost_is_known_where_it_was_not_paid(make_tree: Callable[..., Tree]) -> None:
    one, two = make_tree(), make_tree("b")
    one.run(a=writing("one"))
    two.run(a=writing("one"))
    rows = [State(tree.root / ".kiln/state.sqlite").rows["a"] for tree in (one, two)]
    assert rows[0].seconds == rows[1].seconds > 0
    assert rows[0].peak_memory == rows[1].peak_memory > 0
    assert rows[0].components == rows[1].components


def test_going_back_to_what_was_runs_nothing(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    for text, how in (("one", "ran"), ("two", "ran"), ("one", "restored"), ("two", "restored")):
        assert tree.run(a=writing(text)) == {"a": how}
        assert tree.files == {"x": text}
    shutil.rmtree(tree.root)
    assert tree.run(a=writing("two")) == {"a": "restored"}


def test_an_input_a_role_or_a_value_more_is_another_key() -> None:
    keys = {
        key_of({"a": "1"}, ("x",)),
        key_of({"a": "2"}, ("x",)),
        key_of({"b": "1"}, ("x",)),
        key_of({"a": "1", "b": "1"}, ("x",)),
        key_of({"a": "1"}, ("y",)),
        key_of({"a": "1"}, ("x", "y")),
        key_of({"a": "1"}, ("y", "x")),
    }
    assert len(keys) == 7
    assert key_of({"a": "1", "b": "2"}, ("x",)) == key_of({"b": "2", "a": "1"}, ("x",))


def test_what_is_not_to_be_cached_failed_or_was_changed_is_not_kept(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    own = Step(
        inputs=dict, call=lambda: Call(function="engine_jobs:write", arguments={"files": {"y": "1"}}), outputs=("y",)
    )
    failing = Step(
        inputs=dict, call=lambda: Call(function="engine_jobs:divide", arguments={}), outputs=("z",), cached=("z",)
    )
    assert tree.run(own=own, failing=failing) == {"own": "ran", "failing": "failed"}
    assert entries(tree.cache) == []
    # Between its end and the visit to the cache somebody writes over what it made.
    build = Build(state=State(tree.root / "s"), root=tree.root, folder=tree.root / ".kiln", size=1)
    build.cache = StepCache(store(tree.cache), root=tree.root, files=build.state.files, warn=tree.said.append)
    build._kept = time.monotonic()
    with build:
        build.start("a", writing("one"))
        assert build.finish().error is None
        (tree.root / "x").write_text("two")
    assert entries(tree.cache) == []


def test_a_package_larger_than_all_else_is_not_kept(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    large = Step(
        inputs=dict,
        call=lambda: Call(function="engine_jobs:fill", arguments={"size": (16 << 20) + 1}),
        outputs=("large",),
        cached=("archive",),
    )
    assert tree.run(a=large) == {"a": "ran"}
    assert entries(tree.cache) == []


# -- what runs find out ------------------------------------------------------------------------------------------------


def including(source: Path) -> Step:
    """A step that reads what the file `source` lists; only the run knows what that is."""

    def digests(found: Found) -> dict[str, str]:
        return {name: digest_file(Path(names[0])) for name, names in found.items()}

    return Step(
        inputs=lambda: {"source": digest_file(source)},
        found=digests,
        call=lambda: Call(function="engine_jobs:include", arguments={"source": str(source), "name": "all"}),
        outputs=("all",),
        cached=("all",),
    )


def test_what_a_run_found_decides_which_of_its_results_fits(make_tree: Callable[..., Tree], tmp_path: Path) -> None:
    source, a, b = (tmp_path / name for name in ("source", "a.h", "b.h"))
    source.write_text(f"{a} {b}")
    tree = make_tree()
    seen: set[tuple[str, str]] = set()
    for pair in (("1", "1"), ("2", "1"), ("1", "1"), ("2", "2"), ("2", "1"), ("1", "1")):
        a.write_text(pair[0])
        b.write_text(pair[1])
        assert tree.run(step=including(source)) == {"step": "restored" if pair in seen else "ran"}
        assert tree.files == {"all": "".join(pair)}
        seen.add(pair)
    # Restored, it knows what it reads: it is fresh, and stale after an edit.
    assert tree.run(step=including(source)) == {}
    b.write_text("3")
    assert tree.run(step=including(source)) == {"step": "ran"}
    shutil.rmtree(tree.root)
    b.unlink()
    assert tree.run(step=including(source)) == {"step": "failed"}, "what cannot be read is not what was read"


def test_the_same_request_with_other_findings_has_both(make_tree: Callable[..., Tree], tmp_path: Path) -> None:
    """Two headers of one name: which of them is read, the run tells."""
    tree = make_tree()
    store_ = store(tree.cache)
    cache = StepCache(store_, root=tree.root, files=FileDigests({}), warn=tree.said.append)
    now = {"x": "1", "y": "1"}
    step = Step(
        inputs=dict,
        found=lambda found: {name: now[names[0]] for name, names in found.items()},
        call=lambda: Call(function="", arguments={}),
        outputs=("o",),
        cached=("o",),
    )
    asked = {"source": "s"}
    finds: list[Found] = [{"include x": ["x"]}, {"include y": ["y"]}]
    for found in finds:
        store_.put(key_of({**asked, **step.found(found)}, ("o",)), Entry(files={"o": str(found).encode()}))
    store_.put(key_of(asked, ("o",)), Entry(found=tuple(finds)))
    now["x"] = "2"
    hit = cache.get(step, asked)
    assert hit is not None
    assert hit.found == finds[1]
    now["y"] = "2"
    assert cache.get(step, asked) is None
    assert cache.counts == Counts(hits=1, misses=1)


def test_an_edit_while_a_step_is_restored_makes_it_stale(make_tree: Callable[..., Tree], tmp_path: Path) -> None:
    """Recorded are the digests that led to the entry, not those of a moment later."""
    source, header = tmp_path / "source", tmp_path / "a.h"
    source.write_text(str(header))
    header.write_text("1")
    make_tree().run(step=including(source))
    tree, step = make_tree("b"), including(source)

    def found_and_edited(found: Found) -> dict[str, str]:
        digests = dict(step.found(found))
        header.write_text("2")
        return digests

    assert tree.run(step=replace(step, found=found_and_edited)) == {"step": "restored"}
    assert tree.files == {"all": "1"}
    assert tree.run(step=step) == {"step": "ran"}
    assert tree.files == {"all": "2"}


def test_nothing_is_kept_of_a_build_whose_tools_were_replaced(make_tree: Callable[..., Tree], tmp_path: Path) -> None:
    """The digest is the old tool's, and what is made may be the new one's: it must not be believed for ever."""
    tool = tmp_path / "tool"
    tool.write_text("one")
    tree = make_tree()
    private = tree.root / ".kiln"
    build = Build(state=State(private / "state.sqlite"), root=tree.root, folder=private, size=1)
    build.cache = StepCache(store(tree.cache), root=tree.root, files=build.state.files, warn=tree.said.append)
    step = writing("one")
    reading = Step(
        inputs=lambda: {"tool": build.state.files.of(tool)}, call=step.call, outputs=step.outputs, cached=step.cached
    )
    with build:
        build.start("a", reading)
        tool.write_text("two")
        assert build.finish().error is None
    assert entries(tree.cache) == []
    assert len(tree.said) == 1
    assert str(tool) in tree.said[0]


# -- entries that are none ---------------------------------------------------------------------------------------------


def test_an_entry_is_read_as_it_was_written() -> None:
    found = Entry(found=({"headers": ["<a>", "/b"]}, {}))
    for entry in (ENTRY, found, Entry(files={"ü\n": bytes(range(256)) * 9})):
        assert unpack(KEY, pack(KEY, entry)) == entry


def test_no_part_and_no_other_byte_of_an_entry_is_taken_for_one() -> None:
    data = pack(KEY, ENTRY)
    for size in range(len(data)):
        with pytest.raises(ValueError, match="is damaged"):
            unpack(KEY, data[:size])
    for place in range(len(data)):
        for bit in (1, 0x80):
            damaged = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
            with pytest.raises(ValueError, match="is damaged"):
                unpack(KEY, damaged)
    with pytest.raises(ValueError, match="is damaged"):
        unpack(KEY, data + b"\0")
    with pytest.raises(ValueError, match="another key"):
        unpack("0" * 64, data)


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "emptied": lambda path, other: path.write_bytes(b""),
    "cut": lambda path, other: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": lambda path, other: path.write_bytes(path.read_bytes()[:-1] + b"\xff"),
    "another entry": lambda path, other: shutil.copy(other, path),
    "a link to it": lambda path, other: (path.rename(path.with_name("moved")), path.symlink_to("moved")),
    "a link out": lambda path, other: (path.unlink(), path.symlink_to("/etc/passwd")),
    "a folder": lambda path, other: (path.unlink(), path.mkdir()),
    "a pipe": lambda path, other: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_a_miss_and_set_aside(make_tree: Callable[..., Tree], damage: str) -> None:
    tree = make_tree()
    tree.run(b=writing("other", "y"))
    (other,) = entries(tree.cache)
    tree.run(a=writing("one"), b=writing("other", "y"))
    (path,) = (path for path in entries(tree.cache) if path != other)
    DAMAGES[damage](path, other)
    again = make_tree("again")
    assert again.run(a=writing("one")) == {"a": "ran"}
    assert again.files == {"x": "one"}
    assert len(again.said) == 1
    assert f"{path.name}.damaged" in again.said[0]
    assert os.path.lexists(f"{path}.damaged")
    third = make_tree("third")
    assert third.run(a=writing("one")) == {"a": "restored"}
    assert third.said == []


def test_a_deleted_entry_is_a_miss(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    tree.run(a=writing("one"))
    entries(tree.cache)[0].unlink()
    again = make_tree("again")
    assert again.run(a=writing("one")) == {"a": "ran"}
    assert again.said == []


# -- folders that are in the way ---------------------------------------------------------------------------------------


def test_the_folder_may_be_a_link_and_what_is_in_it_may_not(make_tree: Callable[..., Tree], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to("elsewhere")
    tree = make_tree()
    tree.run(a=writing("one"))
    (path,) = entries(tmp_path / "elsewhere")
    outside = tmp_path / "outside"
    for planted in (path.parent, path.parent.parent):
        shutil.rmtree(outside, ignore_errors=True)
        shutil.move(planted, outside)
        planted.symlink_to(outside)
        again = make_tree(f"again {planted.name}")
        before = sorted(outside.rglob("*"))
        assert again.run(a=writing("one"), b=writing("two", "y")) == {"a": "ran", "b": "ran"}
        assert sorted(outside.rglob("*")) == before
        assert len(again.said) == 1
        assert "no link is followed there" in again.said[0]
        with suppress(NotADirectoryError):
            store(tree.cache).clear()
        assert sorted(outside.rglob("*")) == before
        planted.unlink()
        shutil.move(outside, planted)


def test_a_folder_that_cannot_be_written_is_still_read(make_tree: Callable[..., Tree]) -> None:
    make_tree().run(a=writing("one"))
    tree = make_tree("b")
    folders = [tree.cache, *(path for path in tree.cache.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)

    def run() -> tuple[dict[str, str], list[str]]:
        return tree.run(a=writing("one"), b=writing("two", "y"), c=writing("three", "z")), tree.said

    done, said = without_root(run)
    for folder in folders:
        folder.chmod(0o755)
    assert done == {"a": "restored", "b": "ran", "c": "ran"}
    assert len(said) == 1
    assert "Permission denied" in said[0]
    assert "keeps nothing more there" in said[0]


def test_a_folder_that_cannot_be_read_is_done_without(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    tree.cache.mkdir()
    tree.cache.chmod(0)
    done, said = without_root(lambda: (tree.run(a=writing("one"), b=writing("two", "y")), tree.said))
    tree.cache.chmod(0o755)
    assert done == {"a": "ran", "b": "ran"}
    assert len(said) == 1
    assert f"cache {tree.cache} (Permission denied)" in said[0]
    assert "goes without it" in said[0]


def test_a_file_in_the_place_of_the_folder_is_done_without(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    tree.cache.write_text("mine")
    assert tree.run(a=writing("one"), b=writing("two", "y")) == {"a": "ran", "b": "ran"}
    assert len(tree.said) == 1
    assert tree.cache.read_text() == "mine"


ON_A_SMALL_DISK = """
import sys
from pathlib import Path
from kiln.engine.cache import Entry, key_of
from kiln.engine.local_cache import LocalCache, Settings
cache = LocalCache(Settings(folder=Path(sys.argv[1], "cache"), limit=1 << 30), warn=print)
for index in range(30):
    cache.put(key_of({}, (str(index),)), Entry(files={"x": bytes(8000)}))
cache.close()
kept = [index for index in range(30) if cache.get(key_of({}, (str(index),)))]
print(kept == list(range(len(kept))), 0 < len(kept) < 10)
print([path for path in Path(sys.argv[1]).rglob("*.new")])
"""


def test_a_full_disk_keeps_what_it_holds_and_says_so_once(tmp_path: Path) -> None:
    assert can_mount(), "a disk of 64 KiB cannot be made here"
    done = on_a_small_disk(tmp_path, ON_A_SMALL_DISK, str(tmp_path))
    said, kept, left = done.stdout.splitlines()
    assert f"no space left for the cache {tmp_path}/cache" in said
    assert (kept, left) == ("True True", "[]")


# -- many builds at once -----------------------------------------------------------------------------------------------

RACING = """
import random, sys
from pathlib import Path
from kiln.engine.cache import Counts, Entry, key_of
from kiln.engine.local_cache import LocalCache, Settings
random.seed(sys.argv[2])
cache = LocalCache(Settings(folder=Path(sys.argv[1]), limit=300_000), warn=print)
for _ in range(400):
    index = random.randrange(40)
    key = key_of({}, (str(index),))
    entry = cache.get(key)
    if entry is None:
        cache.put(key, Entry(files={"x": bytes([index]) * 10_000}))
    elif entry.files != {"x": bytes([index]) * 10_000}:
        print("wrong")
cache.close(Counts(hits=1))
print("done")
"""


def test_builds_at_once_give_each_other_whole_entries(tmp_path: Path) -> None:
    """The same keys, and a limit that makes each of them remove entries all the time."""
    environment = {**os.environ, "PYTHONPATH": str(TOOLS)}
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, str(tmp_path / "cache"), str(seed)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for seed in range(3)
    ]
    assert [process.communicate(timeout=60)[0] for process in racing] == ["done\n"] * 3
    assert list((tmp_path / "cache").rglob("*.new")) == []
    # Each may have written an eighth, and an entry, that it had not counted yet when the last of them removed entries.
    size = sum(path.stat().st_size for path in entries(tmp_path / "cache"))
    assert size <= 300_000 + 3 * (300_000 // 8 + 10_300)


def test_eviction_waits_for_nobody(tmp_path: Path) -> None:
    """Another build is at it, and has stopped there: what this one has is kept and found all the same."""
    cache = store(tmp_path / "cache", limit=50_000)
    cache.put(KEY, ENTRY)
    held = run_python(
        "import fcntl, os, subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from kiln.engine.cache import Entry, key_of\n"
        "from kiln.engine.local_cache import LocalCache, Settings\n"
        "lock = open(sys.argv[1] + '/v1/lock', 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "cache = LocalCache(Settings(folder=Path(sys.argv[1]), limit=50_000), warn=print)\n"
        "began = time.monotonic()\n"
        "for index in range(20): cache.put(key_of({}, (str(index),)), Entry(files={'x': bytes(9000)}))\n"
        "cache.close()\n"
        "print(time.monotonic() - began < 5, cache.get(key_of({}, ('19',))) is not None)\n",
        str(tmp_path / "cache"),
    )
    assert held.stdout == "True True\n"


# -- size --------------------------------------------------------------------------------------------------------------


def test_what_was_used_least_goes_first(tmp_path: Path) -> None:
    cache = store(tmp_path / "cache", limit=100_000)
    keys = [key_of({}, (str(index),)) for index in range(9)]
    for age, key in enumerate(keys):
        cache.put(key, Entry(files={"x": bytes(10_000)}))
        path = tmp_path / "cache" / "v1" / key[:2] / key[2:]
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None, "used now"
    for index in range(9, 12):
        cache.put(key_of({}, (str(index),)), Entry(files={"x": bytes(10_000)}))
    cache.close()
    kept = [index for index in range(12) if cache.get(key_of({}, (str(index),))) is not None]
    assert kept[0] == 0
    assert kept[1:] == list(range(12))[-len(kept[1:]) :]
    assert 70_000 < sum(path.stat().st_size for path in entries(tmp_path / "cache")) <= 100_000


def test_an_entry_over_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = store(tmp_path / "cache", limit=1000)
    cache.put(KEY, Entry(files={"x": bytes(2000)}))
    assert cache.get(KEY) is None
    assert not (tmp_path / "cache").exists()


def test_what_a_killed_build_left_is_removed_in_time(tmp_path: Path) -> None:
    cache = store(tmp_path / "cache", limit=50_000)
    cache.put(KEY, ENTRY)
    shard = tmp_path / "cache" / "v1" / KEY[:2]
    for name, age in (("old.new", 7200.0), ("young.new", 60.0)):
        (shard / name).write_bytes(bytes(20_000))
        os.utime(shard / name, (time.time() - age,) * 2)
    for index in range(6):
        cache.put(key_of({}, (str(index),)), Entry(files={"x": bytes(9_000)}))
    cache.close()
    assert not (shard / "old.new").exists()
    assert (shard / "young.new").exists()


def test_totals_are_added_up_and_damaged_ones_start_anew(tmp_path: Path) -> None:
    cache = store(tmp_path / "cache")
    cache.put(KEY, ENTRY)
    cache.close(Counts(hits=1, misses=2))
    cache.close(Counts(hits=3))
    assert cache.summary().counts == Counts(hits=4, misses=2)
    assert (cache.summary().entries, cache.summary().size) == (1, len(pack(KEY, ENTRY)))
    for text in ("", "{", "[]", '{"size": null, "hits": 1}'):
        (tmp_path / "cache/v1/totals.json").write_text(text)
        assert cache.summary().counts == Counts()
        cache.close(Counts(hits=1))
        assert cache.summary().counts == Counts(hits=1)


def test_clearing_removes_entries_and_nothing_else(tmp_path: Path) -> None:
    cache = store(tmp_path / "cache")
    assert cache.clear() == 0
    cache.put(KEY, ENTRY)
    cache.close(Counts(hits=1))
    (tmp_path / "cache/mine").write_text("mine")
    (tmp_path / "cache/v1/notes").mkdir()
    (tmp_path / "cache/v1/notes/mine").write_text("mine")
    (tmp_path / "cache/v1" / KEY[:2] / "link").symlink_to(tmp_path / "cache/mine")
    assert cache.clear() == 2
    assert cache.get(KEY) is None
    assert cache.summary() == store(tmp_path / "none").summary()
    assert (tmp_path / "cache/mine").read_text() == (tmp_path / "cache/v1/notes/mine").read_text() == "mine"


def test_a_folder_that_is_cleared_while_an_entry_is_written_is_used_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    cache = LocalCache(Settings(folder=tmp_path / "cache", limit=1 << 20), warn=told.append)
    rename = os.rename

    def cleared(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        assert store(tmp_path / "cache").clear() == 0
        rename(*arguments, **options)

    monkeypatch.setattr(os, "rename", cleared)
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) is None
    cache.put(KEY, ENTRY)
    assert cache.get(KEY) == ENTRY and not told


# -- settings ----------------------------------------------------------------------------------------------------------


def test_where_the_cache_is() -> None:
    home = {"HOME": "/home/me"}
    assert settings(home) == Settings(folder=Path("/home/me/.cache/kiln"), limit=5 << 30)
    assert settings({**home, "XDG_CACHE_HOME": "/x"}) == Settings(folder=Path("/x/kiln"), limit=5 << 30)
    assert settings({**home, "XDG_CACHE_HOME": "x"}) == settings(home), "as the specification has it"
    assert settings({**home, "KILN_CACHE": ""}) == settings(home)
    assert settings({**home, "KILN_CACHE": "/c"}) == Settings(folder=Path("/c"), limit=5 << 30)
    assert settings({**home, "KILN_CACHE": "c"}) == Settings(folder=Path.cwd() / "c", limit=5 << 30)
    assert settings({**home, "KILN_CACHE": "off"}) is None
    assert settings({}) is None


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("4096", 4096), ("10K", 10240), ("3m", 3 << 20), ("2G", 2 << 30)])
def test_sizes(text: str, size: int) -> None:
    found = settings({"HOME": "/h", "KILN_CACHE_SIZE": text})
    assert found is not None
    assert found.limit == size


@pytest.mark.parametrize("text", ["5X", "G", "-1", "1.5G", "5 GB", "all", " "])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="which is no size") as caught:
        settings({"HOME": "/h", "KILN_CACHE_SIZE": text})
    assert "500M, 5G" in str(caught.value)


def test_a_home_folder_that_no_shell_has_looked_up_is_refused() -> None:
    with pytest.raises(StateError, match="no shell has made a home folder"):
        settings({"HOME": "/h", "KILN_CACHE": "~/cache"})


def test_random_use_agrees_with_a_table(tmp_path: Path) -> None:
    """Against a dictionary: what was put last is what is found, as long as the limit is far."""
    chance = random.Random(5)
    cache, table = store(tmp_path / "cache"), dict[str, Entry]()
    for _ in range(300):
        key = key_of({}, (str(chance.randrange(30)),))
        if chance.random() < 0.5:
            table[key] = Entry(files={"x": chance.randbytes(chance.randrange(200))}, seconds=chance.random())
            cache.put(key, table[key])
        assert cache.get(key) == table.get(key)
