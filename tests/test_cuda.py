"""Kernels in CUDA C++ through the whole build, with the real nvcc: images, dependencies, failures, packages."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from cuda_project import IMAGE, KERNEL, MANIFEST, create, facts, fake, image
from kiln.binaries.cubin import read_cubin
from kiln.binaries.elf import open_elf
from kiln.toolchain.nvcc import find_nvcc
from project import Project

EXTRAS = """
namespace { __device__ int counter; }
static __device__ int total;

template __global__ void scale<float, 64>(float *, float, int);
extern "C" __global__ void unrelated(int *x) { *x = atomicAdd(&counter, 1) + atomicAdd(&total, 1); }
static __global__ void hidden(int *x) { *x = atomicAdd(&counter, 1); }
namespace { __global__ void local(int *x) { *x = 1; } }
"""


# -- what is made


def test_facts_of_an_image(cuda: Project) -> None:
    found = facts(cuda)
    assert found["entry"] == "_Z5scaleIfLi128EEvPT_S0_i"
    assert [(item["offset"], item["size"], item["role"]) for item in found["parameters"]] == [
        (0, 8, "user"),
        (8, 4, "user"),
        (12, 4, "user"),
    ]
    assert (found["threads"], found["warps"], found["warp_size"], found["shared_dynamic"]) == (128, 4, 32, 0)
    assert found["tools"].keys() == {"nvcc", "ptxas"}


TARGETS = ("sm_75", "sm_90", "sm_90a", "sm_110f", "compute_80", "compute_120f")


def test_targets_with_all_letters(tmp_path: Path) -> None:
    """Each kind of them for each generation; the table's others differ in a number that is handed through."""
    manifest = MANIFEST.replace("[sm_80]", f"[{', '.join(TARGETS)}]")
    project = create(tmp_path / "scratch", manifest=manifest)
    project.doit("validate").expect(f"{2 * len(TARGETS)} built, 0 up to date, 0 failed")
    for target in TARGETS:
        assert facts(project, f"scale_fp32_128@{target}")["arch"] == target


def test_a_kernel_is_alone_in_its_image_and_equal_at_every_path(tmp_path: Path) -> None:
    """Its file has other kernels, explicit instances, and variables whose names have a digest of the path in them."""
    manifest = MANIFEST.replace("blocks: [128]", "blocks: [128, 64]")
    manifest += """\
  unrelated:
    source: kernels/scale.cu
    function: unrelated
    dtypes: [i32]
    blocks: [32]
    name: unrelated
    signature: "*i32"
    threads: 20
    grid: [1]
"""
    manifest += "".join(
        manifest[manifest.index("  unrelated:") :].replace("unrelated", name) for name in ("hidden", "local")
    )
    made = []
    for folder in (tmp_path / "one", tmp_path / "a b/ünïcode/two"):
        project = create(folder, KERNEL + EXTRAS, manifest)
        project.doit("validate", TZ="Asia/Tokyo" if made else "UTC").expect("10 built, 0 up to date, 0 failed")
        entries = {name: facts(project, f"{name}@sm_80")["entry"] for name in ("scale_fp32_128", "unrelated", "hidden")}
        assert entries["scale_fp32_128"] == "_Z5scaleIfLi128EEvPT_S0_i"
        assert entries["unrelated"] == "unrelated" and "hidden" in entries["hidden"]
        assert facts(project, "unrelated@sm_80")["threads"] == 20 and facts(project, "unrelated@sm_80")["warps"] == 1
        made.append({path.name: path.read_bytes() for path in (project.folder / "build/images/sm_80").iterdir()})
    assert made[0] == made[1]
    assert len(made[0]) == 10


