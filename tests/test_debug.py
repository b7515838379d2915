"""Names of entries, and line tables with the sources that they are of: `entry_names` and `debug` in kernels.yaml."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kiln.binaries.elf import SHF_EXECINSTR, open_elf
from kiln.binaries.lines import line_table
from kiln.doit_plugin.commands.install import is_installed
from project import Project

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, compute_80, gfx942]
kernels:
  scale:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: scale_{dtype}_{block}
    signature: "*{dtype}:16, i32"
    grid: ["cdiv(n, BLOCK_SIZE)"]
  plain:
    source: kernels/plain.py
    function: plain_kernel
    dtypes: [fp32]
    blocks: [128]
    name: plain_{dtype}_{block}
    signature: "*{dtype}:16, i32"
    grid: ["cdiv(n, BLOCK_SIZE)"]
"""
OPTIONS = "    entry_names: variant\n    debug: true\n"

SCALE = '''\
"""Powers and their sum."""
import torch
import triton
import triton.language as tl
from kernels.shared import power


def launch(x):
    return torch.empty_like(x)


@triton.jit
def scale_kernel(x_ptr, n, BLOCK_SIZE: tl.constexpr):
    # Where the block begins.
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, power(x) + tl.sum(x, axis=0), mask=offsets < n)
'''
SHARED = """\
import triton
import triton.language as tl


@triton.jit
def power(x):
    return tl.exp(x)
"""
PLAIN = SCALE.replace("scale_kernel", "plain_kernel")
IMAGES = {"sm_80": "cubin", "compute_80": "ptx", "gfx942": "hsaco"}
OWN, OTHERS = ({f"{kernel}_fp32_128@{target}" for target in IMAGES} for kernel in ("scale", "plain"))


def create(folder: Path) -> Project:
    """Two kernels that are alike; the first has both options."""
    manifest = MANIFEST.replace("  plain:\n", f"{OPTIONS}  plain:\n")
    return Project.create(folder, manifest=manifest, scale=SCALE, plain=PLAIN, shared=SHARED)


def image(project: Project, kernel: str, target: str) -> bytes:
    return (project.folder / f"build/images/{target}/{kernel}_fp32_128.{IMAGES[target]}").read_bytes()


def facts(project: Project, kernel: str, target: str) -> Mapping[str, object]:
    found: Mapping[str, object] = json.loads(project.read(f"build/images/{target}/{kernel}_fp32_128.facts.json"))
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = create(tmp_path_factory.mktemp("debug") / "project")
    made.doit("compile", "archive:sources").expect()
    return made


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_is_called_as_its_variant(project: Project, target: str) -> None:
    assert facts(project, "scale", target)["entry"] == "scale_fp32_128"
    assert facts(project, "plain", target)["entry"] == "plain_kernel"
    # AMD's runtime looks a kernel up by the name of its descriptor.
    assert (b"scale_fp32_128.kd\0" in image(project, "scale", target)) == (target == "gfx942")
    assert b"scale_kernel" not in image(project, "scale", target)


@pytest.mark.parametrize("target", IMAGES)
def test_lines_are_those_of_the_sources(project: Project, target: str) -> None:
    lines = line_table(image(project, "scale", target), IMAGES[target])
    named: dict[str, set[int]] = {}
    for file, line in lines:
        named.setdefault(file, set()).add(line)
    assert named.keys() == {"/<kiln>/kernels/scale.py", "/<kiln>/kernels/shared.py", "/<triton>/language/standard.py"}
    # From the def on, without the comment; LLVM has code that comes from no line.
    assert named["/<kiln>/kernels/scale.py"] - {0} == {13, 15, 16, 17}
    assert named["/<kiln>/kernels/shared.py"] == {7}
    assert line_table(image(project, "plain", target), IMAGES[target]) == frozenset()


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_code_is_that_of_an_image_without_lines(project: Project, target: str) -> None:
    code = [
        [section.data for section in open_elf(image(project, kernel, target)).sections if section.flags & SHF_EXECINSTR]
        for kernel in ("scale", "plain")
    ]
    assert code[0] == code[1] != []


