"""tools/bootstrap.py on scratch trees of their own, with real packages, real pip and no network.

The packages that the scratch trees lock are those of the running environment, packed into wheels again.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest

BOOTSTRAP = Path(__file__).parent.parent / "tools" / "bootstrap.py"


def load_bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", BOOTSTRAP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bootstrap = load_bootstrap()


def pack_wheel(name: str, folder: Path) -> str:
    """Packs an installed pure Python package as a wheel into `folder`; gives the line that locks it."""
    package = importlib.metadata.distribution(name)
    files = [path for path in package.files or [] if ".." not in path.parts and "__pycache__" not in path.parts]
    info = next(path.parts[0] for path in files if path.name == "METADATA" and path.parts[0].endswith(".dist-info"))
    wheel = folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        kept = [path for path in files if path.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")]
        for path in kept:
            archive.write(str(package.locate_file(path)), path.as_posix())
        archive.writestr(f"{info}/RECORD", "".join(f"{path.as_posix()},,\n" for path in kept) + f"{info}/RECORD,,\n")
    return f"{name}=={package.version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A scratch project with its own bootstrap.py, and a folder of wheels in the place of a package index."""

    root: Path
    wheels: Path

    @property
    def environment(self) -> dict[str, str]:
        pip = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        kept = {key: value for key, value in os.environ.items() if key not in pip and key != "PYTHONPATH"}
        return {**kept, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), "PIP_LOG": str(self.pip_log)}

    @property
    def pip_log(self) -> Path:
        """Where pip, whenever it runs, leaves a trace."""
        return self.root / "pip.log"

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self.root / "tools" / "bootstrap.py"), *words],
            cwd=self.root.parent,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def stamp(self) -> dict[str, str]:
        stamp: dict[str, str] = bootstrap.read_stamp(self.root / ".venv")
        return stamp


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "tools").mkdir(exist_ok=True)
    shutil.copy(BOOTSTRAP, root / "tools")
    return root


PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "scratch"
version = "1"
[tool.setuptools]
package-dir = {"" = "tools"}
packages = ["scratch"]
[tool.pytest.ini_options]
testpaths = ["tests"]
"""
DODO = """\
import os, scratch
def task_show():
    return {"actions": [lambda: print(os.environ["SHELL_WORD"], os.getcwd(), scratch.__file__)], "verbosity": 2}
def task_fail():
    return {"actions": ["exit 7"]}
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A tree whose first two set-ups ran at the same time."""
    top = tmp_path_factory.mktemp("bootstrap")
    wheels = top / "wheels"
    wheels.mkdir()
    build = "".join(pack_wheel(name, wheels) for name in ("doit", "setuptools"))
    test = "".join(pack_wheel(name, wheels) for name in ("iniconfig", "packaging", "pluggy", "pygments", "pytest"))
    bench = next(line for line in test.splitlines(keepends=True) if line.startswith("iniconfig"))
    root = write_tree(
        top / "a tree é",
        {
            "pyproject.toml": PYPROJECT,
            "dodo.py": DODO,
            "requirements/build.txt": build,
            "requirements/test.txt": build + test,
            "requirements/bench.txt": build + bench,
            "tools/scratch/__init__.py": "",
            "tests/test_it.py": "def test_passes(): pass\ndef test_fails(): assert False\n",
            "tests/benchmarks/bench.py": "import iniconfig, os, sys\nprint(sys.argv[1:], os.getcwd())\nsys.exit(6)\n",
        },
    )
    tree = Tree(root=root, wheels=wheels)
    first = tree.start("--version")
    while first.poll() is None and not (root / ".venv" / bootstrap.STAMP).exists():
        time.sleep(0.02)
    second = tree.start("--version")
    for process, says in ((first, "making .venv"), (second, "another set-up of this folder is running")):
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.splitlines()[:1]) == (0, [importlib.metadata.version("doit")]), err
        assert says in err
        assert ("making .venv" in err) == (process is first), err
    assert tree.pip_log.exists(), "pip does not log, so its absence later would prove nothing"
    return tree


@pytest.fixture
def tree(trees: Tree) -> Iterator[Tree]:
    """The tree with its set-up done, and no trace of pip yet."""
    trees.pip_log.unlink(missing_ok=True)
    yield trees


def test_second_run_runs_no_pip_and_starts_at_once(tree: Tree) -> None:
    def seconds(command: Sequence[str]) -> float:
        began = time.perf_counter()
        subprocess.run(command, cwd=tree.root, env=tree.environment, check=True, capture_output=True)
        return time.perf_counter() - began

    doit = str(tree.root / ".venv" / "bin" / "doit")
    through = min(seconds([sys.executable, str(tree.root / "tools" / "bootstrap.py"), "--version"]) for _ in range(5))
    direct = min(seconds([str(tree.root / ".venv" / "bin" / "python"), doit, "--version"]) for _ in range(5))
    assert not tree.pip_log.exists()
    # A set-up takes seconds; the bound leaves room for a busy machine.
    assert through - direct < 0.5, f"{through:.3f} s through bootstrap.py, {direct:.3f} s without"


def test_words_environment_and_exit_code_are_doits(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run from another folder: doit runs in the tree, sees the caller's environment, and its exit code comes back."""
    monkeypatch.setenv("SHELL_WORD", "hello")
    code, out, _ = tree.run("show")
    assert code == 0
    assert out.splitlines()[-1] == f"hello {tree.root} {tree.root}/tools/scratch/__init__.py"
    assert tree.run("fail")[0] == 1
    code, _, err = tree.run("no_such_task")
    assert code == 3 and "no_such_task" in err


