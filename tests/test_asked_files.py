"""The parent of a build reads nothing past kiln.files: else what it went by could change, and a build not notice."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kiln.files import FOR_ALL
from project import REPOSITORY

KILN = REPOSITORY / "tools" / "kiln"
PARENT = ("manifest", "closure", "toolchain", "library.py", "interfaces.py", "cuda_images.py", "source_reader.py")
"""what a build goes by before it knows which steps are stale"""
CHILDREN = ("closure/load.py", "closure/visited.py")
"""modules of these rooms that only children import"""
METHODS = {"read_bytes", "read_text", "is_file", "is_dir", "iterdir", "rglob", "glob", "lstat", "samefile", "readlink"}
METHODS |= {"is_symlink", "is_mount", "owner", "expanduser"}
BARE_METHODS = {"exists", "resolve", "stat"}
"""methods of paths, where they get no positional argument; others have such names too"""
FUNCTIONS = {"os.environ", "os.getenv", "os.stat", "os.lstat", "os.listdir", "os.scandir", "os.walk", "os.path.exists"}
FUNCTIONS |= {"os.path.isfile", "os.path.isdir", "os.path.realpath", "os.path.lexists", "shutil.which", "open"}
FUNCTIONS |= {"importlib.util.find_spec", "importlib.machinery.PathFinder.find_spec"}
KNOWN = {
    # It keeps texts for as long as files stand still, and notes each that is asked for.
    "closure/imported.py": {"stat", "os.scandir"},
    # Modules of Python's own.
    "closure/interpret/outside_names.py": {"importlib.util.find_spec"},
    # A manifest that asks which GPUs there are has no outline: every build asks anew.
    "toolchain/native.py": {"is_dir", "iterdir", "read_text"},
}


def parents() -> list[Path]:
    """The modules of the parent's side."""
    paths = [
        path for part in PARENT for path in ([KILN / part] if part.endswith(".py") else (KILN / part).rglob("*.py"))
    ]
    return sorted(path for path in paths if path.relative_to(KILN).as_posix() not in CHILDREN)


def asks_past_files(source: str) -> list[tuple[int, str]]:
    """(line, name) of each use of a function or method that looks at files or the environment by itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Attribute, ast.Name)) and (name := ast.unparse(node)) in FUNCTIONS:
            found.append((node.lineno, name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if ast.unparse(node.func.value) == "files":
                continue
            if name in METHODS or (name in BARE_METHODS and not node.args):
                found.append((node.lineno, name))
    return found


def test_no_module_of_the_parent_looks_at_files_by_itself() -> None:
    paths = parents()
    assert len(paths) > 90
    wrong = []
    for path in paths:
        name = path.relative_to(KILN).as_posix()
        wrong += [
            f"{name}:{line}: {word}"
            for line, word in asks_past_files(path.read_text())
            if word not in KNOWN.get(name, ())
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    ["path.read_bytes()", "Path(x).exists()", "path.resolve()", "os.environ.get('A')", "shutil.which('a')", "open(a)"],
)
def test_a_look_past_files_is_found(source: str) -> None:
    assert len(asks_past_files(source)) == 1


def test_other_methods_of_such_names_are_left_alone() -> None:
    assert not asks_past_files(
        "files.is_file(path)\noutside.exists(name)\ntype.resolve(value, names)\nproject.open(path)"
    )


@pytest.fixture(scope="module", params=["default", "wild"])
def asked(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    """A project's folder, and what asked_files.py prints there."""
    folder = REPOSITORY if request.param == "default" else REPOSITORY / "tests" / "wild" / "project"
    paths = [KILN.parent, REPOSITORY / "tests", REPOSITORY / "tests" / "wild" / "site"]
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tests" / "asked_files.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdout=subprocess.PIPE,
        check=True,
    )
    return folder, json.loads(done.stdout)


def test_what_is_opened_and_listed_was_asked_for(asked: tuple[Path, dict[str, Any]]) -> None:
    folder, found = asked
    whole = found[FOR_ALL]
    questions = {tuple(question) for questions in whole["asked"].values() for question in questions}
    read = {subject for kind, subject in questions if kind == "bytes"}
    listed = {subject if kind == "names" else os.path.dirname(subject) for kind, subject in questions}  # noqa: PTH120  # as text
    # What Python and doit read for themselves is not the build's affair.
    around = [folder, KILN, folder.parent / "third", folder.parent / "site"]
    around += [Path(path) for path in read if path.endswith("triton/__init__.py")]
    tops = [str(path.parent if path.suffix else path) + "/" for path in around]
    mine = [path for path in whole["opened"] if path.startswith(tuple(tops)) and "/build/" not in path]
    assert len(mine) > 20
    assert set(mine) <= read
    assert {path for path in whole["listed"] if f"{path}/".startswith(tuple(tops))} <= listed


def test_each_kernel_asks_for_all_that_it_depends_on(asked: tuple[Path, dict[str, Any]]) -> None:
    """What others have asked before it, and some cache remembers, it has asked too."""
    whole = found(asked, FOR_ALL)
    kernels = [kernel for kernel in asked[1] if kernel != FOR_ALL]
    assert len(kernels) > 3
    for kernel in kernels:
        alone = found(asked, kernel)
        assert alone[kernel] <= whole[kernel] | whole[FOR_ALL], kernel
        assert alone[FOR_ALL] <= whole[FOR_ALL], kernel
        assert any(kind == "bytes" for kind, _ in whole[kernel]), kernel


def found(asked: tuple[Path, dict[str, Any]], kernel: str) -> dict[str, set[tuple[str, str]]]:
    """Owner -> the questions that were asked when a kernel was loaded alone, or all were."""
    return {owner: {(kind, subject) for kind, subject in each} for owner, each in asked[1][kernel]["asked"].items()}
