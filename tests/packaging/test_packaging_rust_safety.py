"""What the Rust crate calls safe is: the checks before a launch, and what a launch on slices asks its caller for."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from c_library import compile_program, run
from rust_crates import RUST, Cargo, add_example, change, render

from c_doubles import Doubles
from kiln.binaries.hsaco import MACHINES
from kiln.manifest.model import Image
from kiln.packaging.c_package import render_header
from kiln.packaging.record import Record
from kiln.packaging.rust_names import RUNTIME
from kiln.packaging.rust_view import view_structs
from softmax_images import expression, make_kernel, make_manifest, make_variant

CASES = [
    ("arithmetic", "none"),
    ("copies", "cuda"),
    ("forked", "cuda"),
    ("lost_device", "hip"),
    ("other_machine", "hip"),
    ("other_target", "cuda"),
    ("profile_scratch", "none"),
    ("reset_context", "cuda"),
]
"""a case of tests/rust/driver_safety.rs, and the driver that it runs with"""

RELEASE = {"CUDARC_CUDA_VERSION": "12080"}
STRIDES = {f"{name}_ptr": (expression(f"{name}_row_stride"), expression("1")) for name in ("output", "input")}
CHECKED: dict[str, Any] = {
    "grid": (
        expression("n_rows // input_row_stride"),
        expression("output_row_stride * output_row_stride * output_row_stride"),
        expression("1"),
    ),
    "select": expression(
        "1000 % n_cols == 0 and n_rows * n_rows * n_rows <= 64 "
        "and (output_row_stride == 0 or 8 // output_row_stride >= 0)"
    ),
    "tensors": {
        "output_ptr": (expression("n_rows * n_rows * n_rows"),),
        "input_ptr": (expression("1000 // n_cols"),),
    },
    "strides": {"output_ptr": (expression("1000000 // n_cols"),)},
}
"""a kernel whose every expression can go wrong"""


def of_kernel(records: list[Record], key: str, **declared: Any) -> list[Record]:
    """softmax in fp32 as a kernel of another name, declared otherwise."""
    kernel = make_kernel(key=key, **declared)
    made = []
    for record in records:
        own = record.image.variant
        if own.dtype == "fp32":
            names = {"id": f"{key}_fp32_1024", "group": f"{key}_fp32"}
            variant = make_variant(kernel, "fp32", 1024, 4, **names, signature=own.signature)
            made.append(change(record, image=Image(variant=variant, target=record.image.target)))
    return made


def damaged(record: Record, folder: Path) -> Record:
    """The same image with the number of another GPU, gfx950, in its ELF header: its record is of that file."""
    data = bytearray(record.path.read_bytes())
    assert MACHINES[data[48]] == "gfx942" and MACHINES[79] == "gfx950"
    data[48] = 79
    path = folder / record.path.name
    path.write_bytes(data)
    return change(record, path=path, facts={"sha256": hashlib.sha256(data).hexdigest()})


@pytest.fixture(scope="module")
def program(records: list[Record], cargo: Cargo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    scratch = {"global_scratch_bytes": 0, "profile_scratch_bytes": 12, "profile_scratch_align": 128}
    used = [
        *(record for record in records if record.image.variant.dtype == "fp32"),
        *of_kernel(records, "checked", **CHECKED),
        *(change(record, facts=scratch) for record in of_kernel(records, "profiled")),
        *(
            damaged(record, folder) if record.image.target == "gfx942" else record
            for record in of_kernel(records, "damaged")
        ),
    ]
    crate = render(used, folder)
    add_program(crate, "driver_safety")
    cargo(crate, "build", "-q", "--offline", "--features", "hip", "--example", "driver_safety")
    return Path(shutil.copy(cargo.program("driver_safety"), tmp_path_factory.mktemp("programs")))


def add_program(crate: Path, name: str) -> None:
    shutil.copytree(RUST / "support", crate / "examples" / "support")
    shutil.copy(RUST / f"{name}.rs", crate / "examples")


@pytest.mark.parametrize(("case", "driver"), CASES)
def test_what_is_refused(program: Path, doubles: Doubles, case: str, driver: str) -> None:
    done = doubles.run(driver, program, case, DOUBLE="libamdhip64.so" if driver == "hip" else "libcuda.so.1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_machines_of_amd_are_those_of_the_build() -> None:
    table = re.findall(r'^    \(0x(\w+), "(gfx\w+)"\),$', (RUNTIME / "check.rs").read_text(), re.MULTILINE)
    assert {int(number, 16): name for number, name in table} == MACHINES


C_CASES = """#include <assert.h>
#include <kernels/kernels.h>
#include <string.h>

