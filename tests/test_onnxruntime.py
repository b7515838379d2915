"""ONNX Runtime from end to end: function tables by its own command line, its header and archive, and a program that
loads them as it does, on a driver that computes softmax on the host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import cmake_tree
from c_doubles import Doubles
from kiln.project import compile_triton
from project import REPOSITORY, Project, Result

EXAMPLE = REPOSITORY / "examples/onnxruntime"
SM_90A = ("--target", "sm_90a")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

SOFTMAX = """\
from itertools import product

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_SIZE)
    mask = columns < n_cols
    values = tl.load(input_ptr + row * input_row_stride + columns, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(values - tl.max(values, axis=0))
    tl.store(output_ptr + row * output_row_stride + columns, numerator / tl.sum(numerator, axis=0), mask=mask)


def get_function_table():
    table = []

    def warps(block):
        return 4 if block < 2048 else 16

    for dtype, block in product(["fp32"], [1024, 16384]):
        name = "softmax_{}_{}".format(dtype, block)
        kwargs = {"num_warps": warps(block), "constants": {"BLOCK_SIZE": block}}
        sig = "*{},*{},i32,i32,i32".format(dtype, dtype)
        table.append({"name": name, "group": f"softmax_{dtype}", "func": softmax_kernel, "sig": sig, "kwargs": kwargs})
    return table
"""

FILL = """\
import triton
import triton.language as tl

from shared.blocks import BLOCK


@triton.jit
def fill_kernel(output_ptr, n, value, BLOCK_SIZE: tl.constexpr):
    columns = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(output_ptr + columns, value, mask=columns < n)


@triton.jit
def clear_kernel(output_ptr, n, BLOCK_SIZE: tl.constexpr):
    columns = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(output_ptr + columns, 0.0, mask=columns < n)


def get_function_table():
    kwargs = {"num_warps": 4, "constants": {"BLOCK_SIZE": BLOCK}}
    return [
        {"name": "fill_fp32", "group": "fill", "func": fill_kernel, "sig": "*fp32,i32,fp32", "kwargs": kwargs},
        {"name": "clear_fp32", "group": "clear", "func": clear_kernel, "sig": "*fp32,i32", "kwargs": kwargs},
    ]
"""


@dataclass(frozen=True, kw_only=True)
class Ort:
    """A source tree with two scripts, and the folder that its build makes header and archive in."""

    folder: Path

    @property
    def made(self) -> Path:
        return self.folder / "out/triton_kernels"

    @property
    def header(self) -> str:
        return (self.made / "triton_kernel_infos.h").read_text()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def compile(self, *more: str, scripts: tuple[str, ...] = ("ort/math/soft.py", "ort/fill.py")) -> Result:
        """The command as ONNX Runtime's build has it, with the target behind it where `more` says no other."""
        arguments = ["--header", f"{self.made}/triton_kernel_infos.h", "--ort_root", "ort", "--script_files", *scripts]
        arguments += ["--obj_file", f"{self.made}/triton_kernel_infos.a", *(more or SM_90A)]
        project = Project(folder=self.folder)
        return project.run_python(str(REPOSITORY / "tools/compile_triton.py"), *arguments, KILN_TARGET="")


@pytest.fixture(scope="module")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ort, Result]:
    ort = Ort(folder=tmp_path_factory.mktemp("compiled") / "ort tree")
    ort.write("ort/math/soft.py", SOFTMAX)
    ort.write("ort/fill.py", FILL)
    ort.write("ort/shared/blocks.py", "BLOCK = 256\n")
    return ort, ort.compile().expect(" 0 failed")


