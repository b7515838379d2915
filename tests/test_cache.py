"""The cache and `doit verify` as their users type them, and what can be wrong with a cache while doit runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project import MANIFEST, REPOSITORY, Project

STEPS = 23
"""of a build of the whole project"""
IMAGES = {f"scale_fp32_{block}@{target}" for block in (128, 256) for target in ("sm_80", "gfx942")}
IMAGE = "images/sm_80/scale_fp32_128.cubin"


def contents(project: Project) -> dict[str, bytes]:
    """Every published file of a build."""
    return {name: (project.folder / "build" / name).read_bytes() for name in project.files()}


@pytest.fixture(scope="module")
def _filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Path]:
    folder = tmp_path_factory.mktemp("filled")
    project = Project.create(folder / "scratch")
    project.doit(KILN_CACHE=str(folder / "cache")).expect(f"^{STEPS} built, 0 up to date")
    return project, folder / "cache"


@pytest.fixture
def filled(_filled: tuple[Project, Path], tmp_path: Path) -> tuple[Project, str]:
    """A copy of a project that was built with a cache, and of that cache; a test may change both."""
    project, cache = _filled
    shutil.copytree(project.folder, tmp_path / "scratch", symlinks=True)
    shutil.copytree(cache, tmp_path / "cache")
    return Project(folder=tmp_path / "scratch"), str(tmp_path / "cache")


def entries(cache: str) -> list[Path]:
    return sorted(path for path in Path(cache).glob("v1/??/*") if len(path.name) == 62)


# -- what is not built again


def test_a_clean_build_compiles_nothing_and_makes_the_same_bytes(filled: tuple[Project, str]) -> None:
    project, cache = filled
    before = contents(project)
    shutil.rmtree(project.folder / "build")
    result = project.doit(KILN_CACHE=cache).expect(f"^0 built, {STEPS} from cache, 0 up to date, 0 failed")
    assert f"compile:{sorted(IMAGES)[0]} from cache" in result.output
    assert contents(project) == before
    project.doit(KILN_CACHE=cache).expect(f"^0 built, {STEPS} up to date")
    project.doit("list", "--all", "-s").expect("^U crate", "^U compile:scale_fp32_128@sm_80")


def test_another_tree_shares_it_and_going_back_compiles_nothing(filled: tuple[Project, str], tmp_path: Path) -> None:
    project, cache = filled
    other = Project.create(tmp_path / "elsewhere" / "another")
    other.doit(KILN_CACHE=cache).expect(f"^0 built, {STEPS} from cache")
    assert contents(other) == contents(project)
    other.edit("kernels/scale.py", "x * 2", "x * 3")
    assert set(other.doit(KILN_CACHE=cache).expect().ran("compile")) == IMAGES
    other.edit("kernels/scale.py", "x * 3", "x * 2")
    assert other.doit(KILN_CACHE=cache).expect("0 failed").counts["built"] == 0
    assert contents(other) == contents(project)


def test_an_equal_image_of_another_variant_is_shared_and_what_says_its_name_is_not(
    filled: tuple[Project, str],
) -> None:
    """Its objects, reports and records are its own: they hold its name."""
    project, cache = filled
    project.edit("kernels.yaml", "name: scale_{dtype}", "name: again_{dtype}")
    result = project.doit(KILN_CACHE=cache).expect("0 failed")
    assert result.ran("compile") == []
    assert len(result.ran("objcopy")) == len(result.ran("validate")) == len(IMAGES)
    built = contents(project)
    shutil.rmtree(project.folder / "build")
    project.doit(KILN_CACHE="off").expect("0 failed")
    assert contents(project) == built


def test_without_a_cache_nothing_of_it_is_asked_or_kept(filled: tuple[Project, str]) -> None:
    project, cache = filled
    before = {path: path.read_bytes() for path in Path(cache).rglob("*") if path.is_file()}
    project.edit("kernels.yaml", "[128, 256]", "[128]")
    for options, name in ((("--no-cache",), cache), ((), "off")):
        shutil.rmtree(project.folder / "build")
        result = project.doit(*options, "compile", KILN_CACHE=name).expect("^2 built, 0 up to date")
        assert len(result.ran("compile")) == 2
    assert {path: path.read_bytes() for path in Path(cache).rglob("*") if path.is_file()} == before


def test_always_runs_what_the_cache_has(filled: tuple[Project, str]) -> None:
    project, cache = filled
    image = min(IMAGES)
    assert project.doit("-a", f"compile:{image}", KILN_CACHE=cache).expect("^1 built").ran("compile") == [image]


def test_a_failure_is_never_kept(filled: tuple[Project, str]) -> None:
    project, cache = filled
    project.edit("kernels/scale.py", "x * 2", "x.nothing()")
    for _ in range(2):
        shutil.rmtree(project.folder / "build")
        project.doit("compile", KILN_CACHE=cache).expect("4 failed", code=1)


# -- what is wrong with it


def test_damaged_entries_are_made_anew_and_set_aside(filled: tuple[Project, str]) -> None:
    """Cut, with a bit flipped, emptied, deleted: each of the entries in one of these ways."""
    project, cache = filled
    before = contents(project)
    for index, path in enumerate(entries(cache)):
        data = path.read_bytes()
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes([data[:middle], flipped, b"", b""][index % 4])
        if index % 4 == 3:
            path.unlink()
    shutil.rmtree(project.folder / "build")
    result = project.doit(KILN_CACHE=cache).expect(f"^{STEPS} built, 0 up to date, 0 failed")
    assert contents(project) == before
    assert result.output.count("kiln: warning: ") == 1
    assert len(list(Path(cache).rglob("*.damaged"))) == STEPS - STEPS // 4
    shutil.rmtree(project.folder / "build")
    project.doit(KILN_CACHE=cache).expect(f"^0 built, {STEPS} from cache")


def test_a_link_planted_in_it_is_not_followed(filled: tuple[Project, str], tmp_path: Path) -> None:
    project, cache = filled
    outside = tmp_path / "outside"
    shutil.move(Path(cache, "v1"), outside)
    Path(cache, "v1").symlink_to(outside)
    before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
    shutil.rmtree(project.folder / "build")
    result = project.doit("compile", KILN_CACHE=cache).expect("no link is followed there", "^4 built, 0 up to date")
    assert result.output.count("kiln: warning: ") == 1
    assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before
    project.doit("cache", KILN_CACHE=cache).expect("the cache cannot be used: Not a directory", cache, code=3)


def test_two_trees_at_once_are_both_right(filled: tuple[Project, str], tmp_path: Path) -> None:
    """The same keys at the same time, in an empty cache."""
    project, _ = filled
    trees = [Project.create(tmp_path / name / "scratch") for name in ("one", "two")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "tools"),
        "KILN_CACHE": str(tmp_path / "new"),
    }
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "doit"], cwd=tree.folder, env=environment, stdout=subprocess.PIPE, text=True
        )
        for tree in trees
    ]
    for process in running:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
    for tree in trees:
        assert contents(tree) == contents(project)
    shutil.rmtree(trees[0].folder / "build")
    trees[0].doit(KILN_CACHE=str(tmp_path / "new")).expect(f"^0 built, {STEPS} from cache")
    assert contents(trees[0]) == contents(project)


def test_a_size_that_is_none_is_refused_before_anything_is_built(filled: tuple[Project, str]) -> None:
    project, cache = filled
    shutil.rmtree(project.folder / "build")
    project.doit(KILN_CACHE=cache, KILN_CACHE_SIZE="lots").expect("KILN_CACHE_SIZE is 'lots'", "500M, 5G", code=3)
    assert not (project.folder / "build").exists()


# -- doit cache


def test_the_command_shows_what_there_is(filled: tuple[Project, str]) -> None:
    project, cache = filled
    shown = json.loads(project.doit("cache", "--json", KILN_CACHE=cache, KILN_CACHE_SIZE="2G").expect().output)
    size = sum(path.stat().st_size for path in entries(cache))
    assert shown == {
        "folder": cache,
        "entries": STEPS,
        "bytes": size,
        "limit": 2 << 30,
        "last_build": {"hits": 0, "misses": STEPS},
        "all": {"hits": 0, "misses": STEPS},
    }
    shutil.rmtree(project.folder / "build")
    project.doit(KILN_CACHE=cache).expect()
    project.doit("cache", KILN_CACHE=cache).expect(
        f"^folder +{cache}$",
        rf"^entries +{STEPS}, [\d.]+ [KM]iB of at most 5\.0 GiB$",
        rf"^last build +{STEPS} hits \(100 %\), 0 misses$",
        rf"^all builds +{STEPS} hits \(50 %\), {STEPS} misses",
    )
    project.doit("cache", "--clear", KILN_CACHE=cache).expect(f"^removed {STEPS} entries from {cache}$")
    assert entries(cache) == []
    project.doit("cache", KILN_CACHE=cache).expect("^entries +0, 0 B of", "^all builds +0 hits, 0 misses")
    project.doit("cache", KILN_CACHE="off").expect("the cache is off")
    assert json.loads(project.doit("cache", "--json", KILN_CACHE="off").expect().output) == {"folder": None}
    project.doit("cache", "crate", KILN_CACHE=cache).expect("cache takes no tasks", code=3)


def test_the_command_needs_no_sound_manifest_and_changes_nothing(filled: tuple[Project, str]) -> None:
    project, cache = filled
    project.write("kernels.yaml", "version: 9\n")
    before = {path: path.stat().st_mtime_ns for path in project.folder.rglob("*")}
    project.doit("cache", KILN_CACHE=cache).expect(f"^entries +{STEPS}", f"^last build +0 hits, {STEPS} misses")
    assert {path: path.stat().st_mtime_ns for path in project.folder.rglob("*") if "__pycache__" not in path.parts} == {
        path: time for path, time in before.items() if "__pycache__" not in path.parts
    }


def test_the_limit_is_kept(filled: tuple[Project, str]) -> None:
    project, cache = filled
    project.edit("kernels/scale.py", "x * 2", "x * 3")
    project.doit(KILN_CACHE=cache, KILN_CACHE_SIZE="100K").expect("0 failed")
    assert 0 < sum(path.stat().st_size for path in entries(cache)) <= 100 << 10


# -- doit verify


def test_verify_finds_damage_that_time_stamps_hide(built: Project) -> None:
    """The state is told that the damaged file is the one that was published: as a failing disk would have it."""
    built.doit("verify").expect(rf"^(\d+) of \1 outputs of {STEPS} steps are what was built$")
    before = contents(built)
    image = built.folder / "build" / IMAGE
    header = built.folder / "build/include/scratch/scratch.h"
    header.unlink()
    image.write_bytes(before[IMAGE][:-1] + bytes([before[IMAGE][-1] ^ 1]))
    shown = built.doit("verify").expect(
        "^DAMAGED compile:scale_fp32_128@sm_80$",
        rf"{IMAGE}: not what was built$",
        r"expected: \d+ bytes with sha256 [0-9a-f]{64}$",
        r"actual: \d+ bytes with sha256 [0-9a-f]{64}$",
        "^DAMAGED header:c$",
        r"scratch\.h: missing$",
        rf"outputs of {STEPS} steps are what was built; the next doit makes the others anew$",
        code=1,
    )
    assert shown.output.count("DAMAGED") == 2
    assert not header.exists()
    built.doit("list", "--all", "-s").expect("^R compile:scale_fp32_128@sm_80", "^R header:c", "^U crate")
    built.doit("verify").expect("nothing is known of 2 steps", code=1)
    assert built.doit().expect().counts["built"] == 2
    assert contents(built) == before
    built.doit("verify").expect()


def test_verify_takes_names_groups_and_patterns(built: Project) -> None:
    (built.folder / "build" / IMAGE).write_bytes(b"")
    built.doit("verify", "crate", "archive").expect("^[0-9]+ of [0-9]+ outputs of 4 steps are what was built$")
    built.doit("verify", "compile:*gfx942").expect("outputs of 2 steps are")
    built.doit("verify", "compile:scale_fp32_128").expect("DAMAGED", "3 of 4 outputs of 2 steps", code=1)
    built.doit("verify", "complie").expect("did you mean 'compile'", code=3)


def test_verify_vouches_for_nothing_that_was_never_built(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "scratch", manifest=MANIFEST)
    project.doit("verify").expect("0 of 0 outputs", code=1)
    project.doit("verify", "crate").expect("nothing is known of 1 steps", code=1)
    assert not (project.folder / "build").exists()


@pytest.mark.parametrize("command", [("list", "--all", "-s"), ("info", "crate"), ("cache",)])
def test_looking_at_a_corrupt_state_writes_nothing(built: Project, command: tuple[str, ...]) -> None:
    state = built.folder / "build/.kiln/state.sqlite"
    state.write_bytes(state.read_bytes()[:5000])
    before = {path: path.stat().st_mtime_ns for path in (built.folder / "build").rglob("*")}
    result = built.doit(*command)
    assert result.code in (0, 1)
    assert "Traceback" not in result.output
    assert {path: path.stat().st_mtime_ns for path in (built.folder / "build").rglob("*")} == before
