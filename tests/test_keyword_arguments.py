"""Arguments with names that C, C++ or Rust keeps for itself, as `do` in every backward pass of attention."""

from __future__ import annotations

import json
import keyword
import os
import re
import subprocess
from pathlib import Path

import pytest

from kiln.manifest.names import C_KEYWORDS, CPP_KEYWORDS, LATER_KEYWORDS, MACROS, RUST_KEYWORDS
from project import Project

POINTER = "do"
WORDS = tuple(
    word
    for word in sorted(C_KEYWORDS | CPP_KEYWORDS | RUST_KEYWORDS | LATER_KEYWORDS | MACROS)
    if not keyword.iskeyword(word) and word != POINTER
)
"""every one that a parameter in Python can have"""

KERNEL = f"""\
import triton
import triton.language as tl


@triton.jit
def back_kernel({POINTER}, {", ".join(WORDS)}):
    tl.store({POINTER} + tl.program_id(0), {" + ".join(WORDS)})
"""

MANIFEST = f"""\
version: 1
library: scratch
targets: [sm_80, gfx942]
kernels:
  back:
    source: kernels/back.py
    function: back_kernel
    dtypes: [fp32]
    name: back_{{dtype}}
    signature: "*i32:16, {", ".join("u64" if word == "typename" else "i32" for word in WORDS)}"
    promises: [{{new: 16, virtual: 1}}, {{}}]
    grid: ["cdiv(register + typename, 64)", fn]
    select: move < 9
    tensors: {{{POINTER}: [typename, register]}}
    problems: [{{register: 2, typename: 3}}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    scratch = Project.create(tmp_path_factory.mktemp("keywords") / "scratch", manifest=MANIFEST, back=KERNEL)
    scratch.doit().expect("0 failed")
    return scratch


VALUES = {word: index + 3 for index, word in enumerate(WORDS)} | {"new": 32, "virtual": 1, "move": 8, "fn": 5}
ADDRESS = 0x1122334455667780


def expected() -> list[str]:
    """What the programs below print: the choice, the grid, the selection, and each parameter under its own name."""
    blocks = (VALUES["register"] + VALUES["typename"] + 63) // 64
    parameters = [(POINTER, ADDRESS), *VALUES.items()]
    return [f"0 {blocks} {VALUES['fn']} 1", *(f"{name} {value}" for name, value in parameters)]


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c99"), ("gcc", "c17"), ("g++", "c++17"), ("g++", "c++20")])
def test_in_c(project: Project, tmp_path: Path, compiler: str, standard: str) -> None:
    """Structs and functions compile without a warning, and records have the names of the kernel's source."""
    assignments = "".join(f"args.{word}_ = {VALUES[word]};\n" for word in WORDS)
    source = tmp_path / f"main.{'c' if compiler == 'gcc' else 'cpp'}"
    source.write_text(f"""\
#include <assert.h>
#include <errno.h>
#include <scratch/scratch.h>
#include <stdio.h>
int main(void) {{
    const struct scratch_image *image = &scratch_back_fp32__sm_80;
    struct scratch_back_fp32_args args;
    unsigned char buffer[scratch_back_fp32_buffer_bytes];
    uint32_t grid[3];
    args.{POINTER}_ = (void *)(uintptr_t){ADDRESS:#x};
    {assignments}
    if (scratch_back_fp32_grid(&args, grid) != SCRATCH_GRID_OK) return 1;
    printf("%d %d %d %d\\n", scratch_back_fp32_specialize(&args), (int)grid[0], (int)grid[1],
           (int)scratch_back_fp32_selects(&args));
    scratch_back_fp32_pack(&args, buffer);
    for (size_t i = 0; i < image->parameter_count; i++) {{
        const struct scratch_parameter *parameter = &scratch_image_parameters(image)[i];
        uint64_t value = 0;
        if (parameter->role != SCRATCH_ROLE_USER) continue;
        memcpy(&value, buffer + parameter->offset, parameter->size);
        printf("%s %llu\\n", scratch_parameter_name(parameter), (unsigned long long)value);
    }}
    return 0;
}}
""")
    build = project.folder / "build"
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wno-long-long", "-Werror"]
    library = [str(build / "lib/libscratch.a"), "-o", str(tmp_path / "program")]
    subprocess.run([compiler, *flags, "-I", str(build / "include"), str(source), *library], check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected()


def test_in_rust(project: Project, tmp_path: Path) -> None:
    """The same names and answers, and neither crate nor program has a warning."""
    fields = "".join(f"{word}_: {VALUES[word]},\n" for word in WORDS)
    crate = project.folder / "build/rust/scratch"
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.rs").write_text(f"""\
use scratch::variants::back_fp32::{{pack, Args, SM_80}};
fn main() {{
    let args = Args {{ {POINTER}_: scratch::DevicePtr::new({ADDRESS:#x}), {fields} }};
    let grid = args.grid().unwrap().unwrap();
    println!("{{}} {{}} {{}} {{}}", args.specialize().unwrap(), grid[0], grid[1], u8::from(args.selects()));
    let buffer = pack(&args);
    for parameter in SM_80.parameters.iter().filter(|one| one.role == scratch::Role::User) {{
        let mut value = [0; 8];
        let size = parameter.size as usize;
        value[..size].copy_from_slice(&buffer[parameter.offset as usize..][..size]);
        println!("{{}} {{}}", parameter.name, u64::from_le_bytes(value));
    }}
}}
""")
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\nscratch = {{ path = "{crate}" }}\n'
    )
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target"), "RUSTFLAGS": "-D warnings"}
    done = subprocess.run(
        ["cargo", "run", "-q", "--offline"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected()


def test_header_and_crate_say_what_was_renamed(project: Project) -> None:
    said = "called do in the kernel and in records"
    header = project.read("build/include/scratch/scratch.h")
    assert f"void *do_; /* *i32, [typename, register], {said}, address must be a multiple of 16 */" in header
    assert "C, C++ or Rust keeps for itself has an underscore behind it here (do_)" in header
    module = project.read("build/rust/scratch/src/variants/back_fp32.rs")
    documented = rf"/// Device address of `i32` elements .*; {said}; .*\n    pub do_: crate::DevicePtr<i32>,"
    assert re.search(documented, module)
    facts = json.loads(project.read("build/images/sm_80/back_fp32.facts.json"))
    assert len([item for item in facts["parameters"] if item["role"] == "user"]) == len(WORDS) + 1


def test_a_kernel_without_blocks_says_so_nowhere(project: Project) -> None:
    """It has neither a block in names and descriptions nor a place for one."""
    assert "back_fp32: kernel back, group back_fp32_group, dtype fp32\n" in project.read(
        "build/include/scratch/scratch.h"
    )
    module = project.read("build/rust/scratch/src/variants/back_fp32.rs")
    assert module.startswith("//! `back_fp32`: function `back_kernel` of `kernels/back.py`, for dtype `fp32`.\n")
    assert '    block: "",\n' in module and "- `back_fp32`: group `back_fp32_group`, dtype `fp32`\n" in project.read(
        "build/rust/scratch/README.md"
    )


def test_two_arguments_that_structs_would_not_tell_apart(project: Project) -> None:
    project.edit("kernels/back.py", "(do, ", "(do, do_, ")
    project.edit("kernels.yaml", '"*i32:16, ', '"*i32:16, i32, ')
    try:
        project.doit().expect(
            r"^FAILED compile:back_fp32_new16_virtual1@sm_80\n"
            r"  kernels/back\.py:6:1: do and do_ would both be do_ in C and Rust, where do has an underscore behind",
            r"^    expected: names that stay apart when do, which C, C\+\+ or Rust keeps for itself, is called do_\n"
            r"    actual: do, do_\n    remedy: rename one of them$",
            code=1,
        )
    finally:
        project.edit("kernels/back.py", "(do, do_, ", "(do, ")
        project.edit("kernels.yaml", '"*i32:16, i32, ', '"*i32:16, ')