@pytest.fixture
def ort(_compiled: tuple[Ort, Result], tmp_path: Path) -> Ort:
    """The tree, built; a test may change it."""
    shutil.copytree(_compiled[0].folder, tmp_path / "ort tree")
    return Ort(folder=tmp_path / "ort tree")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1 that computes on the host."""
    path = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    source = REPOSITORY / "tests/onnxruntime_driver.c"
    subprocess.run(["gcc", "-std=c11", *WARNINGS, "-shared", "-fPIC", source, "-lm", "-o", path], check=True)
    return path.parent


def run(program: Path, *arguments: str, driver: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, **environment, "LD_LIBRARY_PATH": str(driver)}
    return subprocess.run([program, *arguments], env=known, capture_output=True, text=True, check=False, timeout=60)


def link(sources: list[Path], made: Path, program: Path, *flags: str | Path) -> Path:
    command = ["g++", "-std=c++17", *WARNINGS, "-I", made, "-I", EXAMPLE, *sources, *flags, "-ldl", "-o", program]
    subprocess.run(command, check=True)
    return program


def whole(made: Path) -> tuple[str | Path, ...]:
    return ("-Wl,--whole-archive", made / "triton_kernel_infos.a", "-Wl,--no-whole-archive")


# -- the command line


def test_the_header_lists_the_rows_in_order(_compiled: tuple[Ort, Result]) -> None:
    rows = re.findall(r'^  \{ "(\w+)", "(\w+)", "(\w+)", "(\w+)", (\d+), \d+, (.*) \},$', _compiled[0].header, re.M)
    assert rows == [
        (f"_binary_{name}_cubin_start", function, group, name, warps, f'{{ {{ "BLOCK_SIZE", {block}}} }}')
        for name, function, group, warps, block in (
            ("softmax_fp32_1024", "softmax_kernel", "softmax_fp32", "4", 1024),
            ("softmax_fp32_16384", "softmax_kernel", "softmax_fp32", "16", 16384),
            ("fill_fp32", "fill_kernel", "fill", "4", 256),
            ("clear_fp32", "clear_kernel", "clear", "4", 256),
        )
    ]


def test_each_function_of_the_tables_is_listed_and_so_has_to_fit(_compiled: tuple[Ort, Result]) -> None:
    manifest = (_compiled[0].made / "triton_kernel_infos.kiln/kernels.yaml").read_text()
    assert "onnxruntime: {target: sm_90a, kernels: [softmax_kernel, fill_kernel, clear_kernel]}\n" in manifest


def test_a_second_run_compiles_nothing_and_an_edit_only_what_it_can_have_changed(ort: Ort) -> None:
    """And a file that would be the same keeps its time stamp, so that a build goes no further."""
    before = (ort.made / "triton_kernel_infos.a").stat().st_mtime_ns
    ort.compile().expect("^0 built")
    assert (ort.made / "triton_kernel_infos.a").stat().st_mtime_ns == before
    ort.write(
        "ort/fill.py", FILL.replace("tl.store(output_ptr + columns, value", "tl.store(output_ptr + columns, value + 1")
    )
    ran = ort.compile().expect(" 0 failed")
    assert ran.ran("compile") == ["fill_fp32@sm_90a"]
    assert (ort.made / "triton_kernel_infos.a").stat().st_mtime_ns != before
    ort.write("ort/math/soft.py", SOFTMAX.replace("16384", "2048"))
    ran = ort.compile().expect(" 0 failed")
    assert ran.ran("compile") == ["softmax_fp32_2048@sm_90a"]
    assert "softmax_fp32_2048" in ort.header and "16384" not in ort.header


@pytest.mark.parametrize(
    ("more", "scripts", "said"),
    [
        ((), ("ort/none.py",), ("--script_files ort/none.py: there is no such file", "remedy: correct the path")),
        (("--target", "sm_9"), (), ("--target sm_9: ", "did you mean")),
        (
            ("--target", "native"),
            (),
            ("`native` stands for", "say what to compile for: --target sm_90a, or KILN_TARGET"),
        ),
        (
            (),
            ("ort/shared/blocks.py",),
            ("^ERROR: /.*/ort/shared/blocks.py:1:1: the file has no function get_function_table",),
        ),
        ((), ("ort/empty.py",), ("ort/empty.py: the table of the script is empty", "leave the script out")),
        ((), ("ort/fill.py", "ort/fill.py"), ("'fill_fp32' is the name of two variants", "give each row|rename")),
        ((*SM_90A, "--header", "ort"), (), ("--header ort: a file cannot be written where a folder is",)),
        ((*SM_90A, "--obj_file", "/"), (), ("--obj_file /: a file cannot be written", "add the name of a file")),
        ((*SM_90A, "--obj_file", ""), (), (r"--obj_file \.: a file cannot be written",)),
        (
            (*SM_90A, "--obj_file", "out/x.h", "--header", "ort/../out/x.h"),
            (),
            ("--obj_file out/x.h: header and archive cannot be one file", r"--header ort/\.\./out/x\.h"),
        ),
    ],
)
def test_what_cannot_be_compiled_is_told_before_anything_is(
    tmp_path: Path, more: tuple[str, ...], scripts: tuple[str, ...], said: tuple[str, ...]
) -> None:
    ort = Ort(folder=tmp_path)
    ort.write("ort/fill.py", FILL)
    ort.write("ort/shared/blocks.py", "BLOCK = 256\n")
    ort.write("ort/empty.py", "def get_function_table():\n    return []\n")
    result = ort.compile(*more, scripts=scripts or ("ort/fill.py",))
    print(result.output)
    result.expect(*said, code=3)
    assert not list(tmp_path.rglob("triton_kernel_infos.[ah]"))


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    ort = Ort(folder=tmp_path)
    ort.write("ort/fill.py", FILL)
    ort.write("out/triton_kernels/triton_kernel_infos.kiln/kernels.yaml", "version: 1\n")
    result = ort.compile(scripts=("ort/fill.py",))
    print(result.output)
    result.expect("the folder for what is built holds another project", "give --obj_file another name", code=3)
    assert (ort.made / "triton_kernel_infos.kiln/kernels.yaml").read_text() == "version: 1\n"


def test_a_python_without_the_requirements_is_told(tmp_path: Path) -> None:
    """From a copy of the tool, beside which no .venv lies."""
    shutil.copy(REPOSITORY / "tools/compile_triton.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "compile_triton.py"], capture_output=True, text=True, check=False
    )
    print(done.stderr)
    assert done.returncode == 3
    assert re.search(r"ERROR: \S+ has no doit, triton, yaml\n", done.stderr)
    assert f"remedy: make one: python3 {tmp_path}/bootstrap.py list" in done.stderr


def test_names_of_kernels_are_made_of_functions() -> None:
    names = list(compile_triton._keys(["soft", "soft", "_fwd__kernel", "Ops.kernel", "if", "SOFT", "1x"]))
    assert names == ["soft", "soft_2", "fwd_kernel", "Ops_kernel", "kernel_if", "SOFT_3", "kernel_1x"]


# -- the loader


@pytest.fixture(scope="module")
def program(_compiled: tuple[Ort, Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, as its own CMakeLists.txt builds it."""
    folder = tmp_path_factory.mktemp("cmake")
    cmake = cmake_tree.program("cmake")
    configure = [cmake, "-S", EXAMPLE, "-B", folder, f"-DTRITON_KERNELS={_compiled[0].made}"]
    configure += [f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}"]
    for command in (configure, [cmake, "--build", folder]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout
    return folder / "softmax"


def test_softmax_runs_by_name_and_by_group(program: Path, driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = run(program, "37", "1000", driver=driver, ORT_DRIVER_LOG=str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^ok (.*): largest error", done.stdout, re.M) == [
        "softmax_fp32_16384 by its name",
        "softmax_fp32_1024 of its group",
        "softmax_fp32_16384 of its group",
    ]
    lines = log.read_text().splitlines()
    assert lines.count("load cubin") == lines.count("unload") == 4
    assert lines[-1] == "release 0"
    launches = [line.split()[2:] for line in lines if line.startswith("launch ")]
    assert [(grid, threads, size) for grid, threads, _, size in launches] == [
        ("37,1,1", "512,1,1", "48"),
        ("37,1,1", "128,1,1", "48"),
        ("37,1,1", "512,1,1", "48"),
    ]


def test_a_kernel_that_is_too_small_is_passed_over(program: Path, driver: Path) -> None:
    done = run(program, "3", "5000", driver=driver)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed over: softmax_fp32_1024 takes fewer columns" in done.stdout


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("load", "softmax_fp32_1024 does not load: CUDA_ERROR_INVALID_IMAGE (200)"),
        ("function", "softmax_fp32_1024 has no function softmax_kernel: CUDA_ERROR_INVALID_IMAGE (200)"),
        ("launch", "softmax_fp32_16384 is not launched: CUDA_ERROR_INVALID_IMAGE (200)"),
    ],
)
def test_errors_of_the_driver_are_told(program: Path, driver: Path, fails: str, said: str) -> None:
    done = run(program, driver=driver, ORT_DRIVER_FAILS=fails)
    assert (done.returncode, done.stderr) == (2, f"{said}\n")


