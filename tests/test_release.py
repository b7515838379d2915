"""`doit release` as people run it: when it is made, what it refuses, its parts, and that all make the same bytes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import release_project
from kiln.digests import digest_file
from project import Project

TAR = "build/release/scratch-1.2.0.tar"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has made its release; tests leave it as it is."""
    project = release_project.create(tmp_path_factory.mktemp("release") / "scratch")
    project.doit("lock").expect("kiln.lock")
    project.doit("release").expect(r"^1 built, \d+ up to date, 0 failed")
    return project


def copy_of(project: Project, folder: Path) -> Project:
    shutil.copytree(project.folder, folder, symlinks=True)
    return Project(folder=folder)


def test_it_is_made_when_it_is_named(released: Project, tmp_path: Path) -> None:
    project = copy_of(released, tmp_path / "scratch")
    project.doit().expect(r"^0 built, \d+ up to date, 0 failed")
    project.doit("release").expect(r"^0 built, \d+ up to date, 0 failed")
    before = digest_file(project.folder / TAR)
    project.edit("kernels/twice.py", "x * 2", "x * 3")
    counts = project.doit().expect("0 failed").counts
    assert counts["built"] > 0
    assert digest_file(project.folder / TAR) == before, "a build that names nothing makes no release"
    project.doit("release").expect("1 built, ", "release$")
    assert digest_file(project.folder / TAR) != before
    project.doit("clean", "release").expect("release - removing file")
    assert not (project.folder / "build/release").exists()


def test_it_is_in_listings(released: Project) -> None:
    assert "release:verify" not in released.doit("list").expect("^release  ").output
    released.doit("list", "--all").expect(
        "^release  ", "^release:sm_80  ", "^release:gfx942  ", "^release:verify  ", "^release:sign  "
    )
    released.doit("info", "release").expect("everything that is handed over", "up-to-date|fresh")


def test_a_comment_leaves_the_images_and_is_told_in_the_statement_alone(released: Project, tmp_path: Path) -> None:
    project = copy_of(released, tmp_path / "scratch")
    project.edit("kernels/scale.cu", "__global__", "/* told */ __global__")
    project.doit("release").expect(r"^1 built, \d+ up to date, 0 failed")
    assert digest_file(project.folder / TAR) == digest_file(released.folder / TAR)
    statements = [
        json.loads(each.read("build/release/scratch-1.2.0.intoto.json"))["predicate"]["buildDefinition"]
        for each in (released, project)
    ]
    sources = [
        {source["name"]: source["digest"] for source in each["resolvedDependencies"] if "kernels/" in source["name"]}
        for each in statements
    ]
    changed = {name for name in sources[0] if sources[0][name] != sources[1][name]}
    assert changed == {"kernels/scale.cu"}


def test_headers_of_the_toolkit_are_among_the_sources(released: Project) -> None:
    """kiln.lock has nvcc and what it calls; an image is made of headers, too."""
    statement = json.loads(released.read("build/release/scratch-1.2.0.intoto.json"))
    sources = {each["name"] for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert "<cuda_runtime.h>" in sources
    assert not [name for name in sources if name.startswith("/")]


def test_another_toolchain_is_refused_before_anything_is_built(released: Project, tmp_path: Path) -> None:
    project = copy_of(released, tmp_path / "scratch")
    lock = json.loads(project.read("kiln.lock"))
    (machine,) = lock["device"]
    lock["device"][machine]["ptxas"]["sha256"] = "0" * 64
    project.write("kiln.lock", json.dumps(lock, indent=2) + "\n")
    project.edit("kernels/twice.py", "x * 2", "x * 5")
    said = project.doit("release").expect(
        r"^ERROR: kiln\.lock:\d+:\d+: 1 tool that makes images is not what is locked",
        r"ptxas.*12\.9",
        "remedy: install what is locked",
        code=3,
    )
    assert "compile:" not in said.output
    project.doit().expect("0 failed")
    project.doit("--unlocked", "release").expect("release$", "0 failed")
    assert json.loads(project.read("build/release/scratch-1.2.0/buildinfo.json"))["locked"] is False
    # What was let pass once is asked for anew.
    project.doit("release").expect("is not what is locked", code=3)


def test_what_cannot_be_released_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "scratch")
    project.doit("lock").expect("kiln.lock")
    said = project.doit("release").expect(
        r"^ERROR: kernels\.yaml:1:1: a release is of a version, and kernels\.yaml has none",
        "remedy: write `library_version: 0.1.0`",
        code=3,
    )
    assert "compile:" not in said.output
    assert not (project.folder / "build/images").exists()


