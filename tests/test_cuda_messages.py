"""What people read when a kernel in CUDA C++ is not what kernels.yaml says: the real nvcc's answers, put right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cuda_project import MANIFEST, create
from project import Project, Result

KERNELS = """\
// A comment in front.
#include "deep.cuh"

namespace ns {
template <typename T>
__global__ void inner(T *x) { *x = 1; }
}

/* One that
   takes lines. */
template <typename T, int N>
__global__ void scale(T *x, T f, int n) {
    if (threadIdx.x < n)  /* in bounds */
        x[N] = f;
}

template <typename T> __global__ void twice(T *x) { *x = 1; }
template <typename T> __global__ void twice(T **x) { *x = 0; }
struct Pair { int a, b; };
__global__ void pair(Pair p, int *x) { *x = p.a; }
struct Big { int a[1500]; };
__global__ void big(Big b, int *x) { *x = b.a[0]; }
__global__ void __launch_bounds__(64) bounded(int *x) { *x = 1; }
__global__ void dynamic(int *x) {
    extern __shared__ int cache[];
    cache[threadIdx.x] = 1;
    __syncthreads();
    *x = cache[0];
}
__global__ void leak(char *x) { *x = "/home/someone/of/this/machine"[threadIdx.x]; }
__global__ void plain(int *x) { *x = 1; }
__global__ void wrong(int *x) {
    // A comment.
    *x = 1
        + undefined_name;
}
template <typename T> __global__ void calls(T *x) { deeper(x); }
__global__ void hidden(int *x) { MACRO(x); }
__global__ void large(int *x) { __shared__ int cache[16384]; cache[threadIdx.x] = *x; __syncthreads(); *x = cache[*x]; }
"""
DEEP = """\
// A comment.

template <typename T>
__device__ void deeper(T *x) {
    /* Why. */  x->member = 1;
}
#define MACRO(x) \\
    *x = \\
    also_undefined
"""

Case = tuple[str, str, str]
CASES: dict[str, Case] = {
    "no_scope": ("inner<float>", "*fp32", r"""
  kernels\.yaml:\d+:\d+: there is no inner where `function` looks for it
    expected: an instance of `template <typename T> ns::inner`, at kernels/scale\.cu:6:1
    actual: inner<float>; nvcc says: identifier "inner" is undefined
    remedy: write ns::inner<float>
"""),
    "other_scope": ("sn::inner<float>", "*fp32", r"""
  kernels\.yaml:\d+:\d+: there is no sn::inner where `function` looks for it
    expected: .*
    actual: .*
    remedy: write ns::inner<float>
"""),
    "no_type": ("ns::inner<floot>", "*fp32", r"""
  kernels\.yaml:\d+:\d+: ns::inner<floot> is no instance of the kernel
    expected: an instance of `template <typename T> ns::inner`, at kernels/scale\.cu:6:1
    actual: ns::inner<floot>; nvcc says: identifier "floot" is undefined
    remedy: correct the template arguments in `function`
"""),
    "no_dtype": ("ns::inner<fp32>", "*fp32", r"""
    actual: ns::inner<fp32>; nvcc says: identifier "fp32" is undefined
    remedy: write {T} in `function` for the dtype's type in C\+\+: for fp32 it is float
"""),
    "too_few": ("scale<float>", "*fp32, fp32, i32", r"""
  kernels\.yaml:\d+:\d+: scale<float> is no instance of the kernel
    expected: an instance of `template <typename T, int N> scale`, at kernels/scale\.cu:12:1
    actual: scale<float>; nvcc says: cannot determine .*
    remedy: correct the template arguments in `function`
"""),
    "none": ("scale", "*fp32, fp32, i32", r"""
  kernels\.yaml:\d+:\d+: scale is no instance of the kernel
    expected: .*
    actual: .*
    remedy: add the template arguments to `function`, as in `scale<...>`
"""),
    "few_items": ("pair", "*i32", r"""
    expected: 2 items, for the parameters of pair at kernels/scale\.cu:20:1
    actual: 1 items: p: \*i32, x: \(no item\)
    remedy: add the missing types
"""),
    "many_items": ("plain", "*i32, i32", r"""
    actual: 2 items: x: \*i32, \(no parameter\): i32
    remedy: remove the surplus types
"""),
    "static_shared": ("large", "*i32", r"""
  kernels/scale\.cu:39:1: large has too much static shared memory
    expected: at most 49152 bytes on sm_80
    actual: 65536 bytes
    remedy: make an array of it `extern __shared__`, and give its bytes as `shared` in kernels\.yaml
"""),
    "too_many": ("scale<float, 2, 3>", "*fp32, fp32, i32", r"scale<float, 2, 3> is no instance of the kernel"),
    "other_kind": ("scale<float, float>", "*fp32, fp32, i32", r"scale<float, float> is no instance of the kernel"),
    "no_template": ("plain<float>", "*i32", r"""
  kernels\.yaml:\d+:\d+: plain<float> is no kernel
    expected: the kernel plain, without template arguments, at kernels/scale\.cu:31:1
    actual: plain<float>; nvcc says: .*
    remedy: correct `function`
"""),
    "overloads": ("twice<float>", "*fp32", r"""
  kernels\.yaml:\d+:\d+: twice<float> is the name of several kernels, and `function` cannot tell them apart
    expected: one `template <typename T> twice`, at kernels/scale\.cu:17:1
    actual: .*
    remedy: give each of them a name of its own
"""),
    "a_struct": ("pair", "i64, *i32", r"""
  kernels\.yaml:\d+:\d+: argument 1, 'Pair p', is i64 in the signature
    remedy: compare .* pair at kernels/scale\.cu:20:1; pass a struct by pointer, or its members one by one
