"""Kernels that ask what they run on: built for the target with no GPU and no torch, and rebuilt when that matters."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from project import MANIFEST, Project

ASKING = """\
import os

import torch
import triton
import triton.language as tl

try:
    from triton.language.no_such_place import rsqrt
except ImportError:
    try:
        from triton.language.extra.libdevice import rsqrt
    except ImportError:
        rsqrt = tl.rsqrt


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


FACTOR = tl.constexpr(float(os.environ.get("FACTOR", "2")))
LOWEST = tl.constexpr(torch.finfo(torch.float32).min)

if is_hip():

    @triton.jit
    def finish(x):
        return tl.maximum(x, LOWEST) * 3

else:

    @triton.jit
    def finish(x):
        return tl.maximum(x, LOWEST) * FACTOR


@triton.autotune(configs=[triton.Config({"BLOCK_SIZE": 128})], key=[])
@triton.heuristics({"HAS_BIAS": lambda args: args["bias_ptr"] is not None})
@triton.jit
def scale_kernel(output_ptr, input_ptr, bias_ptr, n_elements, HAS_BIAS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(input_ptr + offsets, mask=mask)
    if HAS_BIAS:
        x += tl.load(bias_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, finish(rsqrt(x)), mask=mask)


def launch(x):
    return torch.empty_like(x)
"""

KERNELS = """\
environment: {FACTOR: "2"}
kernels:
  plain:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: plain_{dtype}_{block}
    group: plain_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, *{dtype}, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
  bare:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128]
    name: bare_{dtype}_{block}
    group: bare_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    constants: {bias_ptr: null}
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    manifest = MANIFEST.partition("kernels:\n")[0] + KERNELS
    project = Project.create(tmp_path_factory.mktemp("worlds") / "project", manifest=manifest, scale=ASKING)
    project.doit("compile", FACTOR="7").expect("4 built, ")
    return project


def copied(project: Project, folder: Path) -> Project:
    shutil.copytree(project.folder, folder)
    return Project(folder=folder)


def test_each_target_gets_its_own_branch_and_each_variant_its_own_constant(built: Project) -> None:
    images = built.folder / "build/images"
    paths = [*images.glob("sm_80/*.cubin"), *images.glob("gfx942/*.hsaco")]
    assert len({path.read_bytes() for path in paths}) == len(paths) == 4


def test_nothing_is_rebuilt_for_what_the_build_machine_says(built: Project) -> None:
    built.doit("compile", FACTOR="9", TRITON_HIP="1").expect("0 built, ")


@pytest.mark.parametrize(
    ("file", "old", "new", "rebuilt"),
    [
        ("kernels/scale.py", "* 3", "* 4", ["bare_fp32_128@gfx942", "plain_fp32_128@gfx942"]),
        ("kernels.yaml", '{FACTOR: "2"}', '{FACTOR: "5"}', ["bare_fp32_128@sm_80", "plain_fp32_128@sm_80"]),
        ("kernels.yaml", '{FACTOR: "2"}', '{FACTOR: "2", OTHER: null}', []),
        ("kernels/scale.py", "rsqrt = tl.rsqrt", "rsqrt = tl.math.rsqrt", []),
        # A heuristic counts by its value: that of a kernel with no bias stays false.
        (
            "kernels/scale.py",
            'args["bias_ptr"] is not None',
            "False",
            ["plain_fp32_128@gfx942", "plain_fp32_128@sm_80"],
        ),
    ],
)
def test_an_edit_rebuilds_what_it_decides(
    built: Project, tmp_path: Path, file: str, old: str, new: str, rebuilt: list[str]
) -> None:
    project = copied(built, tmp_path / "project")
    project.edit(file, old, new)
    result = project.doit("--continue", "compile")
    assert sorted(result.ran("compile")) == rebuilt


def test_an_undeclared_variable_is_refused_with_its_line(built: Project, tmp_path: Path) -> None:
    project = copied(built, tmp_path / "project")
    project.edit("kernels.yaml", 'environment: {FACTOR: "2"}\n', "")
    project.doit("compile").expect(
        r"kernels/scale\.py:20:29: the kernel depends on the environment variable FACTOR, which kernels\.yaml does not",
        r'remedy: add `environment: \{FACTOR: "\.\.\."\}`',
        r"0 built, 2 up to date, 2 failed",
        code=1,
    )