def test_a_machine_without_a_driver_is_told(program: Path, doubles: Doubles) -> None:
    done = run(program, driver=doubles.of("none"))
    assert done.returncode == 2
    assert re.match(r"there is no driver: \S*libcuda\.so\.1: ", done.stderr)


def test_a_driver_that_lacks_a_function_is_told(program: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "empty.c", "-o", tmp_path / "libcuda.so.1"], check=True)
    done = run(program, driver=tmp_path)
    assert (done.returncode, done.stderr) == (2, "there is no driver: libcuda.so.1 has no cuDeviceGet\n")


def test_images_that_were_not_linked_or_not_exported_are_told(
    _compiled: tuple[Ort, Result], program: Path, driver: Path, tmp_path: Path
) -> None:
    """Without either flag the program links, and dlsym finds nothing."""
    made, objects = _compiled[0].made, sorted(program.parent.glob("CMakeFiles/softmax.dir/*.o"))
    for flags in ((*whole(made),), (made / "triton_kernel_infos.a", "-rdynamic")):
        done = run(link(objects, made, tmp_path / "program", *flags), driver=driver)
        assert (done.returncode, done.stderr) == (
            2,
            "_binary_softmax_fp32_1024_cubin_start is not in the program: "
            "link triton_kernel_infos.a whole, and export symbols\n",
        )