def test_the_image_is_what_nvcc_makes_of_the_file_itself(cuda: Project, tmp_path: Path) -> None:
    """The code of the kernel equals that of a plain run of nvcc on the source with an explicit instance."""
    nvcc = find_nvcc()
    plain = tmp_path / "plain.cu"
    plain.write_text(
        cuda.read("kernels/factor.cuh")
        + KERNEL.replace('#include "factor.cuh"', "")
        + "template __global__ void scale<float, 128>(float *, float, int);\n"
    )
    command = [nvcc.nvcc, "-ccbin", nvcc.cc, "-cubin", "-arch=sm_80", plain, "-o", tmp_path / "plain.cubin"]
    subprocess.run(command, check=True, cwd=tmp_path)

    def code(data: bytes) -> bytes:
        reading = read_cubin(data)
        section = open_elf(data).section(f".text.{reading.entry}")
        assert section is not None
        return section.data

    assert code(image(cuda)) == code((tmp_path / "plain.cubin").read_bytes())


def test_everything_that_a_kernel_declares_reaches_it(tmp_path: Path) -> None:
    kernel = """\
        #include <cuda_fp16.h>
        extern __shared__ float cache[];
        template <typename T, bool NEGATE, typename Sum>
        __global__ void shape(T *x, long long n) {
            cache[threadIdx.x] = float(x[threadIdx.x]);
            __syncthreads();
            static_assert(sizeof(T) == 2 && sizeof(Sum) == 4 && UNROLL == 4 && HALF == 32 && NEGATE, "");
            static_assert(sizeof(SCALAR) == 2 && sizeof(NAME) == 4, "");
        #ifdef EMPTY
            const Sum sum = Sum(cache[UNROLL]) / Sum(cache[HALF]);
            x[n] = T(NEGATE ? -sum : sum);
        #endif
        }
        """
    manifest = """\
        version: 1
        library: scratch
        targets: [sm_90]
        kernels:
          shape:
            source: kernels/scale.cu
            function: "shape<{T}, {NEGATE}, {SUM}>"
            dtypes: [fp16]
            blocks: [64]
            axes: {NEGATE: [true]}
            constants: {SUM: {dtype: fp32}}
            name: "shape_{dtype}_{block}_{NEGATE}"
            group: "shape_{dtype}_{NEGATE}"
            signature: "*{dtype}:16, i64"
            threads: block
            shared: block * 4 + 50000
            defines: {UNROLL: 4, HALF: {expression: block // 2}, SCALAR: {dtype: "{dtype}"}, EMPTY: null, NAME: '"abc"'}
            flags: [--use_fast_math, --std=c++14]
            options: {maxnreg: 32, num_ctas: 2, launch_pdl: true}
            grid: [1]
        """
    project = create(tmp_path / "scratch", "", "version: 1\n")
    project.write("kernels.yaml", manifest)
    project.write("kernels/scale.cu", kernel)
    project.doit("validate").expect("2 built, 0 up to date, 0 failed")
    found = facts(project, "shape_fp16_64_1@sm_90")
    assert (found["shared_dynamic"], found["cluster"], found["pdl"]) == (50256, [2, 1, 1], True)
    assert found["registers"] <= 32
    for old, new, why in (
        ("UNROLL: 4", "UNROLL: 5", "define UNROLL changed: 4 -> 5"),
        ("c++14", "c++17", "flags changed"),
        ("maxnreg: 32", "maxnreg: 40", "option maxnreg changed: 32 -> 40"),
        ("50000", "5000", "shared changed: 50256 -> 5256"),
    ):
        project.edit("kernels.yaml", old, new)
        project.doit("info", "compile:shape_fp16_64_1@sm_90").expect(why, code=1)
        project.edit("kernels.yaml", new, old)


def test_the_packages_take_them(tmp_path: Path) -> None:
    """C and Rust, beside a kernel of Triton's: threads that fill no warp, and the symbol that the compiler made up."""
    manifest = MANIFEST.replace("threads: block", "threads: 100")
    project = create(tmp_path / "scratch", manifest=manifest)
    project.doit().expect("0 failed")
    header = project.read("build/include/scratch/scratch.h")
    assert "struct scratch_scale_fp32_128_args {" in header
    crate = project.read("build/rust/scratch/src/variants/scale_fp32_128.rs")
    assert "pub factor: f32," in crate
    assert re.search(r'entry: "_Z5scaleIfLi128EEvPT_S0_i",', crate)
    assert "threads: 100," in crate and "warps: 4," in crate and "warps_requested: 4," in crate


