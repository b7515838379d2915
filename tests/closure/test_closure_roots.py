"""Imports between a project, the roots that it declares, and installed packages; and what their files are called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from closure_scratch import HEADER, Scratch, kept

from kiln.closure.load import load
from kiln.closure.resolve import Project
from kiln.closure.roots import Roots
from kiln.closure.slice import Closure, cut
from kiln.errors import ClosureError
from kiln.files import Notes, asked_by, noted_in


def kernel(body: str, imports: str = "") -> str:
    return f"{HEADER}{imports}\n\n@triton.jit\ndef kernel(x):\n    {body}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """A folder with `project`, and `installed`, which stands on Python's path."""
    for name in ("project", "installed"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "installed")])
    return Scratch(tmp_path)


def closure_of(place: Scratch, file: str = "project/k.py", roots: tuple[str, ...] = ()) -> Closure:
    return cut(place.root / file, "kernel", root=place.root / "project", roots=roots, where=None)


def files(closure: Closure) -> list[str]:
    return [module.file for module in closure.modules]


def test_a_project_imports_from_a_root(place: Scratch) -> None:
    place.files(
        {
            "project/k.py": kernel("tl.store(x, S)", "from ops.sizes import S\n"),
            "third_party/flash/ops/__init__.py": "",
            "third_party/flash/ops/sizes.py": "from ops.more import S\n",
            "third_party/flash/ops/more.py": "S = 3\n",
        }
    )
    closure = closure_of(place, roots=("../third_party/flash",))
    assert files(closure) == ["k.py", "../third_party/flash/ops/more.py", "../third_party/flash/ops/sizes.py"]
    assert set(closure.sources) >= {place.root / "third_party/flash/ops/more.py"}
    assert load(closure).fn.__globals__["S"] == 3


def test_a_kernel_in_a_root_imports_from_the_project(place: Scratch) -> None:
    place.files(
        {
            "third_party/flash/ops/k.py": kernel("tl.store(x, S + T)", "from sizes import S\nfrom .near import T\n"),
            "third_party/flash/ops/near.py": "T = 4\n",
            "project/sizes.py": "S = 3\n",
        }
    )
    closure = closure_of(place, "third_party/flash/ops/k.py", ("../third_party/flash",))
    assert files(closure) == [
        "../third_party/flash/ops/k.py",
        "../third_party/flash/ops/near.py",
        "sizes.py",
    ]


def test_the_importing_files_own_root_comes_first(place: Scratch) -> None:
    place.files(
        {
            "a/k.py": kernel("tl.store(x, S)", "from sizes import S\n"),
            "a/sizes.py": "S = 1\n",
            "b/sizes.py": "S = 2\n",
            "project/sizes.py": "S = 3\n",
            "project/k.py": kernel("tl.store(x, S)", "from sizes import S\n"),
        }
    )
    assert files(closure_of(place, "a/k.py", ("../b", "../a"))) == ["../a/k.py", "../a/sizes.py"]
    assert files(closure_of(place, "project/k.py", ("../b", "../a"))) == ["k.py", "sizes.py"]
    (place.root / "project/sizes.py").unlink()
    assert files(closure_of(place, "project/k.py", ("../b", "../a"))) == ["k.py", "../b/sizes.py"]


def test_a_root_around_the_project_gives_its_files_no_second_name(place: Scratch) -> None:
    """A file of the project is called the same whichever way an import leads to it."""
    place.files(
        {
            "project/k.py": kernel("tl.store(x, S + T)", "from project.s import S\nfrom ..common import T\n"),
            "project/s.py": "S = 1\n",
            "common.py": "T = 2\n",
        }
    )
    assert files(closure_of(place, roots=("..",))) == ["k.py", "../common.py", "s.py"]


def test_a_relative_import_stays_below_the_declared_folders(place: Scratch) -> None:
    place.files({"project/k.py": kernel("tl.store(x, T)", "from ..common import T\n"), "common.py": "T = 2\n"})
    with pytest.raises(ClosureError, match="leads out of the project") as caught:
        closure_of(place)
    assert "declare a root above both under `roots`" in str(caught.value)


