"""Sets of promises: variants that share one argument struct, and the launch's choice among them, in C and in Rust."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from pathlib import Path

import pytest

from kiln.engine.state import State
from kiln.errors import ManifestError
from kiln.library import Library
from project import Project

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def copy_kernel(out_ptr, in_ptr, step, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(in_ptr + offsets * step, mask=mask), mask=mask)
"""

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, gfx942]
kernels:
  copy:
    source: kernels/copy.py
    function: copy_kernel
    dtypes: [fp16]
    blocks: [256]
    name: copy_{dtype}_{block}
    signature: "*{dtype}:16, *{dtype}, i32, u64"
    promises: [{in_ptr: 16, step: 1, n: 16}, {tag: aligned, in_ptr: 16, n: 16}, {}]
    grid: ["cdiv(n, BLOCK_SIZE)"]
    inputs: {rows: i32}
  strict:
    source: kernels/copy.py
    function: copy_kernel
    dtypes: [fp16]
    blocks: [256]
    name: strict_{dtype}_{block}
    signature: "*{dtype}, *{dtype}, i32, u64"
    promises: [{step: 1}, {step: 16}]
    grid: ["cdiv(n, BLOCK_SIZE)"]
"""

COPIES = ["copy_fp16_256_in_ptr16_step1_n16", "copy_fp16_256_aligned", "copy_fp16_256"]
STRICT = ["strict_fp16_256_step1", "strict_fp16_256_step16"]

CASES = [
    # out_ptr, in_ptr, step, n -> place among the copies, place among the strict ones
    ((16, 32, 1, 64), 0, 0),
    ((0, 0, 1, 0), 0, 0),
    ((16, 32, 2, 64), 1, -1),
    ((16, 32, -16, 64), 1, 1),
    ((16, 32, 0, 2**64 - 16), 1, 1),
    ((16, 40, 1, 64), 2, 0),
    ((16, 32, 1, 63), 2, 0),
    ((16, 33, 17, 1), 2, -1),
    ((8, 32, 1, 64), -1, 0),
    ((8, 33, 3, 1), -1, -1),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("promises") / "scratch", manifest=MANIFEST, copy=KERNEL)
    project.doit().expect(" 0 failed")
    return project


def test_each_set_is_a_variant_and_changes_the_image(project: Project) -> None:
    digests, folded = {}, {}
    for path in (project.folder / "build/images/sm_80").glob("*.facts.json"):
        facts = json.loads(path.read_text())
        name = path.name.removesuffix(".facts.json")
        digests[name] = facts["sha256"]
        folded[name] = sum(item["role"] == "user" for item in facts["parameters"])
    assert set(digests) == {*COPIES, *STRICT}
    assert len(set(digests.values())) == 5
    assert folded == dict(zip([*COPIES, *STRICT], [3, 4, 4, 3, 4], strict=True))


def packed(values: tuple[int, ...], variant: str) -> bytes:
    """What the images of a variant take: without `step` where it is promised to be 1, and null for scratch."""
    out_ptr, in_ptr, step, n = values
    if "step1_" in f"{variant}_":
        return struct.pack("<QQQQQ", out_ptr, in_ptr, n, 0, 0)
    return struct.pack("<QQi4xQQQ", out_ptr, in_ptr, step, n, 0, 0)


def expected() -> list[str]:
    lines = []
    for values, copy, strict in CASES:
        for place, names in ((copy, COPIES), (strict, STRICT)):
            name = names[place] if place >= 0 else "none"
            buffer = packed(values, name).hex() if place >= 0 else ""
            lines.append(f"{place} {name} {buffer}".rstrip())
    return lines


def test_specialize_and_pack_in_c(project: Project, tmp_path: Path) -> None:
    """Sanitized, without a warning, as C and as C++: the place, its name, and the buffer that its images take."""
    rows = "".join(
        f"{{(void *)(uintptr_t){out}, (void *)(uintptr_t){source}, {step}, UINT64_C({n})}},"
        for (out, source, step, n), _, _ in CASES
    )

    def show(kernel: str, names: list[str], more: str) -> str:
        packs = "".join(
            f"case {place}: scratch_{name}_pack(&{kernel}, buffer); size = scratch_{name}_buffer_bytes; break;\n"
            for place, name in enumerate(names)
        )
        base = f"scratch_{kernel}_fp16_256"
        return f"""
        struct {base}_args {kernel} = {{cases[i].out, cases[i].in, cases[i].step, cases[i].n{more}}};
        place = {base}_specialize(&{kernel});
        size = 0;
        switch (place) {{ {packs} default: break; }}
        printf("%d %s", place, place < 0 ? "none" : {base}_variant(place));
        if (size) printf(" ");
        for (size_t k = 0; k < size; k++) printf("%02x", (unsigned)buffer[k]);
        printf("\\n");
        if ({base}_variant(-1) != NULL || {base}_variant({len(names)}) != NULL) return 1;
"""

    source = f"""
