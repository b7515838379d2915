"""`blocks: autotune` and `function_table`, from kernels.yaml to built images, through doit."""

from __future__ import annotations

from pathlib import Path

import pytest

from project import Project

TUNED = """\
import torch
import triton
import triton.language as tl


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


def configs():
    found = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (128, 256) for warps in (2, 4)]
    return found + [triton.Config({"BLOCK": 512, "waves_per_eu": 2})] if is_hip() else found


@triton.autotune(configs=configs(), key=["n"])
@triton.jit
def scale_kernel(out_ptr, in_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(in_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2, mask=offsets < n)


def get_function_table():
    table = []
    for dtype in ("fp32", "fp16"):
        for block in (64, 1024):
            kwargs = {"num_warps": 1 if block == 64 else 4, "constants": {"BLOCK": block}}
            sig = f"*{dtype}:16, *{dtype}:16, i32"
            row = {"name": f"ScaleTriton_{dtype}_{block}", "group": f"ScaleTriton_{dtype}", "func": scale_kernel}
            table.append({**row, "sig": sig, "kwargs": kwargs})
    return table
"""

MANIFEST = """\
version: 1
library: scratch
targets: [sm_90a, gfx942]
kernels:
  tuned:
    source: kernels/k.py
    function: scale_kernel
    dtypes: [fp16]
    blocks: autotune
    name: tuned_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n, BLOCK)"]
  listed:
    function_table: kernels/k.py
    grid: ["cdiv(n, BLOCK)"]
    select: n >= BLOCK
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.create(tmp_path, manifest=MANIFEST, k=TUNED)


def test_both_are_built_and_an_appended_configuration_builds_its_own_images_alone(project: Project) -> None:
    project.doit().expect("0 failed")
    images = {name for name in project.files() if name.startswith("images/") and not name.endswith(".json")}
    blocks = ("128_w2s3", "128_w4s3", "256_w2s3", "256_w4s3")
    rows = ("fp32_64", "fp32_1024", "fp16_64", "fp16_1024")
    assert images == {
        *(f"images/sm_90a/tuned_fp16_{block}.cubin" for block in blocks),
        *(f"images/gfx942/tuned_fp16_{block}.hsaco" for block in (*blocks, "512_w4s3e2")),
        *(f"images/sm_90a/ScaleTriton_{row}.cubin" for row in rows),
        *(f"images/gfx942/ScaleTriton_{row}.hsaco" for row in rows),
    }
    header = project.read("build/include/scratch/scratch.h")
    assert "ScaleTriton_fp16" in header and "tuned_fp16_128_w2s3" in header

    project.doit().expect("^0 built")
    project.edit("kernels/k.py", "(128, 256)", "(128, 256, 64)")
    ran = project.doit()
    assert sorted(ran.expect("0 failed").ran("compile")) == [
        f"tuned_fp16_64_w{warps}s3@{target}" for warps in (2, 4) for target in ("gfx942", "sm_90a")
    ]


def test_what_cannot_be_told_stops_before_anything_is_built(project: Project) -> None:
    project.edit("kernels/k.py", "in (128, 256)", "in torch.blocks()")
    project.doit().expect(r"kernels/k\.py:11:\d+: the configurations of scale_kernel cannot be told", code=3)
    assert project.files() == set()
    project.edit("kernels/k.py", "in torch.blocks()", "in (128, 256)")
    project.edit("kernels/k.py", '"constants": {"BLOCK": block}', '"constants": {"BLOK": block}')
    project.doit().expect(r"kernels/k\.py:29:19: row 1 of get_function_table\(\) sets BLOK", "'BLOCK'", code=3)
    project.edit("kernels.yaml", "blocks: autotune", "blocks: autotuned")
    project.doit().expect(r"kernels\.yaml:9:13: wrong value for", "did you mean 'autotune'", code=3)