def test_bench_adds_its_packages_and_runs_the_benchmarks(tree: Tree) -> None:
    code, out, err = tree.run("bench", "--only", "x")
    assert (code, out.splitlines()[-1]) == (6, f"['--only', 'x'] {tree.root}"), err
    assert "adding what the benchmarks need" in err
    tree.pip_log.unlink()
    assert tree.run("bench")[0] == 6
    assert not tree.pip_log.exists()


def test_test_adds_its_packages_and_ends_with_pytests_line(tree: Tree) -> None:
    code, out, err = tree.run("test")
    assert code == 1
    assert out.splitlines()[-1].strip("= ").startswith("1 failed, 1 passed in "), out
    assert "adding what the tests need" in err
    tree.pip_log.unlink()
    code, out, err = tree.run("test", "-k", "passes")
    assert (code, err) == (0, "") and "1 passed, 1 deselected" in out
    assert not tree.pip_log.exists()


def test_other_tritons_lie_in_folders_of_their_own(tree: Tree) -> None:
    """Added by `test` alone, each when its lock is another one; packages of .venv and of other releases stay."""
    locks = {line.partition("==")[0]: line for line in (tree.root / "requirements/test.txt").read_text().splitlines()}
    venv, (one, two) = tree.root / ".venv", (tree.root / "requirements" / f"triton-0.{minor}.txt" for minor in (1, 2))
    one.write_text(locks["iniconfig"])
    two.write_text(locks["pluggy"])
    assert tree.run("--version")[0] == 0 and not tree.pip_log.exists()
    _, out, err = tree.run("test")
    assert "1 failed, 1 passed" in out and "adding triton-0.1, triton-0.2, which the tests build with besides" in err
    assert (venv / "triton-0.1/iniconfig/__init__.py").exists() and (venv / "triton-0.2/pluggy/__init__.py").exists()
    tree.pip_log.unlink()
    assert tree.run("test")[2] == "" and not tree.pip_log.exists()

    one.write_text(locks["pygments"])
    assert "adding triton-0.1, which" in tree.run("test")[2]
    assert [path.name for path in sorted((venv / "triton-0.1").glob("[!p]*"))] == ["bin"]
    assert (venv / "triton-0.1/pygments").exists()
    two.write_text(locks["pygments"].replace("--hash=sha256:", "--hash=sha256:" + "0" * 64 + "#"))
    code, _, err = tree.run("test")
    assert code == 3 and "is not the one that requirements/ names" in err
    tree.pip_log.unlink()
    assert tree.run("--version")[0] == 0 and not tree.pip_log.exists()
    two.write_text(f"{locks['pygments'].partition(' --hash')[0]}; python_version < '3' --hash{'=sha256:' + '0' * 64}")
    assert "1 failed, 1 passed" in tree.run("test")[1]
    assert list((venv / "triton-0.2").iterdir()) == [] and not list(venv.glob("triton-*.part"))


def test_new_script_in_pyproject_is_installed_offline(tree: Tree) -> None:
    """A change to what pyproject.toml says of the package installs that anew, and leaves the other packages alone."""
    pyproject = tree.root / "pyproject.toml"
    pyproject.write_text(PYPROJECT + '[project.scripts]\nscratch-tool = "scratch:main"\n')
    code, _, err = replace(tree, wheels=tree.root / "nowhere").run("--version")
    assert (code, err) == (0, "")
    assert (tree.root / ".venv" / "bin" / "scratch-tool").exists()
    assert not list(tree.root.glob("tools/*.egg-info")), "the set-up litters the sources"


