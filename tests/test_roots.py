"""Sources from several places, built whole: included manifests, roots, an installed package; and where builds go."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from project import KERNEL, REPOSITORY, Project, Result

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, gfx942]
roots: {flash: ../third_party/flash}
include: [more/kernels.yaml]
kernels:
  scale:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: scale_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
  rooted:
    source: ops/scale.py
    root: flash
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: rooted_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""
INCLUDED = """\
version: 1
defaults: {num_warps: 8}
kernels:
  installed:
    package: pack.ops.scale
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: installed_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
  beside:
    source: scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: beside_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""


def kernel(imports: str) -> str:
    """A kernel whose helper comes from elsewhere, in a file that imports what no build machine has."""
    return f"import torch\n{imports}\n{KERNEL}".replace("x * 2", "double(x)")


HELPER = "import torch\nimport triton\n\n\n@triton.jit\ndef double(x):\n    return x * 2\n"
FILES = {
    "kernels/scale.py": kernel("from ops.helpers import double"),
    "more/scale.py": kernel("from pack.helpers import double"),
    "../third_party/flash/ops/__init__.py": "import torch\n",
    "../third_party/flash/ops/scale.py": kernel("from .helpers import double"),
    "../third_party/flash/ops/helpers.py": HELPER,
    "../installed/pack/__init__.py": "import torch\nfrom pack.ops import scale\n",
    "../installed/pack/ops/__init__.py": "",
    "../installed/pack/ops/scale.py": kernel("from pack.helpers import double"),
    "../installed/pack/helpers.py": HELPER,
}
IMAGES = [
    f"{kernel}_fp32_128@{target}"
    for kernel in ("beside", "installed", "rooted", "scale")
    for target in ("gfx942", "sm_80")
]


def doit(project: Project, *arguments: str) -> Result:
    """Run doit with the folder `installed`, beside the project, among those that Python finds packages in."""
    path = os.pathsep.join([str(REPOSITORY / "tools"), str(project.folder.parent / "installed")])
    return project.doit(*arguments, PYTHONPATH=path)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    assert importlib.util.find_spec("torch") is None
    project = Project.create(tmp_path_factory.mktemp("roots") / "project", manifest=MANIFEST)
    project.write("more/kernels.yaml", INCLUDED)
    for name, text in FILES.items():
        project.write(name, text)
    assert sorted(doit(project, "-n", "2").expect().ran("compile")) == IMAGES
    return project


@pytest.fixture
def project(_made: Project, tmp_path: Path) -> Project:
    """Built; a test may change it, with the root and the package beside it."""
    shutil.copytree(_made.folder.parent, tmp_path / "copy", symlinks=True)
    return Project(folder=tmp_path / "copy" / _made.folder.name)


def test_one_kernel_from_four_places_gives_one_image(project: Project) -> None:
    """The same code, whatever its file is called: its name is in no image without line information."""
    for target, suffix in (("sm_80", "cubin"), ("gfx942", "hsaco")):
        folder = project.folder / f"build/images/{target}"
        scale, rooted = ((folder / f"{name}_fp32_128.{suffix}").read_bytes() for name in ("scale", "rooted"))
        beside, installed = ((folder / f"{name}_fp32_128.{suffix}").read_bytes() for name in ("beside", "installed"))
        assert (scale == rooted, beside == installed) == (True, True)
        # `defaults` of the included file: 8 warps.
        assert scale != beside


def test_packages_name_sources_as_every_machine_does(project: Project) -> None:
    crate = "".join((project.folder / "build" / name).read_text() for name in project.files() if name.endswith(".rs"))
    for name in ("kernels/scale.py", "more/scale.py", "../third_party/flash/ops/scale.py"):
        assert f"of `{name}`" in crate
    assert "of `site-packages/pack/ops/scale.py`" in crate
    assert str(project.folder.parent) not in crate


