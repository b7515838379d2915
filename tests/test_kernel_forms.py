"""Kernels in classes and functions, and files that are imported as they stand, from kernels.yaml to images."""

from __future__ import annotations

import textwrap
from pathlib import Path

from project import KERNEL, Project

MANIFEST = """\
version: 1
library: scratch
targets: [sm_90a, gfx942]
defaults: {num_warps: 1}
kernels:
"""
ENTRY = """\
  %(name)s:
    source: kernels/%(file)s.py
    function: %(function)s
    dtypes: [fp32]
    blocks: [{tag: "%(tag)s", %(constants)s}]
    name: %(name)s
    group: of_%(name)s
    signature: "*fp32:16, *fp32:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""
HEAD, _, DEFINITION = KERNEL.partition("@triton.jit\n")
INNER = textwrap.indent(DEFINITION, "    ")
IN_CLASS = f"""\
import torch
{HEAD}
class Scale(torch.nn.Module):
    def forward(self, x):
        return torch.empty_like(x)

    @staticmethod
    @triton.autotune(configs=torch.configs, key=["n_elements"])
    @triton.jit
{INNER}"""
IN_FUNCTION = f"""\
import torch
{HEAD}
@triton.jit
def halved(x):
    return x / 2


def make_scale(factor, act=None, dtype=torch.float16):
    gain = tl.constexpr(factor + 1)
    weights = torch.empty(factor, dtype=dtype)

    @triton.jit
{INNER.replace("x * 2", "act(x) * gain")}
    return scale_kernel
"""
UNCUT = KERNEL.replace("@triton.jit", "GAIN = eval('tl.constexpr(1 + 1)')\n\n\n@triton.jit").replace(
    "x * 2", "x * GAIN"
)


def entry(name: str, file: str, function: str = "scale_kernel", constants: str = "BLOCK_SIZE: 128") -> str:
    return ENTRY % {"name": name, "file": file, "function": function, "tag": "b", "constants": constants}


def images(project: Project, name: str) -> list[bytes]:
    folder = project.folder / "build" / "images"
    return [(folder / file).read_bytes() for file in (f"sm_90a/{name}.cubin", f"gfx942/{name}.hsaco")]


def test_kernels_in_classes_and_functions(tmp_path: Path) -> None:
    """Each gives the image of the same kernel at module level, with torch nowhere."""
    project = Project.create(
        tmp_path / "p",
        manifest=MANIFEST
        + entry("plain", "plain")
        + entry("inside", "inside", "Scale.scale_kernel")
        + entry("doubled", "doubled")
        + entry("made", "made", "make_scale.scale_kernel", "BLOCK_SIZE: 128, factor: 1, act: {function: halved}"),
        plain=KERNEL,
        inside=IN_CLASS,
        doubled=KERNEL.replace("x * 2", "(x / 2) * 2"),
        made=IN_FUNCTION,
    )
    project.doit("compile").expect()
    assert images(project, "inside") == images(project, "plain")
    assert images(project, "made") == images(project, "doubled")
    # Edits of what serves launches alone build nothing; those of what makes the kernel build that kernel.
    project.edit("kernels/inside.py", "torch.empty_like(x)", "torch.zeros_like(x)")
    project.edit("kernels/made.py", "torch.empty(factor, dtype=dtype)", "torch.ones(factor)")
    assert project.doit("compile").expect().counts["built"] == 0
    project.edit("kernels/made.py", "factor + 1", "factor + 2")
    assert sorted(project.doit("compile").expect().ran("compile")) == ["made@gfx942", "made@sm_90a"]
    project.edit("kernels.yaml", "factor: 1", "factor: 0")
    assert sorted(project.doit("compile").expect().ran("compile")) == ["made@gfx942", "made@sm_90a"]
    assert images(project, "made") == images(project, "doubled")
    project.edit("kernels.yaml", "factor: 0, ", "")
    project.doit("compile").expect(
        r"kernels\.yaml:\d+:\d+: made gives no value to factor, which make_scale makes the kernel with$",
        r"  remedy: set factor under `constants` or `axes`$",
        code=1,
    )


def test_a_file_that_is_imported_as_it_stands(tmp_path: Path) -> None:
    """The image is right, people are told once a kernel, only when it is built, and any edit builds it again."""
    project = Project.create(
        tmp_path / "p",
        manifest=MANIFEST + entry("plain", "plain") + entry("uncut", "uncut"),
        plain=KERNEL,
        uncut=UNCUT,
    )
    first = project.doit("-n", "2", "compile").expect(
        r"^kiln: warning: kernels/uncut\.py is imported as it stands to compile scale_kernel, and an edit of any ",
        r"^kernels/uncut\.py:5:8: eval\(\) reaches what cannot be read off the source$",
    )
    assert first.output.count("warning:") == 1
    assert images(project, "uncut") == images(project, "plain")
    again = project.doit("compile").expect()
    assert again.counts["built"] == 0
    assert "warning" not in again.output
    project.edit("kernels/uncut.py", "import triton\n", "import triton  # a comment\n")
    third = project.doit("--reporter", "console", "compile").expect("kiln: warning: ")
    assert third.output.count("warning:") == 1