def test_no_blocks_and_names_that_rust_keeps_for_itself(tmp_path: Path) -> None:
    """Parameters that are plain words in CUDA C++, and a kernel whose variants differ by dtype alone."""
    kernel = """\
        extern "C" __global__ void fill(float *match, float type, int fn) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < fn) match[i] = type;
        }
        """
    manifest = """\
        version: 1
        library: scratch
        targets: [sm_80]
        kernels:
          fill:
            source: kernels/scale.cu
            function: fill
            dtypes: [fp32]
            name: fill_{dtype}
            signature: "*fp32, fp32, i32"
            threads: 96
            grid: ["cdiv(fn, 96)"]
            select: fn > 0
            tensors: {match: [fn]}
        """
    project = create(tmp_path / "scratch", "", "version: 1\n")
    project.write("kernels.yaml", manifest)
    project.write("kernels/scale.cu", kernel)
    project.doit().expect("0 failed")
    assert facts(project, "fill_fp32@sm_80")["threads"] == 96
    project.write(
        "main.c",
        """\
        #include <stdio.h>
        #include <scratch/scratch.h>
        int main(void)
        {
            struct scratch_fill_fp32_args args = { .match_ = NULL, .type_ = 1.0f, .fn_ = 100 };
            const struct scratch_image *image = scratch_image_find("fill_fp32", "sm_80");
            uint32_t grid[3];
            if (scratch_fill_fp32_grid(&args, grid) != SCRATCH_GRID_OK) return 1;
            printf("%d %d", (int)grid[0], (int)scratch_fill_fp32_selects(&args));
            for (int i = 0; i < 3; i++) printf(" %s", scratch_parameter_name(&scratch_image_parameters(image)[i]));
            return 0;
        }
        """,
    )
    build, program = project.folder / "build", tmp_path / "main"
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", build / "include", project.folder / "main.c"]
    subprocess.run([*command, build / "lib/libscratch.a", "-o", program], check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "2 1 match type fn"
    crate = project.read("build/rust/scratch/src/variants/fill_fp32.rs")
    assert [name for name in ("match_", "type_", "fn_") if f"pub {name}: " not in crate] == []
    project.edit("kernels.yaml", "threads: 96", "threads: block")
    project.doit("list").expect(r"kernels\.yaml:11:14: .*block", code=3)


# -- what makes them stale


def test_edits_of_headers_rebuild_exactly_their_users(tmp_path: Path) -> None:
    manifest = MANIFEST.replace("[sm_80]", "[sm_80, sm_90]")
    manifest += MANIFEST[MANIFEST.index("  scale:") :].replace("scale", "shift")
    kernel = KERNEL.replace(
        '"factor.cuh"', '"factor.cuh"\n#if __CUDA_ARCH__ >= 900\n#include "hopper.cuh"\n#endif\n#include <cuda_fp16.h>'
    )
    project = create(tmp_path / "scratch", kernel, manifest)
    project.write("kernels/shift.cu", KERNEL.replace("factor.cuh", "../shared/shift.cuh").replace("scale", "shift"))
    project.write("shared/shift.cuh", '#pragma once\n#include "factor.cuh"\n')
    project.write("shared/factor.cuh", "#define FACTOR 4\n")
    project.write("kernels/hopper.cuh", "#define HOPPER\n")
    project.write("kernels/unused.cuh", "#define UNUSED\n")

    def rebuilt() -> set[str]:
        return set(project.doit("-n", "2", "compile").expect("0 failed").ran("compile"))

    scale, shift = {f"scale_fp32_128@{name}" for name in ("sm_80", "sm_90")}, set[str]()
    shift = {each.replace("scale", "shift") for each in scale}
    assert rebuilt() == scale | shift
    assert rebuilt() == set()
    for name in ("kernels/unused.cuh", "kernels/factor.cuh", "kernels/scale.cu"):
        os.utime(project.folder / name)
    project.edit("kernels/factor.cuh", "FACTOR 2", "FACTOR 2  // a comment")
    project.edit("kernels/unused.cuh", "UNUSED", "UNUSED 1")
    assert rebuilt() == set()
    project.edit("kernels/factor.cuh", "FACTOR 2", "FACTOR 3")
    assert rebuilt() == scale
    project.edit("kernels/hopper.cuh", "HOPPER", "HOPPER 1")
    assert rebuilt() == {"scale_fp32_128@sm_90"}
    project.edit("shared/factor.cuh", "4", "5")
    assert rebuilt() == shift
    # One that is found earlier takes the place of the toolkit's, and gives it back.
    project.write("kernels/cuda_fp16.h", "#error\n")
    assert rebuilt() == set()  # <cuda_fp16.h> is not looked for beside the file
    project.edit("kernels/scale.cu", "<cuda_fp16.h>", '"cuda_fp16.h"')
    project.doit("compile").expect(r"kernels/cuda_fp16\.h:1:1", code=1)
    (project.folder / "kernels/cuda_fp16.h").unlink()
    assert rebuilt() == scale
    project.write("kernels/cuda_fp16.h", "#define MINE\n")
    assert rebuilt() == scale


def test_roots_are_searched_and_named_alike_everywhere(tmp_path: Path) -> None:
    manifest = MANIFEST.replace("kernels:\n", "roots: {lib: ../third/lib}\nkernels:\n", 1)
    project = create(tmp_path / "scratch", KERNEL.replace('"factor.cuh"', "<deep/factor.cuh>"), manifest)
    for folder, factor in (("third/lib", 7), ("elsewhere", 8)):
        path = tmp_path / folder / "deep/factor.cuh"
        path.parent.mkdir(parents=True)
        path.write_text(f'#include "inner.cuh"\n#define FACTOR INNER * {factor}\n')
        path.with_name("inner.cuh").write_text("#define INNER 1\n")
    project.doit("compile").expect("1 built")
    (tmp_path / "third/lib/deep/inner.cuh").write_text("#define INNER 2\n")
    project.doit("compile").expect("1 built")
    project.doit("compile").expect("1 up to date")
    project.edit("kernels/scale.cu", "<deep/factor.cuh>", '"../../elsewhere/deep/factor.cuh"')
    project.doit("compile").expect(
        r"kernels/scale\.cu:1:1: the include of \.\./\.\./elsewhere/deep/factor\.cuh leads out of the project",
        "declare its folder under `roots`",
        code=1,
    )
    project.edit("kernels/scale.cu", '"../../elsewhere/deep/factor.cuh"', f'"{tmp_path}/elsewhere/deep/factor.cuh"')
    project.doit("compile").expect("leads to one machine's file", code=1)


def test_a_null_build_asks_for_no_compiler(cuda: Project) -> None:
    """Neither nvcc nor Triton nor a reader of images is run or imported."""
    program = (
        "import sys; sys.argv = ['doit', 'compile']\n"
        "from doit.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'triton', 'jinja2', 'elftools'}))\n"
    )
    cuda.run_python("-c", program).expect("1 up to date", r"^\[\]$")


def test_the_environment_of_the_caller_changes_nothing(cuda: Project) -> None:
    before = image(cuda)
    hostile = {
        "NVCC_APPEND_FLAGS": "-G -lineinfo",
        "NVCC_PREPEND_FLAGS": "-DFACTOR=9",
        "CPATH": str(cuda.folder),
        "CPLUS_INCLUDE_PATH": str(cuda.folder),
        "PTXAS_OPTIONS": "-O0",
        "NVVM_OPTIONS": "-O0",
        "CCACHE_DIR": "x",
    }
    cuda.write("type_traits", "#error found through CPATH\n")
    cuda.doit("compile", **hostile).expect("1 up to date")
    cuda.doit("-a", "compile", **hostile).expect("1 built")
    assert image(cuda) == before


# -- what fails


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("kernels/scale.cu", "i < n", "i < m", [r"kernels/scale\.cu:6:13: identifier \"m\" is undefined", r"\^"]),
        ("kernels/factor.cuh", "2", "2 +", [r"kernels/scale\.cu:7:34: expected an expression"]),
        ("kernels/scale.cu", "factor.cuh", "fact.cuh", [r"kernels/scale\.cu:1:1: fact\.cuh: No such file"]),
        (
            "kernels/scale.cu",
            "const int i",
            'asm("bogus.b32 a;"); const int i',
            [r"kernels/scale\.cu:4:1: ptxas: .*bogus"],
        ),
        ("kernels.yaml", "{dtype}, i32", "i32, i32", [r"kernels\.yaml:7:5: argument 2, 'T factor', is i32 in the sig"]),
        ("kernels.yaml", "*{dtype}", "*i64", [r"argument 1, 'T \*x', is \*i64 in the signature", "compare"]),
        ("kernels.yaml", ", i32", "", [r"kernels\.yaml:12:5: .* fewer items", r"n: \(no item\)"]),
        ("kernels.yaml", ", i32", ", i32:1", ["promises a value of 1", "template arguments"]),
        ("kernels.yaml", "[fp32]", "[fp16]", ["does not define __half", "#include <cuda_fp16.h>"]),
        ("kernels.yaml", "[fp32]", "[fp8e4b8]", ["fp8e4b8, for which CUDA C\\+\\+ has no type"]),
        ("kernels.yaml", "scale<{T}", "scal<{T}", ["there is no kernel scal", r"none in kernels/scale\.cu"]),
        ("kernels.yaml", "grid:", "axes: {A: [1]}\n    grid:", ["the axis A of scale changes nothing"]),
        ("kernels.yaml", "grid:", "constants: {n: 1}\n    grid:", ["n is a constant of", "an argument of scale"]),
    ],
)
def test_what_is_wrong_is_told_at_its_place(cuda: Project, file: str, old: str, new: str, words: list[str]) -> None:
    cuda.edit(file, old, new)
    ended = cuda.doit("compile")
    print(ended.output)
    ended.expect(*words, code=1)
    assert "unit.cu" not in ended.output
    assert list((cuda.folder / "build/.kiln/tmp").glob("*")) == []