#include <scratch/scratch.h>
#include <stdio.h>
struct values {{ void *out; void *in; int32_t step; uint64_t n; }};
int main(void) {{
    static const struct values cases[] = {{ {rows} }};
    unsigned char buffer[64];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {{
        int place;
        size_t size;
        {show("copy", COPIES, ", 1")}
        {show("strict", STRICT, "")}
    }}
    return 0;
}}
"""
    for compiler, name in (("gcc", "main.c"), ("g++", "main.cpp")):
        (tmp_path / name).write_text(source)
        flags = [
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
        ]
        flags += ["-std=c99" if compiler == "gcc" else "-std=c++17", "-I", str(project.folder / "build/include")]
        command = [compiler, *flags, str(tmp_path / name), "-o", str(tmp_path / compiler)]
        subprocess.run(command, check=True)
        done = subprocess.run([tmp_path / compiler], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == expected()


def test_specialize_and_pack_in_rust(project: Project, tmp_path: Path) -> None:
    """Without a warning of clippy: the same answers, for variants with and without a module of their base's name."""
    rows = ",".join(f"({out}, {source}, {step}, {n})" for (out, source, step, n), _, _ in CASES)

    def show(kernel: str, names: list[str], more: str) -> str:
        packs = "".join(f"Some({place}) => {name}::pack(&args).to_vec(),\n" for place, name in enumerate(names))
        base = f"{kernel}_fp16_256"
        return f"""
        let args = {base}::Args {{ out_ptr: DevicePtr::new(out), in_ptr: DevicePtr::new(source), step, n{more} }};
        let place = args.specialize();
        let buffer = match place {{ {packs} _ => Vec::new() }};
        let hex: String = buffer.iter().map(|byte| format!("{{byte:02x}}")).collect();
        let name = place.map_or("none", |place| {base}::VARIANTS[place].name);
        let number = place.map_or(-1, |place| place as i64);
        println!("{{}}", format!("{{number}} {{name}} {{hex}}").trim_end());
"""

    program = f"""
use scratch::variants::*;
use scratch::DevicePtr;
const CASES: [(u64, u64, i32, u64); {len(CASES)}] = [{rows}];
fn main() {{
    for (out, source, step, n) in CASES {{
        {show("copy", COPIES, ", rows: 1")}
        {show("strict", STRICT, "")}
    }}
    assert_eq!(strict_fp16_256_step16::IMAGES.len(), 2);
}}
"""
    crate = project.folder / "build/rust/scratch"
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    (tmp_path / "user/src").mkdir(parents=True)
    (tmp_path / "user/src/main.rs").write_text(program)
    (tmp_path / "user/Cargo.toml").write_text(
        '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\nscratch = {{ path = "{crate}" }}\n'
    )
    done = subprocess.run(
        ["cargo", "run", "-q", "--offline"],
        cwd=tmp_path / "user",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected()
    clippy = ["cargo", "clippy", "-q", "--offline", "--", "-D", "warnings"]
    linted = subprocess.run(clippy, cwd=crate, env=environment, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stderr


def test_a_struct_for_all_sets_says_what_each_is_promised(project: Project) -> None:
    header = project.read("build/include/scratch/scratch.h")
    assert re.findall(r"^struct (\w+_args) \{", header, re.M) == [
        "scratch_copy_fp16_256_args",
        "scratch_strict_fp16_256_args",
        *(f"scratch_{name}_args" for name in ("copy_fp16", "strict_fp16", "copy", "strict")),
    ]
    lines = header.partition("struct scratch_copy_fp16_256_args {\n")[2].partition("};")[0].split("\n")
    assert lines[1].strip() == (
        "void *in_ptr; /* *fp16, address must be a multiple of 16 for copy_fp16_256_in_ptr16_step1_n16, "
        "copy_fp16_256_aligned */"
    )
    assert lines[2].strip() == (
        "int32_t step; /* i32, must be 1 for copy_fp16_256_in_ptr16_step1_n16, which is compiled in: no image there "
        "has it as a parameter */"
    )
    assert lines[3].strip() == (
        "uint64_t n; /* u64, value must be a multiple of 16 for copy_fp16_256_in_ptr16_step1_n16, "
        "copy_fp16_256_aligned, at 16 in the parameter buffer of copy_fp16_256_in_ptr16_step1_n16 */"
    )
    modules = re.findall(r"^pub mod (\w+);", project.read("build/rust/scratch/src/variants/mod.rs"), re.M)
    assert modules == [*COPIES, "strict_fp16_256", *STRICT]


def test_one_promise_more_rebuilds_its_variant_only(project: Project) -> None:
    project.edit("kernels.yaml", "{step: 16}]", "{step: 16, in_ptr: 16}]")
    try:
        ran = project.doit("compile").expect().ran("compile")
        assert set(ran) == {f"strict_fp16_256_step16_in_ptr16@{target}" for target in ("sm_80", "gfx942")}
    finally:
        project.edit("kernels.yaml", "{step: 16, in_ptr: 16}]", "{step: 16}]")


HEURISTIC = """\
import triton
import triton.language as tl


@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def even_kernel(out_ptr, n, EVEN: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out_ptr + offsets, 1.0, mask=(offsets < n) if not EVEN else None)
"""

EVEN = """\
version: 1
library: scratch
targets: [sm_80]
kernels:
  even:
    source: kernels/even.py
    function: even_kernel
    dtypes: [fp32]
    blocks: [256]
    name: even_{dtype}
    group: evens
    signature: "*{dtype}:16, i32"
    promises: [{n: 16}, {n: 1}]
    grid: ["cdiv(n, BLOCK_SIZE) * (1 + EVEN)"]
"""


def test_what_follows_from_promises_is_no_part_of_a_launch(tmp_path: Path) -> None:
    """A constant that a heuristic derives differs between the sets: images may have it, grid and select may not."""
    project = Project.create(tmp_path / "scratch", manifest=EVEN, even=HEURISTIC)
    refused = project.doit("header", "crate")
    refused.expect(r"kernels\.yaml:14:\d+: the launch of even_fp32 depends on EVEN", code=1)
    project.edit("kernels.yaml", " * (1 + EVEN)", "")
    project.doit("header", "crate").expect(" 0 failed")
    header = project.read("build/include/scratch/scratch.h")
    assert " * Constants: BLOCK_SIZE = 256\n" in header
    assert " *   0  even_fp32_n16: out_ptr % 16 == 0, n % 16 == 0, with EVEN = True\n" in header
    assert " *   1  even_fp32_n1: out_ptr % 16 == 0, n == 1, with EVEN = False\n" in header


@pytest.mark.parametrize(
    ("new", "place", "words"),
    [
        ("[{steps: 16}, {}]", "12:17", ["are about steps", "did you mean 'step'"]),
        ("[{rows: 16}]", "12:17", ["rows, which is no argument"]),
        ("[{BLOCK_SIZE: 16}]", "12:17", ["BLOCK_SIZE, which is no argument"]),
        ("[{in_ptr: 1}]", "12:17", ["cannot promise 1", ":16 (the address is divisible by 16)", "in_ptr: *fp16"]),
        ("[{out_ptr: 16}]", "12:17", ["already has a promise for out_ptr", "out_ptr: 16 beside *fp16:16"]),
        ("[{step: 8}]", "12:23", ["promises[0].step", "16 (address or value is divisible by 16) or 1", "8"]),
        ("[{step: 32}]", "12:23", ["write 16: it holds for every multiple of 16"]),
        ("[{step: yes}]", "12:23", ["an integer"]),
        ("[{}, {step: 16}]", "12:20", ["never picked: entry 0", "{step: 16} behind {}", "move it in front"]),
        ("[{step: 16}, {n: 16, step: 16}]", "12:28", ["never picked", "{n: 16, step: 16} behind {step: 16}"]),
        ("[{step: 16}, {step: 16}]", "12:28", ["never picked", "remove one of them"]),
        ("[{tag: a, step: 16}, {tag: A, step: 1}]", "12:37", ["the tag 'A'", "differ in more than"]),
        ("[{tag: a}]", "12:16", ["promises nothing, and has a tag"]),
        ("[{tag: a-b, step: 16}]", "12:22", ["a part of names"]),
        ("[{_x: 16}]", "12:16", ["needs a tag", "_x16"]),
        ("{step: 16}", "12:15", ["put brackets around it"]),
        ("[]", "12:15", ["a list of maps"]),
        ("[step]", "12:16", ["a map from arguments to 16 or 1"]),
    ],
)
def test_slips(tmp_path: Path, new: str, place: str, words: list[str]) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/copy.py").write_text(KERNEL)
    old = "[{in_ptr: 16, step: 1, n: 16}, {tag: aligned, in_ptr: 16, n: 16}, {}]"
    assert refused(tmp_path, old, new, place, words)


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        (
            "name: strict_{dtype}",
            "name: copy_{dtype}",
            "20:5",
            ["'copy_fp16_256', which 'copy_fp16_256_step1' is called without"],
        ),
        ("name: strict_{dtype}_{block}", "name: copy_fp16_256_aligned", "20:5", ["'copy_fp16_256_aligned'"]),
        ("inputs: {rows", "group: copy_{dtype}_256\n    inputs: {rows", "14:5", ["has the name of a variant"]),
    ],
)
def test_names_without_promises_are_nobody_elses(
    tmp_path: Path, old: str, new: str, place: str, words: list[str]
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/copy.py").write_text(KERNEL)
    assert refused(tmp_path, old, new, place, words)


def refused(folder: Path, old: str, new: str, place: str, words: list[str]) -> bool:
    assert MANIFEST.count(old) == 1
    (folder / "kernels.yaml").write_text(MANIFEST.replace(old, new))
    with pytest.raises(ManifestError) as caught:
        library = Library.load(folder / "kernels.yaml", folder / "build", State(folder / "build/state.sqlite"))
        for image in library.images:
            library.request(image)
    message = str(caught.value)
    print(message)
    assert f"kernels.yaml:{place}: " in message
    assert [word for word in words if word not in message] == []
    return True