@pytest.mark.parametrize(
    ("file", "old", "new", "users"),
    [
        ("../third_party/flash/ops/helpers.py", "x * 2", "x * 3", ["rooted", "scale"]),
        ("../installed/pack/helpers.py", "x * 2", "x * 3", ["beside", "installed"]),
        ("../installed/pack/ops/scale.py", "double(x)", "double(x) + 1", ["installed"]),
    ],
)
def test_an_edit_rebuilds_the_users_of_the_file(
    project: Project, file: str, old: str, new: str, users: list[str]
) -> None:
    before = project.read(file)
    project.write(file, f"# a comment\n{before}")
    assert doit(project, "compile").expect().counts["built"] == 0
    project.edit(file, old, new)
    rebuilt = doit(project, "compile").expect().ran("compile")
    assert sorted(rebuilt) == [name for name in IMAGES if name.split("_")[0] in users]


def test_an_edit_of_an_included_file_is_one_of_the_manifest(project: Project) -> None:
    before = project.read("more/kernels.yaml")
    project.write("more/kernels.yaml", before.replace("[128]", "[256]", 1))
    rebuilt = doit(project, "compile").expect().ran("compile")
    assert sorted(rebuilt) == ["installed_fp32_256@gfx942", "installed_fp32_256@sm_80"]
    assert not [
        name for name in project.files() if name.endswith("/installed_fp32_128.cubin") and name.startswith("images")
    ]
    assert "more/kernels.yaml" in doit(project, "info", "compile:installed_fp32_256@sm_80").expect().output


def test_without_the_package_its_kernels_are_refused_where_they_stand(project: Project) -> None:
    project.doit("list").expect(
        r"more/kernels\.yaml:5:14: `kernels\.installed\.package` is not installed: there is no package pack",
        "remedy: install pack into the Python that runs Kiln",
        code=3,
    )


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture
def small(tmp_path: Path) -> Project:
    """A project that nothing was built in, with two images."""
    project = Project.create(tmp_path / "project")
    project.edit("kernels.yaml", "[128, 256]", "[128]")
    return project


