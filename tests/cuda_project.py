"""A scratch project with one kernel in CUDA C++, and what the tests of such kernels ask of a build. See project.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kiln.toolchain.nvcc import find_nvcc
from project import Project

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80]
kernels:
  scale:
    source: kernels/scale.cu
    function: scale<{T}, {block}>
    dtypes: [fp32]
    blocks: [128]
    name: scale_{dtype}_{block}
    group: scale_{dtype}
    signature: "*{dtype}, {dtype}, i32"
    threads: block
    grid: ["cdiv(n, BLOCK_SIZE)"]
"""

KERNEL = """\
#include "factor.cuh"

template <typename T, int THREADS>
__global__ void scale(T *x, T factor, int n) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        x[i] *= factor * T(FACTOR);
    }
}
"""

IMAGE = "scale_fp32_128@sm_80"


def create(folder: Path, kernel: str = KERNEL, manifest: str = MANIFEST) -> Project:
    """The project in a new folder, with kernels/factor.cuh beside the kernel."""
    project = Project.create(folder, manifest=manifest)
    (project.folder / "kernels/scale.py").unlink()
    project.write("kernels/scale.cu", kernel)
    project.write("kernels/factor.cuh", "#define FACTOR 2\n")
    return project


def image(project: Project, image_id: str = IMAGE, suffix: str = "cubin") -> bytes:
    """The bytes of an image that was built."""
    variant, _, target = image_id.partition("@")
    return (project.folder / f"build/images/{target}/{variant}.{suffix}").read_bytes()


def facts(project: Project, image_id: str = IMAGE) -> dict[str, Any]:
    """The facts of an image that was built."""
    variant, _, target = image_id.partition("@")
    found: dict[str, Any] = json.loads(project.read(f"build/images/{target}/{variant}.facts.json"))
    return found


def fake(folder: Path, script: str) -> str:
    """A toolkit that is the real one but for nvcc, which runs the script; REAL in it is the real nvcc."""
    nvcc = find_nvcc()
    (folder / "bin").mkdir(parents=True)
    for path in nvcc.nvcc.parent.iterdir():
        (folder / "bin" / path.name).symlink_to(path)
    for name in ("nvvm", "include"):
        (folder / name).symlink_to(nvcc.toolkit / name)
    (folder / "bin/nvcc").unlink()
    (folder / "bin/nvcc").write_text(f"#!/bin/bash\nREAL={nvcc.nvcc}\nfor last; do :; done\n{script}\n")
    (folder / "bin/nvcc").chmod(0o755)
    return str(folder)