def test_the_sources_go_with_the_package(project: Project, tmp_path: Path) -> None:
    """A rule for one folder leads from the names in images to the files, wherever the package lies."""
    assert is_installed("archive:sources")
    folder = project.folder / "build/share/scratch"
    said = json.loads((folder / "source_map.json").read_text())
    assert said["schema"] == 1 and said["folders"] == {"/<kiln>": "sources"}
    assert set(said["elsewhere"]) == {"/<triton>", "/<cuda>", "/<system>"}
    assert set(said["files"]) == {"/<kiln>/kernels/scale.py", "/<kiln>/kernels/shared.py"}
    for name, file in said["files"].items():
        path = folder / file["path"]
        assert path == folder / name.replace("/<kiln>", "sources")
        assert path.read_text() == project.read(name.removeprefix("/<kiln>/"))
        digest = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
        assert digest == file["sha256"]


def test_another_folder_makes_the_same_bytes(project: Project, tmp_path: Path) -> None:
    other = create(tmp_path / "elsewhere" / "with a blank")
    other.doit("compile", "archive:sources").expect()
    for below in ("build/images", "build/share"):
        assert other.files(below) == project.files(below)
        for name in project.files(below):
            assert (other.folder / below / name).read_bytes() == (project.folder / below / name).read_bytes()


def test_a_name_that_is_not_ascii(tmp_path: Path) -> None:
    """Assemblers take ASCII alone; the file lies in the package under the name that the line table has."""
    manifest = MANIFEST[: MANIFEST.index("  plain:")].replace("scale.py", "\u00fcb%ung.py") + OPTIONS
    project = Project.create(tmp_path / "project", manifest=manifest, **{"\u00fcb%ung": SCALE}, shared=SHARED)
    project.doit("compile", "archive:sources").expect()
    name = "kernels/%C3%BCb%25ung.py"
    for target, kind in IMAGES.items():
        assert f"/<kiln>/{name}" in {file for file, _ in line_table(image(project, "scale", target), kind)}
    assert project.read(f"build/share/scratch/sources/{name}") == SCALE


def test_edits_build_what_they_concern(project: Project) -> None:
    """Lines count for the kernel that has them; each of the options counts for its own kernel."""
    tasks = ("compile", "archive:sources")
    project.doit(*tasks).expect(r"^0 built")
    for name in ("scale", "plain"):
        project.edit(f"kernels/{name}.py", '"""Powers and their sum."""\n', '"""Powers and their sum."""\n\n')
    project.doit("explain", f"compile:{min(OWN)}").expect("where the kernel's code stands")
    moved = project.doit(*tasks).expect()
    assert set(moved.ran("compile")) == OWN
    assert min(line for file, line in line_table(image(project, "scale", "sm_80"), "cubin") if "scale.py" in file) == 14

    # A line below the kernel moves none of its own, and the sources that go with the package have it all the same.
    project.write("kernels/scale.py", project.read("kernels/scale.py") + "\n\ndef other():\n    pass\n")
    below = project.doit(*tasks).expect()
    assert below.ran("compile") == []
    assert project.read("build/share/scratch/sources/kernels/scale.py").endswith("pass\n")

    # The library's word is for the kernel that has none of its own.
    project.edit("kernels.yaml", "library: scratch\n", "library: scratch\nentry_names: variant\n")
    assert set(project.doit(*tasks).expect().ran("compile")) == OTHERS
    assert facts(project, "plain", "gfx942")["entry"] == "plain_fp32_128"

    project.edit("kernels.yaml", OPTIONS, "    entry_names: function\n")
    assert set(project.doit("compile").expect().ran("compile")) == OWN
    assert facts(project, "scale", "gfx942")["entry"] == "scale_kernel"
    assert not (project.folder / "build/share").exists()
    assert line_table(image(project, "scale", "sm_80"), "cubin") == frozenset()


def test_a_kernel_that_cannot_be_cut_fails_by_itself(tmp_path: Path) -> None:
    """Its sources are not known, and the package of the others is not made without them."""
    project = create(tmp_path / "project")
    project.edit("kernels/scale.py", "    x = tl.load", "    y = torch.zeros(1)\n    x = tl.load")
    other = "plain_fp32_128@sm_80"
    done = project.doit("--continue", f"compile:{other}", "archive:sources")
    done.expect("torch", "not built.*archive:sources", code=1)
    assert done.ran("compile") == [other]