LIMITS = """\
#include <cstdio>

#include "loader.h"

using triton_loader::Kernels;
using triton_loader::Result;

static void show(const Result& result)
{
  std::printf("%d %s\\n", static_cast<int>(result.status), result.message.c_str());
}

int main() {
  Kernels kernels;
  int arguments = 0;
  show(kernels.load());
  for (const char* name : {"threads", "too_many", "shared", "too_much", "other"}) {
    show(kernels.launch(nullptr, name, {1, 1, 1}, &arguments, sizeof arguments));
  }
  show(kernels.launch(nullptr, 4, {1, 1, 1}, &arguments, sizeof arguments));
  show(kernels.launch(nullptr, "threads", {1, 0, 1}, &arguments, sizeof arguments));
  std::printf("%zu of one group, %zu of another, %d\\n", kernels.group("a").size(), kernels.group("c").size(),
              kernels.find("shared")->constants.at("N"));
  return kernels.find("other") == nullptr ? 0 : 1;
}
"""


def test_the_guards_are_those_of_onnx_runtime(_compiled: tuple[Ort, Result], driver: Path, tmp_path: Path) -> None:
    """More than 1024 threads or 64 KiB are unsupported and never reach the driver; 48 KiB want the opt-in."""
    header = _compiled[0].header.partition("kernel_infos[] = {\n")[0] + "kernel_infos[] = {\n"
    for name, group, warps, shared in (
        ("threads", "a", 32, 0),
        ("too_many", "a", 33, 0),
        ("shared", "b", 4, 65536),
        ("too_much", "b", 4, 65537),
    ):
        row = f'"_binary_fill_fp32_cubin_start", "fill_kernel", "{group}", "{name}", {warps}, {shared}'
        header += f'  {{ {row}, {{ {{ "N", 3}} }} }},\n'
    made = tmp_path / "made"
    made.mkdir()
    (made / "triton_kernel_infos.h").write_text(f"{header}}};\n\n#endif\n")
    (tmp_path / "limits.cpp").write_text(LIMITS)
    sources = [tmp_path / "limits.cpp", EXAMPLE / "loader.cpp", EXAMPLE / "driver.cpp"]
    limits = link(sources, made, tmp_path / "limits", *whole(_compiled[0].made), "-rdynamic")
    log = tmp_path / "log"
    done = run(limits, driver=driver, ORT_DRIVER_LOG=str(log))
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "0 ",
            "0 ",
            "1 too_many has 1056 threads in a block, of 1024",
            "0 ",
            "1 too_much takes 65537 bytes of shared memory, of 65536",
            "1 there is no kernel other",
            "1 there is no kernel of number 4",
            "0 ",
            "2 of one group, 0 of another, 3",
        ],
    )
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith(("launch", "opt-in"))] == [
        "opt-in 65536",
        "launch fill_kernel 1,1,1 1024,1,1 0 4",
        "launch fill_kernel 1,1,1 128,1,1 65536 4",
    ]