def test_a_budget_that_is_exceeded_fails_the_release(released: Project, tmp_path: Path) -> None:
    project = copy_of(released, tmp_path / "scratch")
    project.edit("kernels.yaml", "kernels:\n", "release: {size: {sm_80: 100}}\nkernels:\n")
    project.doit("release").expect(
        r"FAILED release", r"kernels\.yaml:6:18", "sm_80: at most 100 bytes", "1 failed", code=1
    )
    assert (project.folder / TAR).exists(), "that of before stays"
    project.doit().expect("0 failed")


def test_one_target_is_complete_by_itself(released: Project, tmp_path: Path) -> None:
    project = copy_of(released, tmp_path / "scratch")
    project.doit("release:gfx942").expect("made build/parts/gfx942/release/scratch-1.2.0-gfx942.tar$")
    folder = project.folder / "build/parts/gfx942/release/scratch-1.2.0-gfx942"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["targets"], manifest["part"]) == (["gfx942"], ["gfx942"])
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"images/gfx942/twice_fp32_128.hsaco", "lib/libscratch.a", "rust/scratch/Cargo.toml"} <= names
    assert not [name for name in names if "sm_80" in name]
    assert digest_file(project.folder / TAR) == digest_file(released.folder / TAR)
    project.doit("release:sm_90a").expect("the release of sm_90a was not made", "sm_90a", code=1)


def test_a_task_about_releases_leaves_what_is_built(released: Project, tmp_path: Path) -> None:
    """Also where a tool that all depends on has changed, and the task has loaded kernels.yaml by itself."""
    project = copy_of(released, tmp_path / "scratch")
    project.doit().expect("0 failed")
    before = project.files()
    objcopy = tmp_path / "objcopy"
    objcopy.symlink_to(shutil.which("objcopy") or "")
    for _ in range(3):
        project.doit("release:sign", OBJCOPY=str(objcopy)).expect("say with what to sign", code=1)
        assert project.files() == before
    project.doit(OBJCOPY=str(objcopy)).expect("^0 built, ")


def test_a_name_that_is_no_task_is_told(released: Project) -> None:
    released.doit("release:verfy").expect("there is no task 'release:verfy': did you mean 'release:verify'", code=3)


def test_anyone_makes_the_same_bytes(released: Project, tmp_path: Path) -> None:
    """From the same sources: at another path, as it were on another day, by another user, in other surroundings."""
    there = tmp_path / "other place é" / "scratch"
    there.parent.mkdir()
    # The names of a folder come in the order in which they were made there, or in that of their hashes.
    for path in sorted(released.folder.rglob("*"), reverse=True):
        name = path.relative_to(released.folder)
        if path.is_file() and name.parts[0] != "build":
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, there / name)
            os.utime(there / name, (1_000_000_000, 1_000_000_000))
    project = Project(folder=there)
    (tmp_path / "home").mkdir()
    surroundings = {
        "HOME": str(tmp_path / "home"),
        "USER": "somebody",
        "LC_ALL": "C",
        "TZ": "Pacific/Chatham",
        "PYTHONHASHSEED": "77",
        "TMPDIR": str(tmp_path / "home"),
        "SOURCE_DATE_EPOCH": "1",
        "TRITON_DEBUG": "1",
        "NVCC_APPEND_FLAGS": "-lineinfo",
        "CFLAGS": "-g",
    }
    for number, umask in enumerate(("0o077", "0o022")):
        build = tmp_path / f"build {number}"
        words = ["-m", "doit", "run", "-n", str(number + 1), "--build-dir", str(build), "release"]
        code = f"import os, sys; os.umask({umask}); os.execv(sys.executable, [sys.executable, *{words!r}])"
        done = project.run_python("-c", code, **surroundings, KILN_CACHE=str(tmp_path / "cache"))
        done.expect("0 failed")
        # The second one takes all from what the first one put into the cache.
        assert ("from cache" in done.output) == bool(number)
        made = build / "release"
        for name in ("scratch-1.2.0.tar", "scratch-1.2.0.intoto.json", "scratch-1.2.0.sizes.txt"):
            assert digest_file(made / name) == digest_file(released.folder / "build/release" / name), name


def test_released_files_are_what_was_built(released: Project) -> None:
    """Byte for byte, and all of it."""
    folder = released.folder / "build/release/scratch-1.2.0"
    for path in (released.folder / "build/images").rglob("*.*"):
        if path.name.endswith((".cubin", ".hsaco")):
            there = folder / path.relative_to(released.folder / "build")
            assert there.read_bytes() == path.read_bytes()
    assert (folder / "lib/libscratch.a").read_bytes() == (released.folder / "build/lib/libscratch.a").read_bytes()
