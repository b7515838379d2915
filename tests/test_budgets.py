"""Budgets through doit: images that really spill, what a breach says and stops, and what an edit of a budget reruns."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import cuda_project
from project import Project

SPILLING = """\
import triton
import triton.language as tl


@triton.jit
def spilling_kernel(output_ptr, input_ptr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.arange(0, BLOCK_SIZE)
    x = tl.load(input_ptr + offsets)
    total = x
    for _ in range(8):
        total = total * x + tl.sum(total, axis=0)
    tl.store(output_ptr + offsets, total)
"""
"""Each thread keeps 32 values of `x` and 32 of `total`, and has room for half of them."""

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, sm_90a, compute_80, gfx942]
budgets: {stack: 9000}
kernels:
  spilling:
    source: kernels/spilling.py
    function: spilling_kernel
    dtypes: [fp32]
    blocks: [4096]
    name: spilling_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}:16"
    options: {num_warps: 4, maxnreg: 32}
    grid: [1]
"""
VARIANT = "spilling_fp32_4096"
SPILLING_CUDA = """\
template <typename T, int THREADS>
__global__ void scale(T *x, T factor, int n) {
    T kept[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) {
        kept[i] = x[i * n + threadIdx.x];
    }
    T sum = factor;
#pragma unroll
    for (int i = 0; i < 96; ++i) {
        sum = sum * kept[95 - i] + kept[i];
    }
    x[threadIdx.x] = sum;
}
"""


@pytest.fixture(scope="module")
def _spilling(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("spilling") / "scratch", manifest=MANIFEST, spilling=SPILLING)
    project.doit().expect("0 failed")
    return project


@pytest.fixture
def spilling(_spilling: Project, tmp_path: Path) -> Project:
    """The project, built; a test may change it."""
    shutil.copytree(_spilling.folder, tmp_path / "scratch", symlinks=True)
    return Project(folder=tmp_path / "scratch")


def facts(project: Project, target: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.read(f"build/images/{target}/{VARIANT}.facts.json"))
    return found


def report(project: Project, target: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.read(f"build/reports/{target}/{VARIANT}.json"))
    return found


def test_spills_are_facts(spilling: Project) -> None:
    """A thread of NVIDIA's has 32 registers for 64 values; one of AMD's has enough, and a PTX does not say."""
    for target in ("sm_80", "sm_90a"):
        found = facts(spilling, target)
        assert 4 * 32 < found["spills"] < 2000
        assert found["registers"] == 32 and 0 < found["stack"] <= found["spills"]
    assert (facts(spilling, "gfx942")["spills"], facts(spilling, "compute_80")["spills"]) == (0, None)


def test_a_spilling_image_breaks_its_budget_and_is_not_packaged(spilling: Project) -> None:
    spilling.edit("kernels.yaml", "budgets: {stack: 9000}", "budgets: {spills: 0}")
    result = spilling.doit().expect(
        r"^    expected: at most 0 bytes a thread, by kernels\.yaml:4:19$",
        r"^    remedy: .* raise maxnreg where it is set, or raise the budget$",
        r"^not built, because what they need failed: (?=.*header:c)(?=.*crate)(?=.*record:sm_80)",
        code=1,
    )
    # Whichever failed first is shown, and stands for both.
    (shown,) = re.findall(rf"^FAILED validate:{VARIANT}@(sm_80|sm_90a)$", result.output, re.MULTILINE)
    result.expect(
        rf"^  {VARIANT}@{shown}: spills: the image uses more than its budget, budgets\.spills$",
        rf"^    actual: {facts(spilling, shown)['spills']} bytes a thread$",
        code=1,
    )
    assert result.counts["failed"] == 2
    assert not result.ran("compile") and not result.ran("header") and not result.ran("crate")
    assert set(result.ran("record")) <= {"compute_80", "gfx942"}
    # What was packaged before is not taken for what is declared now.
    assert spilling.doit("crate").expect(code=1).counts["failed"] == 2


def test_every_breach_of_an_image_is_told_at_once(spilling: Project) -> None:
    budgets = "    budgets: {spills: {sm_80: 100, gfx942: 0}, registers: 31, size: {sm_80: BLOCK_SIZE // 64}}\n"
    spilling.write("kernels.yaml", spilling.read("kernels.yaml") + budgets)
    result = spilling.doit(f"validate:{VARIANT}@sm_80").expect(code=1)
    block = result.output.partition("FAILED ")[2]
    assert "spilling_fp32_4096@sm_80: 3 checks failed" in block
    for line in (
        "registers: the image uses more than its budget, kernels.spilling.budgets.registers",
        "expected: at most 31 registers a thread, by kernels.yaml:15:59",
        "expected: at most 100 bytes a thread, by kernels.yaml:15:31",
        "expected: at most 64 bytes, by kernels.yaml:15:77",
        "actual: 32 registers a thread",
    ):
        assert line in block, block
    assert result.output.count("FAILED ") == 1


def test_an_edit_of_a_budget_reruns_validate_alone(spilling: Project) -> None:
    spilling.edit("kernels.yaml", "{stack: 9000}", "{stack: 9000, size: {sm_80: 900000}}")
    result = spilling.doit().expect("0 failed")
    assert (result.counts["built"], result.ran("validate")) == (1, [f"{VARIANT}@sm_80"])
    assert report(spilling, "sm_80")["used_and_budget"]["size"] == [facts(spilling, "sm_80")["size"], 900000]
    spilling.edit("kernels.yaml", "size: {sm_80: 900000}", "size: 900001")
    result = spilling.doit().expect("0 failed")
    assert (result.counts["built"], len(result.ran("validate"))) == (4, 4)
    # As well below the kernel, and where a comment moves it.
    spilling.edit("kernels.yaml", ", size: 900001}", "}  # none")
    spilling.write("kernels.yaml", f"# moved\n{spilling.read('kernels.yaml')}    budgets: {{size: 900001}}\n")
    assert spilling.doit().expect("0 failed").counts["built"] == 0
    assert spilling.doit("info", f"validate:{VARIANT}@sm_80").expect("up-to-date")


def test_what_is_not_known_is_in_the_report(spilling: Project) -> None:
    assert report(spilling, "compute_80")["used_and_budget"] == {"stack": [None, 9000]}
    assert report(spilling, "sm_80")["used_and_budget"] == {"stack": [facts(spilling, "sm_80")["stack"], 9000]}


def test_a_kernel_in_cuda_spills_too(tmp_path: Path) -> None:
    manifest = cuda_project.MANIFEST.replace("targets: [sm_80]", "targets: [sm_80, compute_80]")
    manifest += "    options: {maxnreg: 32}\n    budgets: {spills: 4}\n"
    project = cuda_project.create(tmp_path / "scratch", kernel=SPILLING_CUDA, manifest=manifest)
    project.doit("validate").expect(
        r"FAILED validate:scale_fp32_128@sm_80",
        r"expected: at most 4 bytes a thread, by kernels\.yaml:16:23",
        r"remedy: spread the work over more `threads`, raise maxnreg",
        code=1,
    )
    found = cuda_project.facts(project)
    assert found["spills"] >= 96 and found["registers"] <= 32
    assert cuda_project.facts(project, "scale_fp32_128@compute_80")["spills"] is None


def test_a_wrong_budget_stops_everything(spilling: Project) -> None:
    spilling.edit("kernels.yaml", "{stack: 9000}", "{stack: {compute_90: 0}}")
    spilling.doit().expect(
        r"kernels\.yaml:4:19: a budget for 'compute_90', which the library is not built for", "compute_80", code=3
    )
    spilling.edit("kernels.yaml", "{stack: {compute_90: 0}}", "{stack: {compute_80: 0}}")
    spilling.doit().expect(r"kernels\.yaml:4:31: the budget budgets\.stack\.compute_80 is held against nothing", code=3)