def test_failed_change_of_lock_leaves_the_old_venv_working(tree: Tree) -> None:
    lock = tree.root / "requirements" / "build.txt"
    before, stamp = lock.read_text(), tree.stamp()
    lock.write_text(before.replace("--hash=sha256:", "--hash=sha256:" + "0" * 64 + "#"))
    code, out, err = tree.run("--version")
    assert (code, out) == (3, "")
    assert "is not the one that requirements/ names" in err
    lock.write_text(before)
    tree.pip_log.unlink()
    assert tree.stamp() == stamp and not (tree.root / ".venv.old").exists()
    assert tree.run("--version")[0] == 0 and not tree.pip_log.exists()


def test_moved_tree_and_killed_set_up_are_repaired(tree: Tree) -> None:
    """A moved .venv is made anew; killed half-way that leaves no stamp, and the next run ends it."""
    moved = replace(tree, root=tree.root.with_name("moved"))
    tree.root.rename(moved.root)
    try:
        process = moved.start("--version")
        deadline = time.monotonic() + 60
        while not moved.pip_log.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert bootstrap.UNFINISHED in moved.stamp()
        code, out, err = moved.run("--version")
        assert code == 0 and str(moved.root) in out, err
        assert moved.stamp()["path"] == str(moved.root / ".venv")
        assert not (moved.root / ".venv.old").exists()
    finally:
        moved.root.rename(tree.root)


def test_stranger_in_the_place_of_venv_is_refused_untouched(tmp_path: Path) -> None:
    files = {"pyproject.toml": PYPROJECT, "requirements/build.txt": "", ".venv/pyvenv.cfg": "somebody's"}
    code, _, err = Tree(root=write_tree(tmp_path, files), wheels=tmp_path).run()
    assert code == 3
    assert "was not made by tools/bootstrap.py: move it away or delete it" in err
    assert (tmp_path / ".venv" / "pyvenv.cfg").read_text() == "somebody's"