def test_a_file_outside_of_every_root_is_refused(place: Scratch) -> None:
    place.files({"other/k.py": kernel("tl.store(x, 1)")})
    with pytest.raises(ClosureError, match="the file lies outside the project") as caught:
        closure_of(place, "other/k.py", ("../third_party",))
    assert "declare its folder under `roots`" in str(caught.value)


PACKAGE = {
    "installed/ops/__init__.py": "import torch\nfrom ops.softmax import kernel\n",
    "installed/ops/softmax.py": kernel("tl.store(x, S)", "import torch\nfrom ops.sizes import S\n"),
    "installed/ops/sizes.py": "import torch\nS = 3\n",
}


def test_a_kernel_in_an_installed_package(place: Scratch) -> None:
    place.files(PACKAGE)
    closure = closure_of(place, "installed/ops/softmax.py")
    assert files(closure) == ["site-packages/ops/softmax.py", "site-packages/ops/sizes.py"]
    assert load(closure).fn.__globals__["S"] == 3
    assert "ops" not in sys.modules


def test_a_project_imports_from_an_installed_package(place: Scratch) -> None:
    """Through the package's own `__init__.py`, which imports what is not there."""
    place.files(
        {**PACKAGE, "project/k.py": kernel("tl.store(x, S)", "import torch\nfrom ops import sizes\nS = sizes.S\n")}
    )
    closure = closure_of(place)
    assert kept(closure) == {"kernel", "S", "sizes", "triton", "tl", "site-packages/ops/sizes.py:S"}
    before = closure.digest
    place.write("S = 4\n", "installed/ops/sizes.py")
    assert closure_of(place).digest != before


def test_an_installed_package_that_no_kernel_needs_makes_no_difference(place: Scratch) -> None:
    text = kernel("tl.store(x, S)", "import ops\n\nSIZES = [1]\nS = 2\nops.register(SIZES)\n")
    place.files({"project/k.py": text})
    before = closure_of(place)
    place.files({"installed/ops/__init__.py": "def register(sizes):\n    sizes.append(1)\n"})
    assert closure_of(place).digest == before.digest


def test_changes_to_an_installed_package_that_is_needed_are_seen(place: Scratch) -> None:
    place.files(
        {
            "installed/ops/__init__.py": "",
            "installed/ops/config.py": "class Config:\n    S = 1\n",
            "project/k.py": kernel(
                "tl.store(x, S)", "from ops import config\nconfig.Config.S = 5\nS = tl.constexpr(config.Config.S)\n"
            ),
        }
    )
    closure = closure_of(place)
    assert load(closure).fn.__globals__["S"].value == 5


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, ["the kernel needs 'ops' at compile time"]),
        ({"installed/ops/__init__.py": "", "project/ops/__init__.py": ""}, ["a module that the project does not have"]),
        ({"installed/ops/__init__.py": "T = 1\n"}, ["site-packages/ops/__init__.py has no name 'S'"]),
    ],
    ids=["absent", "shadowed", "without the name"],
)
def test_what_is_said_of_a_package_that_does_not_serve(place: Scratch, files: dict[str, str], words: list[str]) -> None:
    imported = "from ops.sizes import S\n" if "project/ops/__init__.py" in files else "from ops import S\n"
    place.files({**files, "project/k.py": kernel("tl.store(x, S)", imported)})
    with pytest.raises(ClosureError) as caught:
        closure_of(place)
    assert [word for word in words if word not in str(caught.value)] == []


def test_packages_that_hold_no_kernels_are_never_read(place: Scratch) -> None:
    place.files(
        {"installed/torch/__init__.py": "S = 1\n", "project/k.py": kernel("tl.store(x, S)", "from torch import S\n")}
    )
    with pytest.raises(ClosureError, match="the kernel needs 'torch' at compile time"):
        closure_of(place)


