"""The Triton kernels of the default library, run in Triton's interpreter: each computes what its reference does.

That is the source's own meaning, without a GPU; what the compilers make of it is tested by tests/gpu/run.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from gpu import gpu_plan
from kiln.manifest.loader import load
from project import REPOSITORY

MANIFEST = load(REPOSITORY / "kernels.yaml")

PROBLEMS = {
    "softmax": 1,
    "rms_norm": 1,
    "layer_norm": 2,
    "group_norm": 2,
    "matmul": 0,
    "matmul_large": 0,
    "matmul_cluster": 0,
    "matmul_any": 0,
    "matmul_fp8": 0,
    "matmul_persistent": 0,
    "attention": 3,
    "gather_rows": 0,
    "l2_normalize": 2,
}
"""kernel -> which of its problems: one that takes no time, with sizes that no block divides; programs run one after
another here, so that of l2_normalize, where they wait for each other, has but one"""


@pytest.fixture(scope="module")
def plan() -> list[dict[str, Any]]:
    """One launch of each variant but those in bf16, of which the interpreter multiplies the bits, not the numbers."""
    kernels = {kernel.key: kernel for kernel in MANIFEST.kernels if kernel.cuda is None}
    assert PROBLEMS.keys() == kernels.keys()
    launches = [
        {
            **launch,
            "module": kernels[launch["kernel"]].source_name.removesuffix(".py").replace("/", "."),
            "function": kernels[launch["kernel"]].function,
        }
        for launch in gpu_plan.make_plan(REPOSITORY)["launches"]
        if launch["kernel"] in kernels
        and launch["problem"] == kernels[launch["kernel"]].problems[PROBLEMS[launch["kernel"]]]
        and launch["dtype"] != "bf16"
    ]
    assert {launch["kernel"] for launch in launches} == kernels.keys()
    return launches


def interpret(launches: list[dict[str, Any]]) -> list[tuple[float, bool]]:
    paths = [str(REPOSITORY / "tools"), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tests/interpret_launches.py"],
        input=json.dumps(launches),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(error, is_whole) for error, is_whole in json.loads(done.stdout)]


def test_every_kernel_computes_its_reference(plan: list[dict[str, Any]]) -> None:
    found = interpret(plan)
    faults = {
        launch["variant"]: result
        for launch, result in zip(plan, found, strict=True)
        if not (result[0] <= launch["tolerance"] and result[1])
    }
    assert faults == {}


def test_another_grid_and_another_stride_are_found_out(plan: list[dict[str, Any]]) -> None:
    """It does compare: a launch that is short of a program, and one that is told a wrong stride, are not right."""
    short, askew = (
        json.loads(json.dumps(next(each for each in plan if each["kernel"] == name))) for name in ("matmul", "rms_norm")
    )
    short["grid"][0] -= 1
    (stride,) = (each for each in askew["arguments"] if each["name"] == "output_row_stride")
    stride["value"] -= 1
    (missing, _), (shifted, is_whole) = interpret([short, askew])
    assert missing == float("inf")
    assert shifted > 0.1
    assert not is_whole
