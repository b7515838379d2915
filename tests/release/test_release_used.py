"""A release is used where it was unpacked, away from project, build and Kiln: by CMake, a C compiler and rustc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cmake_tree import AWKWARD, LIST, Tree

IMAGES = ["scale_fp32_128@sm_80", "twice_fp32_128@gfx942", "twice_fp32_128@sm_80"]

RUST = """\
fn main() {
    for image in scratch::images() {
        assert!(image.verify());
        println!("{}", image.id);
    }
}
"""


@pytest.fixture
def tree(_released: Path, tmp_path: Path) -> Tree:
    """A folder with the release as tar unpacks it, in scratch-1.2.0."""
    folder = tmp_path / AWKWARD
    folder.mkdir()
    subprocess.run(["tar", "-xf", _released / "scratch-1.2.0.tar", "-C", folder], check=True)
    return Tree(folder=folder, cache=tmp_path / "no cache")


def test_cmake_finds_the_package_in_it(tree: Tree) -> None:
    tree.write("app/list.c", LIST.replace("LIBRARY", "scratch"))
    tree.write(
        "app/CMakeLists.txt",
        """\
        cmake_minimum_required(VERSION 3.16)
        project(app LANGUAGES C)
        find_package(scratch 1.2 CONFIG REQUIRED COMPONENTS gfx942)
        add_executable(whole list.c)
        target_link_libraries(whole PRIVATE scratch::scratch)
        add_executable(some list.c)
        target_link_libraries(some PRIVATE scratch::gfx942)
        """,
    )
    tree.configure("app", "made", f"-DCMAKE_PREFIX_PATH={tree.folder / 'scratch-1.2.0'}").expect()
    tree.build("made").expect()
    assert sorted(tree.run("made/whole").expect().output.split()) == IMAGES
    assert tree.run("made/some").expect().output.split() == ["twice_fp32_128@gfx942"]


def test_the_runtime_can_be_compiled_from_its_sources(tree: Tree) -> None:
    """They stand beside the archive, whose objects of them are replaced by those that are compiled here."""
    tree.write("list.c", LIST.replace("LIBRARY", "scratch"))
    release = tree.folder / "scratch-1.2.0"
    sources = sorted((release / "share/scratch/src").glob("*.c"))
    own = [path for path in sources if path.name != "disabled.c"]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{release / 'include'}"]
    for path in sources:
        tree.run("cc", *flags, "-c", path, "-o", f"{path.stem}.o").expect()
    objects = [f"{path.stem}.o" for path in own]
    tree.run("cc", *flags, "list.c", *objects, release / "lib/libscratch.a", "-ldl", "-lpthread", "-o", "list").expect()
    assert sorted(tree.run("./list").expect().output.split()) == IMAGES


def test_rustc_compiles_the_crate(tree: Tree) -> None:
    """By itself, without Cargo: what the crate may depend on stands behind features."""
    crate = tree.folder / "scratch-1.2.0/rust/scratch"
    tree.write("main.rs", RUST)
    features = [word for name in ("std", "driver", "sm_80", "gfx942") for word in ("--cfg", f'feature="{name}"')]
    rustc = ["rustc", "--edition", "2021", "--cap-lints", "allow"]
    tree.run(*rustc, "--crate-name", "scratch", "--crate-type", "rlib", *features, crate / "src/lib.rs").expect()
    tree.run(*rustc, "--extern", "scratch=libscratch.rlib", "main.rs", "-o", "list").expect()
    assert sorted(tree.run("./list").expect().output.split()) == IMAGES


def test_nothing_of_it_is_writable_for_others(tree: Tree) -> None:
    """Modes are those of the tar, less what the umask takes."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (tree.folder / "scratch-1.2.0").rglob("*"):
        assert path.stat().st_mode & 0o777 & ~umask == (0o755 if path.is_dir() else 0o644) & ~umask