int main(void) {
    struct kernels_checked_fp32_1024_args args;
    memset(&args, 0, sizeof args);
    args.input_row_stride = args.output_row_stride = 1;
    args.n_cols = 1000;
    args.n_rows = 4;
    uint32_t grid[3] = { 0, 0, 0 };
    assert(kernels_checked_fp32_1024_selects(&args));
    assert(kernels_checked_fp32_1024_grid(&args, grid) == KERNELS_GRID_OK && grid[0] == 4);
    args.n_cols = 0;
    assert(!kernels_checked_fp32_1024_selects(&args));
    args.n_cols = 1000;
    args.n_rows = 1 << 22;
    assert(!kernels_checked_fp32_1024_selects(&args));
    args.n_rows = 4;
    args.output_row_stride = 0;
    assert(kernels_checked_fp32_1024_selects(&args));
    args.output_row_stride = 1 << 22;
    assert(kernels_checked_fp32_1024_grid(&args, grid) == KERNELS_GRID_OUT_OF_RANGE);
    args.output_row_stride = 1;
    args.input_row_stride = 0;
    assert(kernels_checked_fp32_1024_grid(&args, grid) == KERNELS_GRID_OUT_OF_RANGE);
    return 0;
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_c_refuses_the_same_arithmetic(records: list[Record], tmp_path: Path, compiler: str) -> None:
    used = of_kernel(records, "checked", **CHECKED)
    render_header(used, make_manifest(used), tmp_path / "c")
    included = ("-I", tmp_path / "c/include")
    assert run(compile_program(C_CASES, tmp_path / "cases", *included, compiler=compiler)) == ""


DECLARED: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], bool]] = {
    "all": ({"strides": STRIDES}, (), (), True),
    "no outputs": ({"strides": STRIDES, "outputs": None}, (), (), False),
    "no strides": ({}, ("input_row_stride", "output_row_stride"), (), False),
    "an input of the grid alone": (
        {"strides": STRIDES, "inputs": {"n_rows": "i32", "n_programs": "i32"}, "grid": ("n_programs", "1", "1")},
        ("n_programs",),
        (),
        False,
    ),
    "one of which any value is good": (
        {
            "strides": STRIDES,
            "inputs": {"n_rows": "i32", "n_programs": "i32"},
            "grid": ("n_programs", "1", "1"),
            "any_values": ("n_programs",),
        },
        (),
        (),
        True,
    ),
    "indices": ({"strides": STRIDES, "signature": "*{dtype}:16, *i64:16, i32, i32, i32"}, (), ("input_ptr",), False),
    "indices that the kernel looks at": (
        {
            "strides": STRIDES,
            "signature": "*{dtype}:16, *i64:16, i32, i32, i32",
            "any_values": ("input_ptr",),
        },
        (),
        (),
        True,
    ),
}
"""what is declared, integers and pointers that the caller answers for, and whether a launch is safe"""


@pytest.mark.parametrize("name", DECLARED)
def test_what_has_to_be_declared_for_a_safe_launch(records: list[Record], tmp_path: Path, name: str) -> None:
    declared, loose, indices, is_safe = DECLARED[name]
    given = {**declared}
    if "grid" in given:
        given["grid"] = tuple(expression(text) for text in given["grid"])
    used = with_signature(of_kernel(records, "told", **given))
    (struct,) = view_structs(used)
    assert struct.slices is not None
    found = struct.slices
    assert (found.loose, found.indices, found.is_safe) == (loose, indices, is_safe)
    text = (render(used, tmp_path) / "src" / "variants" / "told_fp32_1024.rs").read_text()
    launch = re.search(r"pub (unsafe )?fn launch\(mut self, .*", text)
    assert launch is not None and (launch[1] is None) is is_safe
    assert ("# Safety" in text) is not is_safe
    assert [word for word in (*loose, *indices) if f"`{word}`" not in text[: launch.start()]] == []
    assert ("refuse_capture" in text) is is_safe


def with_signature(records: list[Record]) -> list[Record]:
    """What the kernel of each takes, with the type of the second pointer that its signature says."""
    made = []
    for record in records:
        interface = record.interface
        if "*i64" in record.image.variant.kernel.signature:
            arguments = tuple(
                dataclasses.replace(argument, type="*i64") if argument.name == "input_ptr" else argument
                for argument in interface.arguments
            )
            interface = dataclasses.replace(interface, arguments=arguments)
        made.append(change(record, interface=interface))
    return made


@pytest.fixture(scope="module")
def slices(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    used = [
        *of_kernel(records, "softmax", strides=STRIDES),
        *of_kernel(records, "untold", strides=STRIDES, outputs=None),
    ]
    crate = render(used, tmp_path_factory.mktemp("project"))
    add_program(crate, "cudarc_safety")
    manifest = (crate / "Cargo.toml").read_text()
    needed = 'cudarc = { version = "0.19.5", default-features = false }\n'
    (crate / "Cargo.toml").write_text(f"{manifest}\n[dev-dependencies]\n{needed}")
    return crate


@pytest.mark.parametrize("case", ["captured", "without_outputs"])
def test_launches_on_slices(slices: Path, cargo: Cargo, doubles: Doubles, case: str) -> None:
    cargo(slices, "build", "-q", "--features", "cudarc", "--example", "cudarc_safety", **RELEASE)
    done = doubles.run("cuda", cargo.program("cudarc_safety"), case)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_a_kernel_writes_is_lent_as_mut(slices: Path, cargo: Cargo) -> None:
    """The same program with a `&` there does not compile, for that reason."""
    text = (RUST / "cudarc_safety.rs").read_text()
    place = text.index("let args = safe::SliceArgs")
    add_example(slices, "shared_output", text[:place] + text[place:].replace("(&mut output)", "(&output)", 1))
    words = ("check", "-q", "--features", "cudarc", "--example", "shared_output")
    ended = cargo(slices, *words, expect=101, **RELEASE)
    assert "OperandMut<" in ended.stderr and ended.stderr.count("error[") == 1
    (slices / "examples" / "shared_output.rs").unlink()


def test_without_tensors_nothing_of_the_adapters_is_left_over(
    records: list[Record], cargo: Cargo, tmp_path: Path
) -> None:
    crate = render(of_kernel(records, "softmax", tensors={}), tmp_path)
    cargo(crate, "clippy", "-q", "--lib", "--features", "cudarc", "--", "-D", "warnings", **RELEASE)