def test_missing_programs_are_named_at_once_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"pyproject.toml": PYPROJECT} | {f"requirements/{name}.txt": "" for name in ("build", "test", "bench")}
    tree = Tree(root=write_tree(tmp_path / "tree", files), wheels=tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    programs = ["objcopy", "ar", "gcc"]
    for words, names in (([], programs), (["bench"], programs), (["test"], [*programs, "cargo", "rustc"])):
        code, out, err = tree.run(*words)
        assert (code, out) == (3, "")
        assert [line.split(" is missing: install ")[0] for line in err.splitlines()] == names
    assert "binutils (Debian, Ubuntu: apt-get install binutils;" in err
    assert not list(tree.root.glob(".venv*"))


def test_programs_may_have_other_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """OBJCOPY, AR and CC name the programs of the build, here as elsewhere."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("OBJCOPY", "AR"):
        monkeypatch.setenv(variable, sys.executable)
    monkeypatch.setenv("CC", "/nowhere/clang")
    (message,) = bootstrap.missing(None, False)
    assert message.startswith("/nowhere/clang is missing: install gcc")


def test_python_without_venv_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else name)
    (message,) = [line for line in bootstrap.missing(None, True) if "ensurepip" in line]
    assert "apt-get install python3-venv" in message


def test_old_python_can_read_the_file() -> None:
    """Python 3.6 to 3.10 must get as far as the message about their age: no newer syntax, no newer future import."""
    module = ast.parse(BOOTSTRAP.read_text(), feature_version=(3, 6))
    imports = [node for node in module.body if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in [node.module for node in imports]


@pytest.mark.parametrize("version", [(3, 6), (3, 10), (3, 16), (4, 0)])
def test_wrong_python_is_told_which_to_take(version: tuple[int, int]) -> None:
    problem = bootstrap.unfit(version, "linux")
    assert problem.startswith(
        f"Kiln needs Python 3.11 to 3.15, as its Triton does; {sys.executable} is {version[0]}.{version[1]}"
    )


def test_another_python_on_path_is_taken_only_if_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "python3.14").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.12").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for name in ("python3.14", "python3.12"):
        (tmp_path / name).chmod(0o755)
    assert bootstrap.fit_interpreter() == "python3.12"
    (tmp_path / "python3.12").unlink()
    assert bootstrap.fit_interpreter() is None


def test_right_python_and_wrong_system() -> None:
    assert [bootstrap.unfit((3, minor), "linux") for minor in range(11, 16)] == [None] * 5
    assert "Kiln builds on Linux" in bootstrap.unfit((3, 12), "darwin")


STAMP = {"path": "/p", "python": "x", "build": "b", "project": "k"}


@pytest.mark.parametrize(
    ("have", "want", "parts"),
    [
        (STAMP, STAMP, ()),
        ({**STAMP, "test": "t"}, STAMP, ()),
        ({**STAMP, "test": "of another lock"}, STAMP, ()),
        ({**STAMP, "project": "old"}, STAMP, ("project",)),
        (STAMP, {**STAMP, "test": "t"}, ("test",)),
        ({**STAMP, "project": "old"}, {**STAMP, "test": "t"}, ("test", "project")),
        ({**STAMP, "test": "t"}, {**STAMP, "test": "t", "triton-3.6": "a"}, ("triton-3.6",)),
        (
            {**STAMP, "test": "t", "triton-3.6": "old", "triton-3.7": "b"},
            {**STAMP, "test": "t", "triton-3.6": "a", "triton-3.7": "b"},
            ("triton-3.6",),
        ),
        ({**STAMP, "test": "t", "triton-3.6": "old"}, STAMP, ()),
        ({**STAMP, "test": "t"}, {**STAMP, "bench": "n"}, ("bench",)),
        ({**STAMP, "test": "of another lock", "bench": "n"}, {**STAMP, "bench": "n"}, ()),
        ({**STAMP, "test": bootstrap.UNFINISHED}, {**STAMP, "bench": "n"}, ("all",)),
        ({**STAMP, "test": bootstrap.UNFINISHED, "bench": "n"}, {**STAMP, "bench": "n"}, ()),
        ({**STAMP, "bench": bootstrap.UNFINISHED}, {**STAMP, "bench": "n"}, ("all",)),
        ({**STAMP, "test": bootstrap.UNFINISHED}, {**STAMP, "test": "t"}, ("all",)),
        ({**STAMP, "test": "of another lock"}, {**STAMP, "test": "t"}, ("all",)),
        ({**STAMP, "build": "old"}, STAMP, ("all",)),
        ({**STAMP, "path": "/q"}, STAMP, ("all",)),
        ({**STAMP, "python": "y"}, STAMP, ("all",)),
        ({bootstrap.UNFINISHED: ""}, STAMP, ("all",)),
        ({}, STAMP, ("all",)),
    ],
)
def test_what_a_stamp_leaves_to_do(have: dict[str, str], want: dict[str, str], parts: tuple[str, ...]) -> None:
    assert bootstrap.stale_parts(have, want) == parts


def test_only_what_an_installation_depends_on_counts() -> None:
    """Lint and doit settings may change without an installation; dependencies, scripts and package data may not."""
    base = bootstrap.installed_part(PYPROJECT)
    assert (
        bootstrap.installed_part(PYPROJECT + "# a comment\n\n[tool.ruff]\nline-length = 99\n[[tool.mypy.x]]\n") == base
    )
    for table in ("[project.scripts]", '[project."x"]', "[tool.setuptools.package-data]", "[build-system]"):
        assert bootstrap.installed_part(f"{PYPROJECT}{table}\nkey = 1\n") == f"{base}\n{table}\nkey = 1"
    assert bootstrap.installed_part("[projects]\nkey = 1\n") == ""


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "pip cache purge"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: No matching distribution found for x (from versions: 1.0)", "no file of that\nversion"),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(': Failed to establish a new connection:"
            " [Errno -3] Temporary failure in name resolution')': /simple/x/\n"
            "ERROR: No matching distribution found for x",
            "needs the network",
        ),
        ("ERROR: Could not find a version that satisfies the requirement x (from versions: none)", "needs the network"),
        ("Segmentation fault", "Run the same again"),
    ],
)
def test_remedies(output: str, advice: str) -> None:
    assert advice in bootstrap.remedy(output)


def test_a_wheel_built_after_a_build_holds_kiln_alone(tmp_path: Path) -> None:
    """setuptools and Kiln both write to build/ by default: a library of the user's must not get into the wheel."""
    tree = tmp_path / "tree"
    left_out = (".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis", "target", ".setuptools")
    ignore = shutil.ignore_patterns(*left_out)
    shutil.copytree(BOOTSTRAP.parents[1], tree, ignore=ignore)
    (tree / "build/lib").mkdir(parents=True)
    (tree / "build/lib/libkernels.a").write_text("a user's")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", tmp_path, tree], check=True)
    (wheel,) = tmp_path.glob("kernel_kiln-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert not [name for name in names if not name.startswith(("kiln/", "kernel_kiln-"))]
    needed = {"kiln/graph.py", "kiln/project/template/gitignore", "kiln/packaging/templates/c/library.h.j2"}
    needed.add("kiln/cmake/KilnAddLibrary.cmake")
    assert needed | {"kiln/packaging/runtime/c/src/lookup.c", "kiln/packaging/runtime/rust/lib.rs"} <= names
    assert sorted(path.name for path in (tree / "build").iterdir()) == ["lib"]