def test_a_package_in_several_folders(place: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `__init__.py`, each folder on the path holds a part of it."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(place.root / "more")])
    place.files(
        {
            "installed/space/a/__init__.py": "from space.b import S\n",
            "more/space/b.py": "S = 3\n",
            "project/k.py": kernel("tl.store(x, S)", "from space.a import S\n"),
        }
    )
    assert files(closure_of(place)) == ["k.py", "site-packages/space/a/__init__.py", "site-packages/space/b.py"]


def test_the_projects_own_folder_on_the_path_is_no_package(place: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python puts the folder on its path from which a build is started; what is found must not depend on that."""
    place.files({"project/src/sizes.py": "S = 1\n", "project/k.py": kernel("tl.store(x, S)", "from sizes import S\n")})
    monkeypatch.setattr(sys, "path", [str(place.root / "project/src"), *sys.path])
    with pytest.raises(ClosureError, match="the kernel needs 'sizes' at compile time"):
        closure_of(place)
    assert files(closure_of(place, roots=("src",))) == ["k.py", "src/sizes.py"]


def test_a_virtual_environment_in_the_project_holds_packages(place: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "project/.venv/lib/python3/site-packages"
    place.files({f"{folder}/ops.py": "S = 1\n", "project/k.py": kernel("tl.store(x, S)", "from ops import S\n")})
    monkeypatch.setattr(sys, "path", [*sys.path, str(place.root / folder)])
    assert files(closure_of(place)) == ["k.py", "site-packages/ops.py"]


def test_a_folder_of_the_project_cannot_pass_for_installed_packages(place: Scratch) -> None:
    place.files({"project/site-packages/k.py": kernel("tl.store(x, 1)")})
    with pytest.raises(ClosureError, match="that name stands for installed packages"):
        closure_of(place, "project/site-packages/k.py")


def test_names_do_not_depend_on_where_things_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for folder in ("a", "b/c d"):
        place = Scratch(tmp_path / folder)
        place.files(
            {
                "installed/pack.py": "S = 1\n",
                "roots/r.py": "T = 1\n",
                "project/k.py": kernel("tl.store(x, S + T)", "from pack import S\nfrom r import T\n"),
            }
        )
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path, str(place.root / "installed")])
            digests.add(closure_of(place, roots=("../roots",)).digest)
    assert len(digests) == 1


def test_an_installed_package_imports_nothing_of_the_project(place: Scratch) -> None:
    place.files({"installed/k.py": kernel("tl.store(x, S)", "from sizes import S\n"), "project/sizes.py": "S = 1\n"})
    with pytest.raises(ClosureError, match="the kernel needs 'sizes' at compile time"):
        closure_of(place, "installed/k.py")


def test_modules_of_equal_paths_have_different_names(place: Scratch) -> None:
    """`a/x.py` of the project, of a root and of a package are three modules in one slice."""
    place.files(
        {
            "project/k.py": kernel("tl.store(x, A + B)", "from x import A\nfrom r.x import B\n"),
            "project/x.py": "from p.x import C\nA = C\n",
            "roots/r/x.py": "B = 2\n",
            "installed/p/x.py": "C = 3\n",
        }
    )
    closure = closure_of(place, roots=("../roots",))
    assert len({module.name for module in closure.modules}) == 4
    assert load(closure).fn.__globals__["A"] == 3


def test_where_a_name_of_the_project_lies(place: Scratch) -> None:
    project = Project(root=place.root / "project", roots=("../third_party/flash",))
    place.files({"third_party/flash/x.py": "", "third_party/y.py": "", "project/z/__init__.py": ""})
    found = project.locate(("..", "third_party", "flash", "x"))
    assert found is not None and found.path == place.root / "third_party/flash/x.py"
    assert project.locate(("..", "third_party", "y")) is None
    inside = project.locate(("z",))
    assert inside is not None and inside.path == place.root / "project/z/__init__.py"


@pytest.mark.parametrize("what", ["name", "homes"])
def test_each_kernel_has_asked_for_what_it_is_told(place: Scratch, what: str) -> None:
    """Also the second one, which is told from memory: a link that leads elsewhere is its affair too."""
    place.files({"project/k.py": "", "installed/pack/__init__.py": ""})
    roots, notes = Roots(root=place.root / "project"), Notes()
    told = []
    with noted_in(notes):
        for owner in ("first", "second"):
            with asked_by(owner):
                told.append(roots.name(place.root / "project/k.py") if what == "name" else roots.homes("pack"))
    assert told[0] == told[1] and told[0]
    assert notes.asked["second"] == notes.asked["first"] != set()