def test_a_build_elsewhere_leaves_the_project_alone(small: Project, tmp_path: Path) -> None:
    """With sources and their folder read-only, which keeps nobody out who runs as root: so nothing may be new."""
    before = snapshot(small.folder)
    folders = [small.folder, *(path for path in small.folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        small.doit("--build-dir", "../out", PYTHONDONTWRITEBYTECODE="1").expect("0 failed")
        assert small.doit("--build-dir", "../out", PYTHONDONTWRITEBYTECODE="1").expect().counts["built"] == 0
        assert snapshot(small.folder) == before
    finally:
        for path in folders:
            path.chmod(0o755)
    outside = Project(folder=tmp_path)
    assert "lib/libscratch.a" in outside.files("out")
    small.doit("compile").expect("0 failed")
    for name in small.files():
        assert (tmp_path / "out" / name).read_bytes() == (small.folder / "build" / name).read_bytes()


def test_the_manifest_names_the_build_folder(small: Project, tmp_path: Path) -> None:
    small.edit("kernels.yaml", "library: scratch\n", "library: scratch\nbuild: ../elsewhere/x\n")
    small.doit("compile:scale_fp32_128@sm_80").expect("0 failed")
    assert "images/sm_80/scale_fp32_128.cubin" in Project(folder=tmp_path).files("elsewhere/x")
    assert not (small.folder / "build").exists()
    small.doit("list", "-s", "compile:scale_fp32_128@sm_80").expect("^U compile")
    small.doit("clean", "compile").expect("removing file")
    assert Project(folder=tmp_path).files("elsewhere/x") == set()


def test_build_dir_is_relative_to_where_doit_is_started(small: Project, tmp_path: Path) -> None:
    small.edit("kernels.yaml", "library: scratch\n", "library: scratch\nbuild: ../elsewhere\n")
    inner = Project(folder=small.folder / "kernels")
    # doit reads its settings in the current folder only.
    inner.write("doit.cfg", small.read("doit.cfg"))
    inner.doit("-k", "--build-dir=here", "list", "-s").expect("^R compile")
    inner.doit("-k", "--build-dir=here", "compile:scale_fp32_128@sm_80").expect("0 failed")
    assert "images/sm_80/scale_fp32_128.cubin" in inner.files("here")
    inner.doit("list", "-k", "-s", "--build-dir=here", "compile:scale_fp32_128@sm_80").expect("^U compile")
    assert not (tmp_path / "elsewhere").exists() and not (small.folder / "build").exists()


def test_a_build_folder_is_one_projects(small: Project, tmp_path: Path) -> None:
    """A build removes what its own manifest does not make, and so all that another project made there."""
    other = Project.create(tmp_path / "other", manifest=small.read("kernels.yaml"), scale=KERNEL)
    image = "compile:scale_fp32_128@sm_80"
    small.doit("--build-dir", "../out", image).expect("1 built")
    before = snapshot(tmp_path / "out")
    for command in ("run", "clean"):
        other.doit(command, "--build-dir", "../out").expect(
            "the build folder is another project's, whose files this build would remove",
            f"actual: the one that {small.folder} builds into",
            code=3,
        )
    assert snapshot(tmp_path / "out") == before
    # One that was moved with its folder, or away from it, is the same project; a copy has a folder of its own.
    small.doit(image).expect("1 built")
    shutil.copytree(small.folder, tmp_path / "copy")
    small.folder.rename(tmp_path / "moved")
    moved, copy = Project(folder=tmp_path / "moved"), Project(folder=tmp_path / "copy")
    assert copy.doit(image).expect().counts["up to date"] == 1
    assert moved.doit(image).expect().counts["up to date"] == 1
    assert moved.doit("--build-dir", "../out", image).expect().counts["up to date"] == 1
    other.doit("--build-dir", "../out", image).expect(f"that {moved.folder} builds into", code=3)


@pytest.mark.parametrize("folder", [".", "..", "kernels"])
def test_a_build_folder_with_sources_in_it_is_refused(small: Project, folder: str) -> None:
    before = snapshot(small.folder)
    small.doit("--build-dir", folder).expect(
        "--build-dir: the build folder would hold sources", "remedy: name another folder", code=3
    )
    assert snapshot(small.folder) == before


@pytest.mark.parametrize("command", [("run",), ("clean",), ("forget", "-a")])
def test_a_folder_of_other_things_is_no_build_folder(small: Project, tmp_path: Path, command: tuple[str, ...]) -> None:
    """What a build does not know in its folder, it may remove: the lib of /usr/local, say."""
    (tmp_path / "mine/lib").mkdir(parents=True)
    (tmp_path / "mine/lib/precious.so").write_text("mine")
    small.doit(*command, "--build-dir", "../mine").expect(
        "the build folder holds files, and none that a build of Kiln has made",
        "actual: lib and no .kiln",
        code=3,
    )
    assert snapshot(tmp_path / "mine") == {"lib/precious.so": b"mine"}


def test_a_build_key_with_sources_in_its_folder_is_refused_at_the_key(small: Project) -> None:
    small.edit("kernels.yaml", "library: scratch\n", "library: scratch\nbuild: kernels\n")
    small.doit("list").expect(r"kernels\.yaml:3:8: the build folder would hold sources", code=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--build-dir=",), "--build-dir names no folder"),
        (("--build-dir=~/q",), "--build-dir is '~/q': a shell makes a home folder of ~"),
        (("compile:scale_fp32_128@sm_80", "--build-dir", "out"), "--build-dir stands behind the name of a task"),
    ],
)
def test_an_option_that_would_be_taken_for_another_is_refused(
    small: Project, arguments: tuple[str, ...], message: str
) -> None:
    small.doit(*arguments).expect(f"ERROR: {message}", code=3)
    assert not (small.folder / "build").exists()


def test_a_list_that_nobody_reads_ends_quietly(small: Project) -> None:
    """`doit list | head`: the reader has gone before the writer."""
    read, write = os.pipe()
    os.close(read)
    path = os.pathsep.join([str(REPOSITORY / "tools"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "doit", "list"],
        cwd=small.folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_help_shows_the_option(small: Project) -> None:
    small.doit("help", "run").expect("--build-dir=ARG", "relative to the current one")
