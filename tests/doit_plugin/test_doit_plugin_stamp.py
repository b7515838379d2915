"""What a depfile has of the questions that a build asked: what moves where an answer would be another one."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from cmake_tree import program
from kiln.doit_plugin.stamp import depended_on, write_stamp
from kiln.files import Noted, Question
from project import REPOSITORY, Project


def test_files_and_the_folders_of_what_was_not_there(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("there/read.py", "there/asked.py", "tool"):
        (tmp_path / name).touch()

    def path(name: str) -> str:
        return str(tmp_path / name)

    answers: dict[Question, Noted] = {
        ("bytes", path("there/read.py")): ("digest", None),
        ("bytes", path("gone since")): ("digest", None),
        ("kind", path("there/asked.py")): ("file", None),
        ("kind", path("there")): ("folder", None),
        ("entry", path("there/no.py")): (None, None),
        ("kind", path("no/such/folder")): (None, None),
        ("program", "tool"): (path("tool"), None),
        ("program", "no tool"): (None, None),
        ("variable", "CC"): ("gcc", None),
        ("names", path("there")): ("digest", None),
    }
    expected = {path(name) for name in ("there/read.py", "there/asked.py", "there", "tool")}
    assert depended_on(answers) == {*expected, str(tmp_path)}


def test_an_edit_while_the_build_ran_is_newer_than_the_stamp(tmp_path: Path) -> None:
    source, stamp = tmp_path / "source.py", tmp_path / "out/stamp"
    source.touch()
    answers: dict[Question, Noted] = {("bytes", str(source)): ("digest", None)}
    write_stamp(stamp, {**answers, ("variable", "CC"): ("gcc", None), ("variable", "AR"): (None, None)}, time.time_ns())
    assert (tmp_path / "out/stamp.env").read_text() == "AR\nCC\n"
    assert stamp.stat().st_mtime_ns >= source.stat().st_mtime_ns
    began = source.stat().st_mtime_ns - 1
    write_stamp(stamp, answers, began)
    assert stamp.stat().st_mtime_ns == began


def test_ninja_reads_every_name_in_the_depfile(tmp_path: Path) -> None:
    folder = tmp_path / "a $tricky #name ü"
    folder.mkdir()
    source, stamp = folder / "source.py", tmp_path / "stamp"
    source.touch()
    write_stamp(stamp, {("bytes", str(source)): ("digest", None)}, time.time_ns())
    rule = f"rule kiln\n  command = touch {stamp}\n  depfile = {stamp}.d\nbuild {stamp}: kiln\n"
    (tmp_path / "build.ninja").write_text(rule)
    # It goes by what it ran itself.
    ninja(tmp_path)
    assert "no work to do" in ninja(tmp_path)
    os.utime(source, (time.time() + 10, time.time() + 10))
    assert "touch" in ninja(tmp_path, "-n", "-v")


def ninja(folder: Path, *options: str) -> str:
    return subprocess.run([program("ninja"), *options], cwd=folder, capture_output=True, text=True, check=True).stdout


def dependencies(project: Project) -> set[str]:
    """The names in the depfile, with the folders of this repository and of the project as words."""
    words = project.read("out/stamp.d").replace(" \\\n", "").split(" ")[1:]
    found = {word.strip().replace(str(project.folder), "PROJECT") for word in words}
    return {word.replace(str(REPOSITORY / "tools/kiln"), "KILN") for word in found}


def test_however_much_of_a_build_is_looked_at_the_names_are_the_same(built: Project) -> None:
    built.doit("--stamp", "out/stamp").expect("^0 built")
    names = dependencies(built)
    assert {
        "PROJECT/kernels.yaml",
        "PROJECT/kernels/scale.py",
        "PROJECT/dodo.py",
        "PROJECT/doit.cfg",
        "KILN/graph.py",
        "KILN/library.py",
        "KILN/packaging/templates/cmake/Targets.cmake.j2",
        "KILN/packaging/runtime/c/src/launch.c",
    } <= names
    assert not [name for name in names if name.startswith("PROJECT/build")]
    # Of one kernel, and of all: comments, for which nothing is compiled.
    built.edit("kernels/scale.py", "    x = tl.load", "    # what it scales\n    x = tl.load")
    built.doit("--stamp", "out/stamp", "compile").expect("^0 built")
    assert dependencies(built) == names
    built.edit("kernels.yaml", "version: 1", "# of a test\nversion: 1")
    built.doit("--stamp", "out/stamp").expect("^0 built")
    assert dependencies(built) == names
    # With no outline of an earlier build.
    (built.folder / "build/.kiln/outline").unlink()
    built.doit("--stamp", "out/stamp").expect("^0 built")
    assert dependencies(built) == names


def test_a_stamp_says_that_all_went_well(built: Project) -> None:
    built.edit("kernels/scale.py", "x * 2", "y * 2")
    built.doit("--stamp", "out/stamp", "compile:scale_fp32_128@gfx942").expect("FAILED", code=1)
    assert not (built.folder / "out").exists()
    built.edit("kernels/scale.py", "y * 2", "x * 2")
    built.doit("--stamp", "kernels.yaml/stamp").expect("the stamp of the build cannot be written", code=2)
    built.write("dodo.py", "def task_own():\n    return {'actions': ['true']}\n")
    built.doit("--stamp", "out/stamp").expect("--stamp is for what steps go by", code=3)
