"""What is compiled of CUDA C++: one text for all layouts, the way back, and layout kept where it has a meaning."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kiln.closure.cuda_layout import CompiledText, Place, compiled_texts
from kiln.closure.cuda_text import with_plain_line_ends, without_comments

KERNEL = """\
#include "a.cuh"
#define TWICE(x) ((x) + \\
                  (x))

template <typename T>
__global__ void scale(T *x, const T factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 0x1p-3 + 1'000; ++k)
        if (i<n && x->*f >= 1.5e-3f) x[i] <<= TWICE(factor) >> -1;
    launch<<<1, 2>>>("a  b", R"(c  // d
   e)", 'f', L"g", Map<Set<int>>(), ::n::m);
}
"""

RELAID = """\
/* A licence
   over lines. */
#  include   "a.cuh"   // why
#define TWICE(x) ((x)   +   (x))   /* twice */

template<typename T>
__global__ void
scale(
    T* x, const T factor,
    int n  // how many
)
{
    const int i=blockIdx . x*blockDim.x+threadIdx.x ;
    #pragma   unroll
    for (int k=0;k<0x1p-3+1'000;++k) if (i < n&&x ->* f>=1.5e-3f)
        x[ i ]<<=TWICE( factor )>>-1; launch <<< 1,2 >>> ( "a  b",R"(c  // d
   e)",'f' ,L"g", \\
   Map<Set<int>>( ),::n::m);
}


"""


def compiled(*texts: str) -> list[CompiledText]:
    return compiled_texts(without_comments(with_plain_line_ends(text)) for text in texts)


def test_comments_and_layout_make_no_other_text() -> None:
    (one,), (other,) = compiled(KERNEL), compiled(RELAID)
    assert not one.keeps_layout
    assert one.data == other.data
    lines = one.data.decode().split("\n")
    assert "0x1p-3" in lines and "1'000" in lines and "<<<" in lines and "->*" in lines and ">>" in lines
    assert '"a  b"' in lines and "#define TWICE(x) ((x) + (x))" in lines and b'R"(c  // d\n   e)"' in one.data


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n)", "m)"),
        ("a  b", "a b"),
        ("c  // d", "c // d"),
        ("TWICE(x) (", "TWICE (x) ("),
        ("<<=", "< <="),
        ("'f'", "'g'"),
        ("x[i]", "x[0]"),
        ("#pragma unroll\n", ""),
        ("int n", "intn"),
        ("a.cuh", "b.cuh"),
    ],
)
def test_what_a_compiler_sees_counts(old: str, new: str) -> None:
    assert old in KERNEL
    (one,), (other,) = compiled(KERNEL), compiled(KERNEL.replace(old, new, 1))
    assert one.data != other.data


@pytest.mark.parametrize("text", [KERNEL, RELAID])
def test_each_line_is_a_place_of_the_author(text: str) -> None:
    (file,) = compiled(text)
    lines = without_comments(text).split("\n")
    places = []
    for number, line in enumerate(file.data.decode().split("\n")[:-1], 1):
        place = file.place(number)
        assert place.column is not None
        assert lines[place.line - 1][place.column - 1] == line[0], (number, line, place)
        places.append((place.line, place.column))
    assert places == sorted(places)
    assert file.place(10_000) == Place(line=lines.index("}") + 1, column=1)


SHOWING = [
    "f(__LINE__);",
    "assert(x  <  y);",
    "MY_ASSERT(x);",
    "int a = __builtin_LINE();",
    "#line 7",
    '# 7 "other.cu"',
    "#define NAME(x) #x\nNAME(a+b);",
    "#define A(x) B(x)\n#define B(x) c(x, __LINE__)\nA(1);",
    "int a<::>;",
    "??=define A",
    "int a\\\nb;",
    "int \\u00e9;",
    "#define LOG(l) LOG_##l(f)\n#define LOG_INFO(f) f(__LINE__)\nLOG(INFO);",
    "#define A(x) __##x ## __\nA(LINE);",
    "#define CALL(a, b) a##b\n#define CHECK(x) c(x, __LINE__)\nCALL(CHE, CK)(1);",
    "#define W(a, b) a###b\nW(L, x+y);",
    'if (c == \'"\') f(__LINE__, "x");',
    "/* never closed",
]


@pytest.mark.parametrize("text", SHOWING)
def test_layout_is_kept_where_it_can_be_seen(text: str) -> None:
    (file,) = compiled(f"int   first;\n\n  {text}\n")
    assert file.keeps_layout
    assert file.data.decode() == f"int first;\n\n{text}\n".replace("  ", " ")
    assert file.place(3) == Place(line=3, column=None)


def test_columns_stay_where_they_can_be_seen() -> None:
    text = "#define HERE   std::source_location::current()\n"
    header, user = compiled(text, "int   a;\n  f(  HERE);\n")
    assert (header.keeps_layout, user.keeps_layout) == (False, True)
    assert user.data == b"int   a;\n  f(  HERE);\n"


HIDING = [
    'static_assert(N == 4, "");',
    "#define CHECK(x) c(x, __LINE__)",
    "#define NAME(x) #x",
    "#define PASTE(a, b) a##b\nint PASTE(x, y);",
    'f("__LINE__ assert");',
    "#error it's",
    "#include <assert.h>",
    "a<::n::m> b;",
    "#define A(...) f(0, ##__VA_ARGS__)\n#define CHECK(x) c(x, __LINE__)\nA(1);",
    "#define A(x) name_##x\n#define CHECK(x) c(x, __LINE__)\nA(CHECK_1);",
]


@pytest.mark.parametrize("text", HIDING)
def test_layout_is_not_kept_for_what_only_looks_so(text: str) -> None:
    (file,) = compiled(text)
    assert not file.keeps_layout


def test_a_macro_counts_in_the_files_that_use_it() -> None:
    header, user, other = compiled("#define CHECK(x) c(x, __LINE__)\n", "CHECK(1);", "f();")
    assert (header.keeps_layout, user.keeps_layout, other.keeps_layout) == (False, True, False)


ODD = [
    KERNEL,
    "int a; // b \\ \nint c;\nint d = TWICE;\n",
    'int a; // b \\\r\nint c;\r\nconst char *d = "e\\\r\nf", *g = R"(h\r\ni)";\r\n',
    "int a;\r#define A 3\rint b = A;\r",
    "#if 0\ndon't read src/*.cu, 5\" disks/*\n#endif\nint a;\n/* */\nint b;\n",
    "auto a = f(1'000, \"it's    b\", __LINE__);\n",
    'auto a = BAR"("; // )"\nint b;\n',
]


@pytest.mark.parametrize("text", ODD)
def test_gcc_reads_the_same_tokens(tmp_path: Path, text: str) -> None:
    """Preprocessed, author's text and compiled text are equal but for blanks between tokens."""
    gcc = shutil.which("gcc")
    assert gcc is not None
    seen = []
    (file,) = compiled(text)
    for name, data in (("author.cc", text.encode()), ("compiled.cc", file.data)):
        (tmp_path / name).write_bytes(data)
        (tmp_path / "a.cuh").write_text("#define OTHER 1\n")
        done = subprocess.run([gcc, "-E", "-P", "-std=c++17", tmp_path / name], capture_output=True, check=True)
        strings = re.findall(rb"\"[\w']+ +\w+\"", done.stdout)
        seen.append((b"".join(done.stdout.split()), strings))
    assert seen[0] == seen[1] and b";" in seen[0][0]
