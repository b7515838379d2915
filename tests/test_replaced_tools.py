"""Parts of a compiler that are replaced by others of the same size, age and version: their content decides.

The real Triton, of which one file is another one. The same for ptxas is in test_ptxas.py, for nvcc's parts in
toolchain/test_toolchain_nvcc.py.
"""

from __future__ import annotations

import os
from pathlib import Path

from other_tritons import linked_triton, python_with
from project import KERNEL, MANIFEST, Project

LIBDEVICE = "backends/nvidia/lib/libdevice.10.bc"
AMD = ("backends/amd/lib/ocml.bc", "backends/amd/lib/ockl.bc")
NVIDIA_TARGETS = ("sm_80", "compute_80")
"""an image and a PTX: libdevice is linked before ptxas"""


def replace(path: Path) -> None:
    """Put another file in the place of LLVM bitcode: a byte behind the last block, of which LLVM takes no notice."""
    data, found = path.read_bytes(), path.stat()
    assert data[-1] == 0
    new = path.with_name("new")
    new.write_bytes(data[:-1] + b"\1")
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
    new.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (found.st_size, found.st_mtime_ns)


def test_other_libraries_of_the_same_size_compile_what_they_are_linked_with(tmp_path: Path) -> None:
    """All images of the vendor: which of them call the library, LLVM knows when it has compiled them. What comes out is
    the same here, so nothing that stands after a compile runs.
    """
    triton = linked_triton(tmp_path, {LIBDEVICE, *AMD})
    declared = MANIFEST.partition("kernels:\n")[2].replace("[128, 256]", "[128]")
    manifest = "version: 1\nlibrary: scratch\ntargets: [sm_80, compute_80, gfx942]\nkernels:\n" + declared
    rooted = KERNEL.replace("scale_kernel", "rooted_kernel").replace("x * 2", "libdevice.tan(x)")
    rooted = rooted.replace("import triton\n", "import triton\nfrom triton.language.extra import libdevice\n", 1)
    made = Project.create(
        tmp_path / "scratch", manifest=manifest + declared.replace("scale", "rooted"), scale=KERNEL, rooted=rooted
    )
    project = Project(folder=made.folder, python=python_with(triton.parent, tmp_path / "venv"))
    project.doit("compile", "validate").expect("^12 built")
    project.doit("compile", "validate").expect("^0 built, 12 up to date")
    for names, targets in (((LIBDEVICE,), NVIDIA_TARGETS), (AMD, ("gfx942",))):
        for name in names:
            replace(triton / name)
        result = project.doit("compile", "validate").expect()
        images = {f"{kernel}_fp32_128@{target}" for kernel in ("scale", "rooted") for target in targets}
        assert set(result.ran("compile")) == images, names
        assert result.counts["built"] == len(images), names