# -- the manifest's own section

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, sm_90a]
onnxruntime: {target: sm_90a}
kernels:
  fill:
    source: kernels/fill.py
    function: fill_kernel
    dtypes: [fp32]
    blocks: [256]
    name: fill_{dtype}_{block}
    signature: "*{dtype}, i32, fp32"
    grid: ["cdiv(n, BLOCK_SIZE)"]
  paired:
    source: kernels/fill.py
    function: fill_kernel
    dtypes: [fp32]
    targets: [sm_90a]
    blocks: [128]
    name: paired_{dtype}_{block}
    signature: "*{dtype}, i32, fp32"
    options: {num_ctas: 2}
    grid: ["cdiv(n, BLOCK_SIZE)"]
"""


def test_the_step_is_there_when_it_is_declared(tmp_path: Path) -> None:
    """It names what it leaves out, is fresh like the others, goes with its section, and its files go with it."""
    project = Project.create(tmp_path, manifest=MANIFEST, fill=FILL.replace("from shared.blocks import BLOCK\n", ""))
    made = {"onnxruntime/triton_kernel_infos.h", "onnxruntime/triton_kernel_infos.a"}
    first = project.doit()
    print(first.output)
    left_out = r"ONNX Runtime's header is without paired_fp32_128 \(blocks form clusters of 2 x 1 x 1\)$"
    first.expect(left_out, " 0 failed")
    assert made <= project.files()
    header = project.read("build/onnxruntime/triton_kernel_infos.h")
    assert "fill_fp32_256" in header and "paired" not in header

    assert project.doit().expect("^0 built").counts["up to date"] == first.counts["built"]
    # Without the outline of the last build, too: the long way.
    (project.folder / "build/.kiln/outline").unlink()
    project.doit().expect("^0 built")
    project.edit("kernels/fill.py", "tl.store(output_ptr + columns, value", "tl.store(output_ptr + columns, value * 2")
    assert "onnxruntime" in project.doit("header").expect(" 0 failed").ran("header")

    project.edit("kernels.yaml", "{target: sm_90a}", "{target: sm_90a, kernels: [paired]}")
    refused = project.doit("header:onnxruntime")
    print(refused.output)
    assert "warning" not in refused.output
    refused.expect(
        r"kernels\.yaml:14:3: ONNX Runtime cannot launch paired_fp32_128@sm_90a", "remove paired there", code=1
    )
    project.edit("kernels.yaml", "kernels: [paired]", "kernels: [fill]")
    project.doit("header:onnxruntime").expect("1 built")

    project.edit("kernels.yaml", "onnxruntime: {target: sm_90a, kernels: [fill]}\n", "")
    project.doit().expect(" 0 failed")
    assert not made & project.files()
    project.doit("header:onnxruntime").expect("there is no task 'header:onnxruntime'", code=3)
    assert "onnxruntime" not in project.doit("list", "--all").expect().output
    project.doit().expect("^0 built")
