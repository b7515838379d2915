"""Other kernels of a file: their bodies are taken out where nothing can tell, and left where something might."""

from __future__ import annotations

import pytest

from kiln.closure.cuda_neighbours import without_other_kernels

OWN = "__global__ void own(int *x) { *x = 1; }\n"


@pytest.mark.parametrize(
    ("neighbour", "left"),
    [
        ("__global__ void other(int *x) { *x = 2; }", "__global__ void other(int *x) ;"),
        ('extern "C" __global__ void other()\n{\n  f("}");\n}', 'extern "C" __global__ void other()\n;\n\n'),
        (
            "template <int N> __global__ void __launch_bounds__(N) other(A<N> x) { if (x) { y(); } }",
            "template <int N> __global__ void __launch_bounds__(N) other(A<N> x) ;",
        ),
        (
            "__global__ void other(int *x) {\n#pragma unroll\n#if A\n  if (x) { y(); }\n#else\n  z();\n#endif\n}",
            "__global__ void other(int *x) ;" + 7 * "\n",
        ),
        ("namespace n { static __global__ void other() { f(); } }", "namespace n { static __global__ void other() ; }"),
        ('__global__ void other() { _Pragma("unroll 4") for (;;) { f(); } }', "__global__ void other() ;"),
        (
            "__global__ void __launch_bounds__(max(1, 2)) other() { f(); }",
            "__global__ void __launch_bounds__(max(1, 2)) other() ;",
        ),
    ],
)
def test_a_body_goes_and_lines_stay(neighbour: str, left: str) -> None:
    (text,) = without_other_kernels([f"{neighbour}\n{OWN}"], "own")
    assert text == f"{left}\n{OWN}"


@pytest.mark.parametrize(
    "neighbour",
    [
        "__global__ void other() { f(); }\ntemplate __global__ void other<int>();",
        "__global__ void other() { f(); }\nvoid launch() { other<<<1, 1>>>(); }",
        "__global__ void other() {\n#define A 1\n}",
        '__global__ void other() {\n#include "body.cuh"\n}',
        "__global__ void other() {\n#if A\n  if (x) {\n#else\n  {\n#endif\n}\n}",
        "__global__ void other() {\n#endif\n}\n#if A",
        "__global__ void other() { f(__COUNTER__); }",
        "#define NEXT __COUNTER__\n__global__ void other() { f(NEXT); }",
        "#define BEGIN if (x) {\n__global__ void other() { BEGIN f(); } }",
        "#define FOR(i) \\\n  for (;;) {\n__global__ void other() { FOR(i) f(); } }",
        "__global__ void other() {\n#pragma pack(1)\n  f(); }",
        '__global__ void other() { _Pragma("pack(push, 1)") f(); }',
        "template <int N> __global__ void own(A<N> x) requires (N > 1) { f(); }",
        "template <int N> __global__ void other(A<N> x) requires (N > 1) { f(); }",
        "__global__ void BOUNDS(256) other(int *x) { f(); }",
        "#define MAKE(name) __global__ void name() { f(); }\nMAKE(other)",
        "__global__ void other() { f();",
        "__global__ void own(float *x) { *x = 2; }",
        "__device__ void other() { f(); }",
    ],
)
def test_a_body_stays_where_something_might_need_it(neighbour: str) -> None:
    text = f"{neighbour}\n{OWN}"
    assert without_other_kernels([text], "own") == [text]


def test_a_name_counts_in_all_files_and_in_the_function() -> None:
    texts = ["__global__ void other() { f(); }\n", "typedef decltype(&other) type;\n" + OWN]
    assert without_other_kernels(texts, "own") == texts
    assert without_other_kernels([*texts[:1], OWN], "own<other>") == [texts[0], OWN]
    assert without_other_kernels([*texts[:1], OWN], "own") == ["__global__ void other() ;\n", OWN]