"""),
    "large_struct": ("big", "i32, *i32", r"kernels\.yaml:\d+:\d+: argument 1, 'Big b', is i32 in the signature"),
    "bounds": ("bounded", "*i32", r"""
  kernels/scale\.cu:23:1: bounded takes fewer threads than `threads` says in kernels\.yaml
    expected: at most 64 threads a block, by its __launch_bounds__
    actual: 128 in bounds@sm_80
    remedy: set `threads` to 64 or less, or raise the bound in the source
"""),
    "shared": ("dynamic", "*i32", r"""
  kernels/scale\.cu:24:1: dynamic uses dynamic shared memory, and kernels\.yaml does not say how much
    expected: `shared`, the bytes of a block, for a kernel with an `extern __shared__` array
    actual: a kernel without it, which is launched with none
    remedy: add `shared:` to the kernel, such as `shared: block \* 4`
"""),
    "path": (
        "leak",
        "*i8",
        r"""
  path@sm_80: paths: the image holds paths of the machine that built it
    expected: none
    actual: /home/someone/of/this/machine
""",
    ),
    "source": ("wrong", "*i32", r"""
  kernels/scale\.cu:35:11: identifier "undefined_name" is undefined
      \+ undefined_name;
        \^
"""),
    "header": ("calls<int>", "*i32", r"""
  kernels/deep\.cuh:5:17: expression must have pointer-to-class type but it has type "int \*"
      x->member = 1;
      \^
"""),
    "in_macro": ("hidden", "*i32", r"""
  kernels/scale\.cu:38:34: identifier "also_undefined" is undefined
"""),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Result]:
    """A project in which each kernel is wrong in its own way, and what a build says."""
    manifest = "version: 1\nlibrary: scratch\ntargets: [sm_80]\nkernels:\n"
    for key, (function, signature, _) in CASES.items():
        manifest += f"""\
  {key}:
    source: kernels/scale.cu
    function: "{function}"
    dtypes: [fp32]
    name: {key}
    signature: "{signature}"
    threads: 128
    grid: [1]
"""
    project = create(tmp_path_factory.mktemp("messages") / "scratch", KERNELS, manifest)
    project.write("kernels/deep.cuh", DEEP)
    return project, project.doit("--continue", "-n", "2", "compile").expect(f" {len(CASES)} failed", code=1)


@pytest.mark.parametrize("key", CASES)
def test_each_is_told_in_words_of_the_project(made: tuple[Project, Result], key: str) -> None:
    found = re.search(rf"^FAILED compile:{key}@sm_80\n(.*?)  declared:", made[1].output, re.MULTILINE | re.DOTALL)
    assert found is not None
    print(found[1])
    assert re.search(CASES[key][2].lstrip("\n"), found[1])
    assert not re.search("unit.cu|kiln_|/tmp", found[1])


def test_the_log_has_the_authors_lines(made: tuple[Project, Result]) -> None:
    log = made[0].read("build/.kiln/logs/compile/header@sm_80.log")
    print(log)
    assert "kernels/deep.cuh(5): error: expression must" in log
    assert "  /* Why. */" not in log and "\n  x->member = 1;\n  ^\n" in log
    assert re.search(r"instantiation of \"void deeper\(T \*\).* at line 37 of ", log)


def test_a_preprocessors_error_in_a_header(tmp_path: Path) -> None:
    """gcc quotes lines in its own way; a header of nobody is told with what to do."""
    manifest = "version: 1\nlibrary: scratch\ntargets: [sm_80]\nkernels:\n"
    manifest += (
        '  k:\n    source: kernels/scale.cu\n    function: k\n    dtypes: [fp32]\n    name: k\n    signature: ""\n'
    )
    manifest += "    threads: 32\n    grid: [1]\n"
    project = create(tmp_path / "scratch", '/* A\n comment. */ int x;\n#include "deep.cuh"\n', manifest)
    project.edit("kernels/scale.cu", "int x;", "__global__ void k() {\n}")
    project.write("kernels/deep.cuh", "// A comment.\n\n\n#include <nobody.h>\n")
    project.doit("compile").expect(
        r"^  kernels/deep\.cuh:4:1: nobody\.h: No such file or directory", "remedy: name it relative to", code=1
    )
    log = project.read("build/.kiln/logs/compile/k@sm_80.log")
    print(log)
    assert "In file included from kernels/scale.cu:4,\n" in log and "\nkernels/deep.cuh:4:10: fatal error" in log
    assert re.search(r"^ +4 \| #include <nobody.h>$", log, re.MULTILINE)


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        (
            "__block_size__((16, 8, 1))",
            r"""
  kernels/scale\.cu:2:1: scale demands a block of several dimensions, and Kiln describes launches in x alone
    expected: a block of 128 x 1 x 1 threads
    actual: 16 x 8 x 1, by its __block_size__
""",
        ),
        (
            "__launch_bounds__(128, 1, 4)",
            r"""
  kernels/scale\.cu:2:1: scale takes smaller clusters than num_ctas says in kernels\.yaml
    expected: at most 4 blocks a cluster, by its __launch_bounds__
    actual: num_ctas: 8
""",
        ),
    ],
)
def test_a_launch_that_the_driver_would_refuse(tmp_path: Path, attribute: str, words: str) -> None:
    kernel = f"template <typename T, int N>\n__global__ void {attribute} scale(T *x, T f, int n) {{ x[n] = f; }}\n"
    manifest = MANIFEST.replace("[sm_80]", "[sm_90a]").replace(
        "threads: block", "threads: block\n    options: {num_ctas: 8}"
    )
    create(tmp_path / "scratch", kernel, manifest).doit("compile").expect(words, code=1)