def test_shared_memory_below_nothing_stops_everything(cuda: Project) -> None:
    cuda.edit("kernels.yaml", "grid:", "shared: 0 - block\n    grid:")
    cuda.doit("compile").expect(r"kernels\.yaml:14:13: `kernels\.scale\.shared` is negative for scale_fp32_128", code=3)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", ["made no whole image"]),
        (': > "$last"', ["made no whole image"]),
        ('"$REAL" "$@" && truncate -s -40 "$last"', ["made no whole image|cut short|damaged"]),
        ("kill -SEGV $$", ["nvcc ended with signal 11"]),
        ("echo nonsense; exit 3", ["nvcc ended with exit code 3 and named no error", "nonsense"]),
        (
            'case "$*" in *-cubin*) "$REAL" "${@/sm_80/sm_86}";; *) "$REAL" "$@";; esac',
            ["arch: the image is for another architecture", "expected: sm_80", "actual: sm_86"],
        ),
    ],
)
def test_an_exit_code_of_0_is_not_believed(cuda: Project, tmp_path: Path, script: str, words: list[str]) -> None:
    before = image(cuda)
    ended = cuda.doit("compile", CUDA_HOME=fake(tmp_path / "cuda", script)).expect("1 failed", code=1)
    print(ended.output)
    assert re.search("|".join(words[:1]), ended.output) and all(re.search(word, ended.output) for word in words[1:])
    assert image(cuda) == before
    assert list((cuda.folder / "build/.kiln/tmp").glob("*")) == []


def test_another_toolkit_of_the_same_version_rebuilds(cuda: Project, tmp_path: Path) -> None:
    before = image(cuda)
    home = fake(tmp_path / "cuda", 'exec "$REAL" "$@"')
    cuda.doit("compile", CUDA_HOME=fake(tmp_path / "broken", "exit 0")).expect("1 failed", code=1)
    assert cuda.doit("compile", CUDA_HOME=home).expect("1 built").ran("compile") == [IMAGE]
    assert image(cuda) == before
