"""Kernels in CUDA C++ with the names of their variants, and with line tables: `entry_names` and `debug`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cuda_project import KERNEL, MANIFEST, create, facts, image
from kiln.binaries.elf import SHF_EXECINSTR, open_elf
from kiln.binaries.lines import line_table
from project import Project

BOTH = MANIFEST.replace("[sm_80]", "[sm_80, compute_80]").replace(
    "kernels:\n", "entry_names: variant\ndebug: true\nkernels:\n", 1
)
# A file that is called as the kernel is, a helper that is inlined, and one in a header of the toolkit.
SOURCE = """\
#include <cuda_fp16.h>
#include "factor.cuh"

/* A comment
   of several lines. */
namespace {
__device__ float help(float x) { return __shfl_down_sync(0xffffffffu, x, 1) * 3.0f; }
}

template <typename T, int THREADS>
__global__ void scale(T *x, T factor, int n) {
    const int i = blockIdx.x * THREADS + threadIdx.x;   // the element
    if (i < n) {
        x[i] = help(x[i]) * factor * T(FACTOR);
    }
}
"""
# A second kernel of the same function, with neither.
WITHOUT = MANIFEST[MANIFEST.index("    source") :].replace("scale_{dtype}", "plain_{dtype}")
PLAIN = f"  plain:\n    targets: [sm_80]\n    entry_names: function\n    debug: false\n{WITHOUT}"
OWN, HEADER = "/<kiln>/kernels/scale.cu", "/<kiln>/kernels/factor.cuh"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = create(tmp_path_factory.mktemp("cuda") / "d\u00e9bug", SOURCE, BOTH)
    made.doit("compile", "archive:sources").expect()
    return made


@pytest.mark.parametrize(("target", "kind"), [("sm_80", "cubin"), ("compute_80", "ptx")])
def test_names_and_lines(project: Project, target: str, kind: str) -> None:
    name = f"scale_fp32_128@{target}"
    assert facts(project, name)["entry"] == "scale_fp32_128"
    lines = line_table(image(project, name, kind), "ptx" if kind == "ptx" else "cubin")
    assert {line for file, line in lines if file == OWN} - {0} == {7, 11, 12, 13, 14, 16}
    assert {file for file, _ in lines} == {OWN, "/<cuda>/sm_30_intrinsics.hpp"}


def test_the_code_is_that_of_an_image_without_lines(project: Project, tmp_path: Path) -> None:
    """And a build in another folder makes the same bytes, names of file-local functions among them."""
    other = create(tmp_path / "with a blank" / "and deeper", SOURCE, BOTH + PLAIN)
    names = ["scale_fp32_128@sm_80", "plain_fp32_128@sm_80"]
    other.doit(*(f"compile:{name}" for name in names)).expect()
    code = [
        [section.data for section in open_elf(image(other, name)).sections if section.flags & SHF_EXECINSTR]
        for name in names
    ]
    assert code[0] == code[1] != []
    assert facts(other, names[1])["entry"] == "_Z5scaleIfLi128EEvPT_S0_i"
    # A cubin with a line table holds the text of the PTX that it was made of.
    assert image(other, names[0]) == image(project, names[0])
    assert facts(other, names[0]) == facts(project, names[0])


def test_the_sources_go_with_the_package(project: Project) -> None:
    said = json.loads(project.read("build/share/scratch/source_map.json"))
    assert set(said["files"]) == {OWN, HEADER}


def test_a_comment_that_moves_lines_counts(project: Project) -> None:
    """Where it moves none, it does not: what is compiled has blanks in its place."""
    image_id = "scale_fp32_128@sm_80"
    project.edit("kernels/scale.cu", "// the element", "// each of them")
    assert project.doit(f"compile:{image_id}").expect().ran("compile") == []
    project.edit("kernels/scale.cu", "/* A comment\n", "/* A comment\n\n")
    assert project.doit(f"compile:{image_id}").expect().ran("compile") == [image_id]
    assert (OWN, 12) in line_table(image(project), "cubin")


def test_a_name_that_the_source_has_already(tmp_path: Path) -> None:
    source = f'extern "C" __device__ int scale_fp32_128;\n__device__ int scale_fp32_128 = 1;\n{KERNEL}'.replace(
        "FACTOR)", "FACTOR) * scale_fp32_128"
    )
    project = create(tmp_path / "taken", source, MANIFEST.replace("kernels:\n", "entry_names: variant\nkernels:\n", 1))
    project.doit("compile").expect("something else that is called scale_fp32_128, as the variant is", code=1)
