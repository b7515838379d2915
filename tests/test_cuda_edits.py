"""Edits of CUDA C++ sources with the real nvcc: which of them rebuild an image, and which one."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from cuda_project import MANIFEST, create, image
from project import Project

SCALE = """\
#include "factor.cuh"
#include TABLE_FILE

template <typename T, int THREADS>
__global__ void scale(T *x, T factor, int n) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        x[i] *= factor * T(FACTOR);
    }
}

extern "C" __global__ void count(int *x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        x[i] = helper(i) * TABLE;
    }
}

__global__ void checked(int *x) {
    assert(*x > 0);
}
"""
FACTOR = """\
#pragma once
#include <assert.h>
#define TABLE_FILE "table.cuh"
#if __has_include("extra.cuh")
#include "extra.cuh"
#endif
#define FACTOR 2
__device__ inline int helper(int x) { return x + 1; }
"""
OTHERS = """\
  count:
    source: kernels/scale.cu
    function: count
    dtypes: [i32]
    name: count
    signature: "*i32"
    threads: 32
    grid: [1]
  checked:
    source: kernels/checked.cu
    function: checked
    dtypes: [i32]
    name: checked
    signature: "*i32"
    threads: 32
    grid: [1]
"""


@pytest.fixture(scope="module")
def _edits(tmp_path_factory: pytest.TempPathFactory) -> Project:
    kernel = SCALE[: SCALE.index("__global__ void checked")].replace("TABLE_FILE", '"table.cuh"')
    project = create(tmp_path_factory.mktemp("edits") / "scratch", kernel, MANIFEST + OTHERS)
    project.write("kernels/factor.cuh", FACTOR)
    project.write("kernels/table.cuh", "#define TABLE 3\n")
    project.write(
        "kernels/checked.cu",
        """\
        #include "factor.cuh"
        #define TABLE_FILE "table.cuh"
        #include TABLE_FILE
        __global__ void checked(int *x) {
            assert(*x > TABLE);
        }
        """,
    )
    project.doit("-n", "2", "compile").expect("3 built, 0 up to date, 0 failed")
    return project


@pytest.fixture
def edits(_edits: Project, tmp_path: Path) -> Project:
    """Three kernels in two files, built and fresh; a test may change them."""
    shutil.copytree(_edits.folder, tmp_path / "scratch", symlinks=True)
    return Project(folder=tmp_path / "scratch")


def stale(project: Project) -> set[str]:
    """The images that a build would make."""
    listed = project.doit("list", "--all", "-s", "-q").expect().output.splitlines()
    lines = [line.split() for line in listed]
    return {
        name.removeprefix("compile:").partition("@")[0] for state, name in lines if state == "R" and "@" in name
    } & {
        "scale_fp32_128",
        "count",
        "checked",
    }


HARMLESS = {
    "a comment": ("if (i < n) {", "if (i < n) {  // in bounds\n        /* and\n           more */"),
    "blanks": ("x[i] *= factor * T(FACTOR)", "x[ i ]*=factor\n            *T( FACTOR )"),
    "a brace": ("int n) {\n", "int n)\n{\n"),
    "blank lines": ("#include", "\n\n  #  include"),
    "a licence": ("#include", "// A licence.\n\n#include"),
    "no end of line": ("return x + 1; }\n", "return x+1; }"),
    "a body over lines": ("{ return x + 1; }", "\n{\n    return x + 1;\n}"),
    "an include that nobody reads": ("#define FACTOR 2", "#define FACTOR   2"),
}


def test_files_of_one_text_are_several_and_have_a_time_of_their_own(tmp_path: Path) -> None:
    """gcc takes them for one by text and time; and what the clock says must not be in an image."""
    kernel = (
        '#include "a/all.cuh"\n#include "b/all.cuh"\n__device__ const char changed[] = __TIMESTAMP__;\n'
        "template <typename T, int N>\n__global__ void scale(T *x, T f, int n) { x[n] = a(b(changed[n])); }\n"
    )
    project = create(tmp_path / "scratch", kernel)
    for name in "ab":
        project.write(f"kernels/{name}/all.cuh", '#pragma once\n#include "own.cuh"\n')
        project.write(f"kernels/{name}/own.cuh", f"__device__ inline int {name}(int x) {{ return x + 1; }}\n")
    project.doit("compile").expect("1 built, 0 up to date, 0 failed")
    made = image(project)
    time.sleep(1)
    project.doit("forget", "compile:scale_fp32_128@sm_80").expect()
    project.doit("compile").expect("1 built, 0 up to date, 0 failed")
    assert image(project) == made


def test_layout_and_comments_rebuild_nothing(edits: Project) -> None:
    """One after the other in files without `assert`, and lines that stay in the one with it."""
    for name, (old, new) in HARMLESS.items():
        for file in ("kernels/scale.cu", "kernels/factor.cuh"):
            if old in edits.read(file):
                edits.write(file, edits.read(file).replace(old, new, 1))
        assert stale(edits) == set(), name
    edits.edit("kernels/checked.cu", "assert(", "assert(  /* why */  ")
    edits.edit("kernels/checked.cu", "(int *x) {", "(int *x) {  // why")
    assert stale(edits) <= {"checked"}
    edits.doit("compile:scale_fp32_128", "compile:count").expect("0 built, 2 up to date")


def test_a_neighbour_rebuilds_nothing_and_what_it_needs_does(edits: Project) -> None:
    edits.edit("kernels/scale.cu", "x[i] *= factor", "x[i] += factor")
    assert stale(edits) == {"scale_fp32_128"}
    edits.edit("kernels/scale.cu", "x[i] += factor", "x[i] *= factor")
    edits.edit("kernels/scale.cu", "i < 4", "i < 5")
    assert stale(edits) == {"count"}
    edits.edit("kernels/scale.cu", "i < 5", "i < 4")
    assert stale(edits) == set()
    edits.edit("kernels/scale.cu", "(T *x, T factor, int n)", "(T *y, T factor, int n)")
    assert stale(edits) == {"scale_fp32_128", "count"}  # a declaration counts for all of its file


def test_lines_count_where_assert_tells_them(edits: Project) -> None:
    edits.edit("kernels/checked.cu", "__global__", "\n__global__")
    assert stale(edits) == {"checked"}


def test_headers_by_macro_and_headers_that_come_and_go(edits: Project) -> None:
    edits.edit("kernels/table.cuh", "3", "4")
    assert stale(edits) == {"scale_fp32_128", "count", "checked"}
    edits.edit("kernels/table.cuh", "4", "3")
    assert stale(edits) == set()
    edits.write("kernels/extra.cuh", "#define EXTRA 1\n")  # __has_include looks for it
    assert stale(edits) == {"scale_fp32_128", "count", "checked"}
    (edits.folder / "kernels/extra.cuh").unlink()
    assert stale(edits) == set()
    edits.write("table.cuh", "#define TABLE 3\n")  # found behind the one beside the file
    assert stale(edits) == {"scale_fp32_128", "count", "checked"}
    (edits.folder / "table.cuh").unlink()
    (edits.folder / "kernels/table.cuh").unlink()
    edits.doit("compile:count").expect(
        r"kernels/scale\.cu:2:1: table\.cuh: No such file or directory", "relative to the file", code=1
    )
