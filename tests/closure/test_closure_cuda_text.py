"""What is read off CUDA C++ as text: comments, includes, and the parameters of kernels."""

from __future__ import annotations

import pytest

from kiln.closure.cuda_text import includes, kernels_called, without_comments


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a // b\nc", "a\nc"),
        ("a /* b\n c */ d", "a\n      d"),
        ('a "//" b // c', 'a "//" b'),
        ("a '\"' // b", "a '\"'"),
        ('a R"x(/* )" */)x" b', 'a R"x(/* )" */)x" b'),
        ("a // b \\\n still\nc", "a\n\nc"),
        ("a // b \\  \n still\nc", "a\n\nc"),
        ("a // b \\ d\nc", "a\nc"),
        ("a /* b *\\\n/ c", "a\n  c"),
        ("a /* never closed", "a /* never closed"),
        ("#error don't // b /*\nc /* */ d", "#error don't // b /*\nc       d"),
        ('#if 0\na 5" disk, src/*.cu\n#endif // c', '#if 0\na 5" disk, src/*.cu\n#endif'),
        ('"a\\  \n// b" // c', '"a\\  \n// b"'),
        ('BAR"(" // c )"', 'BAR"("'),
        ('"\\"" // b', '"\\""'),
        ("1'000 + 2'000 // b", "1'000 + 2'000"),
        ("1'0; /* it's */ b", "1'0;            b"),
        ('R"(a  \n b)" // c', 'R"(a  \n b)"'),
        ("#define A /* b\n c */ 1 /* d\n e */ 2\nf", "#define A    \\\n      1    \\\n      2\nf"),
        ("#define A 1 // b \\\n c\nd", "#define A 1      \\\n\nd"),
    ],
)
def test_comments_are_blanked_in_place(text: str, code: str) -> None:
    assert without_comments(text) == code


def test_includes() -> None:
    text = """\
#include "a.cuh"
  #  include <b/c.h>  // why
// #include "no.h"
/*
#include "no2.h"
*/
const char *text = "#include <no3.h>";
#if __has_include("d.h") && __has_include( <e.h> )
#include MACRO
#include ELSEWHERE
#define MACRO "m.h"
#define DATA "n.h"
#include \\
 "f.h"
#endif
"""
    found = [(include.path, include.is_quoted, include.line) for include in includes(text)]
    assert found == [
        ("a.cuh", True, 1),
        ("b/c.h", False, 2),
        ("d.h", True, 8),
        ("e.h", False, 8),
        ("m.h", True, 11),
        ("f.h", True, 13),
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("__global__ void k() {}", ()),
        ("__global__ void k(void) {}", ()),
        ("__global__ void k(float *x, int n) {}", ("x", "n")),
        ("void __global__ k(const float* __restrict__ x,\n unsigned long long n) {}", ("x", "n")),
        ('extern "C" __global__ __launch_bounds__(256, 2) void k(float *x) {}', ("x",)),
        ("template <typename T, int N = f<3>()> __global__ void k(Pair<T, N> *x, T y = T(1, 2)) {}", ("x", "y")),
        ("template <> __global__ void k<float>(float *x) {}", ("x",)),
        ("__global__ void k(float (&x)[3], int n) {}", (None, "n")),
        ("__global__ void k(int n[], const __grid_constant__ int m) {}", ("n", "m")),
        ("__global__ void k(float *, unsigned, const size_t, ns::T) {}", (None, None, None, None)),
        ("template <class... A> __global__ void k(A... all) {}", (None,)),
    ],
)
def test_parameters_of_a_kernel(text: str, names: tuple[str | None, ...]) -> None:
    (kernel,) = kernels_called(text, "k")
    assert kernel.is_definition
    assert kernel.names == names


def test_kernels_that_only_look_alike() -> None:
    text = """\
__device__ void k(int no) {}
__global__ void other(int no) { k(no); }
// __global__ void k(int no) {}
__global__ void k(int);
__global__ void kk(int no) {}

__global__ void k(int yes) {}
"""
    assert [(kernel.line, kernel.is_definition, kernel.names) for kernel in kernels_called(text, "k")] == [
        (4, False, (None,)),
        (7, True, ("yes",)),
    ]


def test_template_and_namespace_of_a_kernel() -> None:
    text = """\
namespace before { int a; }
namespace a::b { namespace { namespace c {
template <typename T,
          int N = f<3>()>
__global__ void k(T *x) {}
}}}
"""
    (kernel,) = kernels_called(text, "k")
    assert (kernel.template, kernel.scope) == ("template <typename T, int N = f<3>()>", "a::b::c::")
    (kernel,) = kernels_called("template <class T> struct S {};\n__global__ void k() {}", "k")
    assert (kernel.template, kernel.scope) == ("", "")
