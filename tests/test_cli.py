"""The `kiln` command: a new project that builds, nothing overwritten, and a look at the images of a build."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kiln.project import ProjectError, init, library_name
from project import REPOSITORY, Project


def test_a_new_project_builds_as_it_stands(tmp_path: Path) -> None:
    project = Project(folder=tmp_path / "my-kernels")
    project.run_python("-m", "kiln", "init", str(project.folder), inside=False).expect("kernels.yaml", "doit")
    assert project.files(".") == {
        ".gitignore",
        "dodo.py",
        "doit.cfg",
        "kernels.schema.json",
        "kernels.yaml",
        "kernels/vector_add.py",
        "kernels/vector_add_reference.py",
    }
    project.doit().expect("0 failed")
    assert {"lib/libmy_kernels.a", "include/my_kernels/my_kernels.h", "rust/my_kernels/Cargo.toml"} <= project.files()
    project.doit().expect("^0 built")


def test_its_graph_is_this_repositorys(tmp_path: Path) -> None:
    """A new project takes its rules from the package, so that they are those of the Kiln that builds it."""
    assert (REPOSITORY / "tools/kiln/graph.py").read_text() == (REPOSITORY / "dodo.py").read_text()
    init(tmp_path)
    assert "from kiln.graph import *" in (tmp_path / "dodo.py").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kernels.yaml").write_text("mine")
    with pytest.raises(ProjectError, match=r"kernels\.yaml would be overwritten"):
        init(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.yaml"]
    assert (tmp_path / "kernels.yaml").read_text() == "mine"


def test_a_gitignore_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    project = Project(folder=tmp_path)
    project.run_python("-m", "kiln", "init", ".").expect(
        "left .gitignore as it is", "the library is called", "cd . && doit"
    )
    assert (tmp_path / ".gitignore").read_text() == "mine"
    assert (tmp_path / "kernels.yaml").exists()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    project = Project(folder=tmp_path)
    project.run_python("-m", "kiln", "init", "taken").expect("ERROR: .*taken", "remedy: ", code=3)


@pytest.mark.parametrize(
    ("folder", "library"),
    [
        ("kernels", "kernels"),
        ("My Kernels", "my_kernels"),
        ("flash-attn.v2", "flash_attn_v2"),
        ("int", "kernels"),
        ("2fast", "kernels"),
        ("ядра", "kernels"),
    ],
)
def test_the_library_is_named_after_its_folder(tmp_path: Path, folder: str, library: str) -> None:
    assert library_name(tmp_path / folder) == library
    name = re.search(
        r"^library: (\w+)", next(p.read_text() for p in init(tmp_path / folder) if p.name == "kernels.yaml"), re.M
    )
    assert name is not None and name.group(1) == library


def test_the_format_is_printed_for_editors_and_for_people(tmp_path: Path) -> None:
    """And a new project has the schema beside its manifest, which names it."""
    project = Project(folder=tmp_path / "x")
    init(project.folder)
    schema = project.run_python("-m", "kiln", "schema").expect().output
    assert schema == project.read("kernels.schema.json") == (REPOSITORY / "kernels.schema.json").read_text()
    assert project.read("kernels.yaml").startswith("# yaml-language-server: $schema=kernels.schema.json\n")
    page = project.run_python("-m", "kiln", "manifest-docs").expect().output
    assert page == (REPOSITORY / "docs/manifest.md").read_text()


def test_the_command_says_its_version_and_its_use(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    project.run_python("-m", "kiln", "--version").expect(r"^kiln \d+\.\d+\.\d+$")
    project.run_python("-m", "kiln").expect("usage: kiln", code=2)
    assert not list(tmp_path.iterdir())


def test_images_of_a_build_are_looked_at(built: Project) -> None:
    """Several in one call; one that was changed is refused, and the others are shown all the same."""
    names = ["build/images/sm_80/scale_fp32_128.cubin", "build/images/gfx942/scale_fp32_128.hsaco"]
    built.run_python("-m", "kiln", "inspect", *names).expect(
        rf"^{names[0]}$", "^  arch +sm_80$", rf"^{names[1]}$", "^  arch +gfx942$", "scale_fp32_128.facts.json agrees"
    )
    shown = json.loads(built.run_python("-m", "kiln", "inspect", "--json", *names).expect().output)
    assert [(image["file"], image["kind"], image["entry"]) for image in shown] == [
        (names[0], "cubin", "scale_kernel"),
        (names[1], "hsaco", "scale_kernel"),
    ]
    image = built.folder / names[0]
    image.write_bytes(image.read_bytes() + b"\0")
    built.run_python("-m", "kiln", "inspect", *names, "build/none").expect(
        rf"^ERROR: {names[0]}: 3 checks failed$",
        "^  sha256: ",
        r"^    expected: \d+ bytes, by the facts$",
        "^ERROR: build/none: the file cannot be read",
        "^  arch +gfx942$",
        code=1,
    )
    built.run_python("-m", "kiln", "inspect").expect("usage: kiln inspect", code=2)


def test_a_look_at_an_image_needs_no_compiler(built: Project) -> None:
    program = (
        "import sys; from kiln.cli import main; main(['inspect', 'build/images/sm_80/scale_fp32_128.cubin'])\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'triton', 'doit', 'jinja2'}))"
    )
    built.run_python("-c", program).expect(r"^\[\]$")
