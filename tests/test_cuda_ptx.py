"""The PTX ISA of kernels in CUDA C++: the declared one, or a refusal that says which one is needed."""

from __future__ import annotations

import re
from pathlib import Path

from cuda_project import MANIFEST, create, facts, image

KERNEL = """\
template <typename T, int THREADS>
__global__ void scale(T *x, T factor, int n) {
    x[n] = __shfl_down_sync(~0u, x[0], 1);
#if __CUDA_ARCH__ == 900
    atomicAdd(reinterpret_cast<float2 *>(x), make_float2(factor, factor));
#endif
}
"""


def test_ptx_is_in_the_isa_that_is_declared(tmp_path: Path) -> None:
    """8.0 below compute_90, what nvcc writes from there on, and what `ptx_version` says, checked with ptxas."""
    project = create(tmp_path / "scratch", KERNEL, MANIFEST.replace("[sm_80]", "[compute_80, compute_90]"))
    project.doit("-n", "2", "compile").expect("2 built, 0 up to date, 0 failed")
    assert facts(project, "scale_fp32_128@compute_80")["ptx_isa"] == "8.0"
    own = facts(project, "scale_fp32_128@compute_90")["ptx_isa"]
    assert tuple(map(int, own.split("."))) >= (9, 0)
    before = image(project, "scale_fp32_128@compute_80", "ptx")
    project.edit("kernels.yaml", "threads: block", "threads: block\n    options: {ptx_version: 78}")
    project.doit("--continue", "-n", "2", "compile").expect(
        "1 built, 0 up to date, 1 failed",
        r"^  kernels\.yaml:7:5: the kernel needs a newer PTX than ISA 7\.8, for CUDA 11\.8 \(driver 520\) and later$",
        r"expected: a PTX of ISA 7\.8, .*, by `ptx_version`",
        r"actual: ptxas: .*requires PTX ISA \.version 8\.1 or later",
        "remedy: set the option ptx_version to 81; older drivers then refuse it",
        code=1,
    )
    assert image(project, "scale_fp32_128@compute_80", "ptx") == before.replace(b".version 8.0", b".version 7.8")
    project.edit("kernels.yaml", "ptx_version: 78", "ptx_version: 94")
    project.doit("compile:scale_fp32_128@compute_80").expect(
        r"kernels\.yaml:7:5: nvcc cannot write a PTX of ISA 9\.4, for CUDA 13\.4 and later",
        rf"it writes ISA {re.escape(own)}",
        code=1,
    )
