"""The Rust crate, by what cargo and the programs that depend on it make of it. Its images are real ones."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rust_crates import HOSTILE, Cargo, add_example, change, odd_records, render

from kiln.errors import KilnError, PackagingError
from kiln.manifest.model import Image
from kiln.packaging.record import Record
from kiln.packaging.rust_crate import render_crate
from kiln.packaging.rust_names import crate_files
from softmax_images import BUILT, SHAPES, expression, make_kernel, make_manifest, make_variant

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rust"


def copy_example(folder: Path) -> Path:
    return shutil.copytree(EXAMPLE, folder / "examples" / "rust", ignore=shutil.ignore_patterns("target", "Cargo.lock"))


@pytest.fixture(scope="module")
def crate(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(records, tmp_path_factory.mktemp("project"))


def test_the_files_are_those_announced_and_the_same_wherever_rendered(records: list[Record], tmp_path: Path) -> None:
    first, second = render(records, tmp_path / "a"), render(records, tmp_path / "elsewhere" / "b")
    files = {path.relative_to(first).as_posix(): path for path in first.rglob("*") if path.is_file()}
    assert sorted(files) == sorted(crate_files(make_manifest(records)))
    assert len(set(crate_files(make_manifest(records)))) == len(files)
    for name, path in files.items():
        assert path.read_bytes() == (second / name).read_bytes()
        assert str(tmp_path).encode() not in path.read_bytes()


def test_rustfmt_changes_nothing_and_every_item_is_documented(crate: Path, cargo: Cargo) -> None:
    cargo(crate, "fmt", "--check")
    cargo(crate, "doc", "-q", "--offline", RUSTDOCFLAGS="-D warnings")


SNIPPETS = Path(__file__).resolve().parents[2] / "docs" / "rust.md"
PROLOGUE = """
#![deny(warnings)]
#![allow(dead_code)]
use kernels::{groups, DevicePtr, Library, Stream, F16};
use std::ffi::c_void;

enum Dtype {
    F32,
    F16,
}

fn main() {}
"""


def test_the_snippets_of_the_page_compile(records: list[Record], cargo: Cargo, tmp_path: Path) -> None:
    """The two launches of docs/rust.md, in functions that have what they take for granted."""
    section = SNIPPETS.read_text("utf-8").partition("\n## Launching\n")[2].partition("\n## ")[0]
    launch, by_dtype = re.findall(r"(?:^ {4,}(?![ -]).*\n|(?<=\n)\n(?= {4,}))+", section, re.MULTILINE)
    crate = render(records, tmp_path)
    text = (
        f"{PROLOGUE}fn launch(output_ptr: DevicePtr<F16>, input_ptr: DevicePtr<F16>, stream: *mut c_void) "
        f"-> kernels::Result<()> {{\n{launch}    Ok(())\n}}\n"
        "fn by_dtype(library: &Library, dtype: Dtype, y: u64, x: u64, stream: Stream) "
        f"-> kernels::Result<()> {{\n{by_dtype}    Ok(())\n}}\n"
    )
    add_example(crate, "page", text)
    cargo(crate, "check", "-q", "--offline", "--example", "page")


def test_a_module_says_what_profilers_and_debuggers_show(records: list[Record], tmp_path: Path) -> None:
    """`entry_names: variant` and `debug: true`, beside a kernel with neither."""
    kernel = make_kernel(key="lined", entry_names="variant", debug=True)
    variant = make_variant(kernel, *SHAPES[0], id="lined_fp32", group="lined_fp32")
    lined = [
        change(record, image=Image(variant=variant, target=record.image.target), facts={"entry": "lined_fp32"})
        for record in records[:4]
    ]
    modules = render([*records, *lined], tmp_path) / "src" / "variants"
    said = (
        "//! - Entry: `lined_fp32`, as profilers show it\n//! - Line tables: debuggers and profilers show the source\n"
    )
    text = (modules / "lined_fp32.rs").read_text()
    assert said in text and text.count('    entry: "lined_fp32",\n') == 4
    text = (modules / "softmax_fp32_1024.rs").read_text()
    assert "//! - Entry: `softmax_kernel`, as profilers show it\n" in text and "Line tables" not in text


DISABLED = """
fn main() {
    println!("{} {}", kernels::IMAGES.len(), kernels::VARIANTS.len());
    println!("{}", kernels::Library::for_device(0).unwrap_err());
    println!("{}", unsafe { kernels::Library::for_current_context() }.unwrap_err());
}
"""


def test_a_disabled_crate_has_no_images_and_says_so(records: list[Record], cargo: Cargo, tmp_path: Path) -> None:
    crate = render(records, tmp_path)
    add_example(crate, "disabled", DISABLED)
    ended = cargo(crate, "run", "-q", "--offline", "--features", "disabled", "--example", "disabled")
    why = "the crate was built with its feature `disabled`, and has no kernels; build it without that feature"
    assert ended.stdout.splitlines() == ["0 2", why, why]
    program = cargo.program("disabled").read_bytes()
    assert [record.image.id for record in records if record.path.read_bytes() in program] == []


def test_the_package_holds_every_file_with_no_help_from_git(
    records: list[Record], crate: Path, cargo: Cargo, tmp_path: Path
) -> None:
    """build/ is ignored by git; what cargo packages must not depend on that."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/build/\n")
    inside = shutil.copytree(crate, tmp_path / "build" / "rust" / "kernels")
    listed = cargo(inside, "package", "--list", "--allow-dirty", "--offline").stdout.split()
    assert set(crate_files(make_manifest(records))) <= set(listed)
    assert set(listed) - set(crate_files(make_manifest(records))) <= {"Cargo.lock", "Cargo.toml.orig"}


# Prints a JSON object for each image; every text in these images is plain ASCII.
DUMP = r"""
fn number(value: Option<u32>) -> String {
    value.map_or("null".into(), |value| value.to_string())
}

fn text(value: Option<&str>) -> String {
    value.map_or("null".into(), |value| format!("{value:?}"))
}

fn main() {
    for i in kernels::IMAGES {
        let parameters: Vec<String> = i
            .parameters
            .iter()
            .map(|p| {
                let (promise, role) = (number(p.promise), format!("{:?}", p.role));
                format!("[{:?}, {:?}, {role:?}, {}, {}, {promise}]", p.name, p.rust_type, p.offset, p.size)
            })
            .collect();
        let constants = i.constants.iter().map(|c| format!("[{:?}, \"{:?}\"]", c.name, c.value));
        let constants: Vec<String> = constants.collect();
        print!("{{\"id\": {:?}, \"kernel\": {:?}, \"variant\": {:?}, ", i.id, i.kernel, i.variant);
        print!("\"group\": {:?}, \"dtype\": {:?}, \"block\": {:?}, ", i.group, i.dtype, i.block);
        print!("\"target\": {:?}, \"entry\": {:?}, \"kind\": \"{}\", ", i.target, i.entry, i.kind);
        print!("\"size\": {}, \"sha256\": {:?}, ", i.bytes.len(), i.sha256);
        print!("\"c_size\": {}, \"ptx\": {}, ", i.as_c_bytes().len(), i.ptx().map_or(0, |t| t.to_bytes().len()));
        print!("\"aligned\": {}, ", i.bytes.as_ptr() as usize % 64 == 0);
        print!("\"parameters\": [{}], \"parameter_bytes\": {}, ", parameters.join(", "), i.parameter_bytes);
        print!("\"constants\": [{}], \"threads\": {}, \"warps\": {}, ", constants.join(", "), i.threads, i.warps);
        print!("\"warps_requested\": {}, \"warp_size\": {}, ", i.warps_requested, i.warp_size);
        print!("\"cluster\": {:?}, \"cooperative\": {}, \"pdl\": {}, ", i.cluster, i.cooperative, i.pdl);
        print!("\"shared_static\": {}, \"shared_dynamic\": {}, ", i.shared_static, i.shared_dynamic);
        print!("\"global_scratch\": [{}, {}], ", i.global_scratch_bytes, i.global_scratch_align);
        print!("\"profile_scratch\": [{}, {}], ", i.profile_scratch_bytes, i.profile_scratch_align);
        print!("\"registers\": {}, \"scalar_registers\": {}, ", number(i.registers), number(i.scalar_registers));
        print!("\"spills\": {}, \"stack\": {}, ", number(i.spills), number(i.stack));
        println!("\"ptx_isa\": {}, \"grid\": {:?}, \"select\": {}}}", text(i.ptx_isa), i.grid, text(i.select));
    }
}
"""


def expected_dump(record: Record) -> dict[str, Any]:
    image, facts = record.image, record.facts
    variant = image.variant
    arguments = iter(record.interface.arguments)
    rust_types = {"i32": "i32", f"*{variant.dtype}": f"DevicePtr<{'F16' if variant.dtype == 'fp16' else 'f32'}>"}
    roles = {"global_scratch": "GlobalScratch", "profile_scratch": "ProfileScratch"}
    parameters = []
    for parameter in facts.parameters:
        if parameter.role == "user":
            argument = next(arguments)
            head: list[Any] = [argument.name, rust_types[argument.type], "User"]
            promise = argument.promise
        else:
            head, promise = [parameter.role, "DevicePtr<c_void>", roles[parameter.role]], None
        parameters.append([*head, parameter.offset, parameter.size, promise])
    is_ptx = facts.kind == "ptx"
    return {
        "id": image.id,
        "kernel": "softmax",
        "variant": variant.id,
        "group": variant.group,
        "dtype": variant.dtype,
        "block": variant.block,
        "target": image.target,
        "entry": "softmax_kernel",
        "kind": facts.kind,
        "size": record.path.stat().st_size,
        "sha256": list(bytes.fromhex(facts.sha256)),
        "c_size": record.path.stat().st_size + is_ptx,
        "ptx": record.path.stat().st_size if is_ptx else 0,
        "aligned": True,
        "parameters": parameters,
        "parameter_bytes": facts.parameter_bytes,
        "constants": [["BLOCK_SIZE", f"Int({variant.block})"]],
        "threads": facts.threads,
        "warps": facts.warps,
        "warps_requested": variant.options["num_warps"],
        "warp_size": facts.warp_size,
        "cluster": [1, 1, 1],
        "cooperative": facts.cooperative,
        "pdl": facts.pdl,
        "shared_static": facts.shared_static,
        "shared_dynamic": facts.shared_dynamic,
        "global_scratch": [facts.global_scratch_bytes, facts.global_scratch_align],
        "profile_scratch": [facts.profile_scratch_bytes, facts.profile_scratch_align],
        "registers": facts.registers,
        "scalar_registers": facts.scalar_registers,
        "spills": facts.spills,
        "stack": facts.stack,
        "ptx_isa": facts.ptx_isa,
        "grid": ["n_rows", "1", "1"],
        "select": "n_cols <= BLOCK_SIZE",
    }


def test_a_program_reads_every_fact_of_every_record_in_order(
    records: list[Record], cargo: Cargo, tmp_path: Path
) -> None:
    crate = render(records, tmp_path)
    add_example(crate, "dump", DUMP)
    printed = cargo(crate, "run", "-q", "--offline", "--example", "dump").stdout.splitlines()
    assert [json.loads(line) for line in printed] == [expected_dump(record) for record in records]


def test_walk_finds_every_image_whole_and_a_changed_one_not(
    records: list[Record], cargo: Cargo, tmp_path: Path
) -> None:
    """examples/rust as users run it; then with a byte of one image changed behind the crate's back."""
    crate, example = render(records, tmp_path), copy_example(tmp_path)
    cargo(example, "fmt", "--check")
    cargo(example, "clippy", "-q", "--", "-D", "warnings")
    lines = cargo(example, "run", "-q").stdout.splitlines()
    assert lines == [f"{r.image.id} {r.facts.kind} {r.facts.size} {r.facts.sha256} ok" for r in records]

    victim = crate / "images" / "gfx942" / "softmax_fp16_2048.hsaco"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    ended = cargo(example, "run", "-q", expect=1)
    assert ended.stdout.splitlines()[-1].endswith("has another digest than its record")
    assert ended.stderr == "1 of 8 images are not what their records say\n"

    victim.write_bytes(data[:-1])
    assert "expected an array with a size" in cargo(example, "check", "-q", expect=101).stderr
    victim.write_bytes(data)

    ptx = crate / "images" / "compute_80" / "softmax_fp16_2048.ptx"
    ptx.write_bytes(ptx.read_bytes()[:-1] + b"\n")
    assert "a PTX image must end with a NUL" in cargo(example, "check", "-q", expect=101).stderr


LOOKUPS = """
fn main() {
    let count = |images: usize| print!("{images} ");
    count(kernels::images().len());
    count(kernels::IMAGES.len());
    count(kernels::group("softmax_fp16").count());
    count(kernels::group("softmax").count());
    count(kernels::for_target("compute_80").count());
    count(kernels::for_target("sm_90").count());
    count(kernels::find("softmax_fp32_1024", "gfx942").into_iter().count());
    count(kernels::find("softmax_fp32_1024", "sm_90").into_iter().count());
    count(kernels::variants::softmax_fp16_2048::IMAGES.len());
    println!("{:?}", kernels::TARGETS);
}
"""


@pytest.mark.parametrize(
    ("features", "printed"),
    [
        ("", f"8 8 4 0 2 0 1 0 4 {json.dumps(BUILT)}"),
        ("--no-default-features", "0 0 0 0 0 0 0 0 0 []"),
        ("--no-default-features --features sm_80,compute_80", '4 4 2 0 2 0 0 0 2 ["sm_80", "compute_80"]'),
        ("--no-default-features --features gfx942", '2 2 1 0 0 0 1 0 1 ["gfx942"]'),
    ],
)
def test_a_feature_that_is_off_leaves_its_images_out(
    records: list[Record], cargo: Cargo, tmp_path: Path, features: str, printed: str
) -> None:
    """Lookups find what is there; the images of other targets are in no byte of the program."""
    crate = render(records, tmp_path)
    add_example(crate, "lookups", LOOKUPS)
    ended = cargo(crate, "run", "-q", "--offline", "--example", "lookups", *features.split())
    assert ended.stdout.strip() == printed
    program = cargo.program("lookups").read_bytes()
    kept = [record.image.target for record in records if record.path.read_bytes() in program]
    assert set(kept) == set(json.loads(printed[printed.index("[") :]))


def test_a_program_that_names_one_image_holds_no_other(records: list[Record], cargo: Cargo, tmp_path: Path) -> None:
    crate = render(records, tmp_path)
    add_example(
        crate,
        "one",
        "fn main() {\n"
        "    let bytes = kernels::variants::softmax_fp16_2048::SM_90A.bytes;\n"
        "    let name = std::env::args().nth(1).unwrap();\n"
        '    println!("{}", bytes.windows(name.len()).any(|window| window == name.as_bytes()));\n'
        "}\n",
    )
    words = ("run", "-q", "--offline", "--release", "--example", "one", "--", "softmax_kernel")
    assert cargo(crate, *words).stdout == "true\n"
    program = (cargo.target / "release" / "examples" / "one").read_bytes()
    held = [record.image.id for record in records if record.path.read_bytes() in program]
    assert held == ["softmax_fp16_2048@sm_90a"]


def test_the_layout_is_asserted(records: list[Record], cargo: Cargo, tmp_path: Path) -> None:
    """With one offset or one size changed in the crate, the compiler does not take it."""
    crate = render(records, tmp_path)
    module = crate / "src" / "variants" / "softmax_fp32_1024.rs"
    text = module.read_text()
    for right, wrong in (
        ("offset_of!(Args, n_cols) == 24", "offset_of!(Args, n_cols) == 20"),
        ("size_of::<i32>() == 4", "size_of::<i32>() == 8"),
    ):
        assert right in text
        module.write_text(text.replace(right, wrong))
        stderr = cargo(crate, "check", "-q", "--offline", expect=101).stderr
        assert f"assertion failed: core::mem::{wrong}" in stderr


PACK = """
use kernels::variants::folded_fp32_1024::{pack, Args};
use kernels::DevicePtr;

fn main() {
    let args = Args {
        output_ptr: DevicePtr::new(0x1122), input_ptr: DevicePtr::new(0x3344), input_row_stride: 1,
        output_row_stride: 55, n_cols: -2, n_rows: 77,
    };
    println!("{:?}", pack(&args));
}
"""


def test_packing_follows_the_images(folded: list[Record], cargo: Cargo, tmp_path: Path) -> None:
    """Real images whose third argument is folded: what follows it lies 4 bytes lower in the buffer than in `Args`."""
    crate = render(folded, tmp_path)
    add_example(crate, "pack", PACK)
    printed = json.loads(cargo(crate, "run", "-q", "--offline", "--example", "pack").stdout)
    assert bytes(printed) == struct.pack("<QQii", 0x1122, 0x3344, 55, -2).ljust(folded[0].facts.parameter_bytes, b"\0")
    assert {record.facts.parameter_bytes for record in folded} == {40}
    module = (crate / "src" / "variants" / "folded_fp32_1024.rs").read_text()
    assert "    assert!(core::mem::offset_of!(Args, n_cols) == 24);\n" in module
    assert "    /// `i32`; at 20 in the parameter buffer.\n    pub n_cols: i32,\n" in module
    assert 'Constant { name: "input_row_stride", value: crate::Value::Int(1) }' in module


def test_the_crate_claims_no_license(crate: Path) -> None:
    """Kernels are their authors', who alone can say."""
    assert "license" not in (crate / "Cargo.toml").read_text().lower()


ODD = """
use Odd_Kernels::variants::odd_FP32::{pack, Args, SM_80};
use Odd_Kernels::{DevicePtr, GridError, Value, BF16};

fn main() {
    let text = SM_80.constants.iter().find_map(|c| match c.value {
        Value::Text(text) => Some(text),
        _ => None,
    });
    println!("{:?}", text.unwrap().as_bytes());
    let packed = Args {
        self_: DevicePtr::new(u64::MAX - 1), type_: -2, N: 1, scale: 0.5, half: BF16::from_bits(0x3f80), flag: true,
        M: 200, self__: -1.5, batch: 3,
    };
    println!("{:?}", pack(&packed));
    for (type_, batch, flag, m) in CASES {
        let args = Args {
            self_: DevicePtr::new(16), type_, N: 1, scale: 0.5, half: BF16::from_bits(0x3f80), flag, M: m, self__: 1.0,
            batch,
        };
        let grid = match args.grid() {
            Ok(Some(grid)) => format!("{grid:?}"),
            Ok(None) => "empty".into(),
            Err(GridError::OutOfRange { axis, extent, .. }) => format!("{axis} {extent}"),
            Err(GridError::ArgumentOutOfRange { name, value }) => format!("{name} {value}"),
            Err(error) => error.to_string(),
        };
        println!("{grid} {}", args.selects());
    }
}
"""

ODD_CASES = [
    (type_, batch, flag, m)
    for type_ in (-(2**63), -1, 0, 1, 64, 65, 1000, 2**31 * 64, 2**40)
    for batch, flag, m in ((0, True, 0), (1, False, 5), (99, False, 2), (65535, True, 3), (65536, True, 3))
] + [(64, 2**63, True, 0), (64, 2**64 - 1, False, 9)]


def test_every_kind_of_argument_constant_and_name_compiles_and_means_what_was_declared(
    records: list[Record], cargo: Cargo, tmp_path: Path
) -> None:
    """Keywords, capitals, folded arguments, hostile texts; grids and conditions equal Kiln's own evaluation."""
    odd = odd_records(records)
    crate = render(odd, tmp_path, "Odd_Kernels")
    cargo(crate, "clippy", "-q", "--offline", "--", "-D", "warnings")
    cargo(crate, "doc", "-q", "--offline", RUSTDOCFLAGS="-D warnings")
    cargo(crate, "test", "-q", "--offline", "--doc")

    cases = ", ".join(f"({t}, {b}, {str(f).lower()}, {a})" for t, b, f, a in ODD_CASES)
    add_example(crate, "odd", f"const CASES: [(i64, u64, bool, u8); {len(ODD_CASES)}] = [{cases}];\n{ODD}")
    printed = cargo(crate, "run", "-q", "--offline", "--example", "odd").stdout.splitlines()
    assert bytes(json.loads(printed.pop(0))) == HOSTILE.encode()
    # In the images N is folded: `@` with natural alignment, and without it.
    assert bytes(json.loads(printed.pop(0))) == struct.pack("@QqfH?Bd", 2**64 - 2, -2, 0.5, 0x3F80, True, 200, -1.5)

    kernel = odd[0].image.variant.kernel
    for line, (type_, batch, flag, m) in zip(printed, ODD_CASES, strict=True):
        values = {"type": type_, "batch": batch, "flag": flag, "M": m, "N": 1, "BLOCK": 64, "OFFSET": -3}
        assert line == odd_line(kernel, values), values


def odd_line(kernel: Any, values: Mapping[str, int]) -> str:
    if values["batch"] >= 2**63:
        return f"batch {values['batch']} false"
    extents = [int(extent.evaluate(values)) for extent in kernel.grid]
    select = str(bool(kernel.select.evaluate(values))).lower()
    for axis, (extent, limit) in enumerate(zip(extents, (2**31 - 1, 65535, 65535), strict=True)):
        if not 0 <= extent <= limit:
            return f"{axis} {extent} {select}"
    return f"{'empty' if 0 in extents else extents} {select}"


def refusal(records: list[Record], folder: Path, version: str = "0.1.0", manifest: Any = None) -> PackagingError:
    with pytest.raises(PackagingError) as caught:
        render_crate(records, manifest or make_manifest(records), version, folder)
    assert isinstance(caught.value, KilnError)
    return caught.value


def test_parameters_that_no_struct_has_are_refused_by_name(records: list[Record], tmp_path: Path) -> None:
    parameters = list(records[3].facts.parameters)
    parameters[4] = dataclasses.replace(parameters[4], offset=28)
    wrong = [*records[:3], change(records[3], facts={"parameters": tuple(parameters)}), *records[4:]]
    error = refusal(wrong, tmp_path)
    assert error.where == "softmax_fp32_1024@gfx942"
    assert (error.expected, error.actual) == ("offset 24", "offset 28")


def test_an_image_with_too_few_parameters_is_refused(records: list[Record], tmp_path: Path) -> None:
    wrong = [change(r, facts={"parameters": r.facts.parameters[1:]}) for r in records]
    error = refusal(wrong, tmp_path)
    assert error.where == "softmax_fp32_1024@sm_80"
    assert error.actual == "8 bytes at 8, 4 bytes at 16, 4 bytes at 20, 4 bytes at 24"


def test_an_image_that_changed_since_it_was_measured_is_refused(records: list[Record], tmp_path: Path) -> None:
    torn = tmp_path / "torn.cubin"
    torn.write_bytes(records[0].path.read_bytes()[:100])
    error = refusal([change(records[0], path=torn), *records[1:]], tmp_path / "crate")
    assert "softmax_fp32_1024@sm_80 is not the one that was measured" in error.what
    assert error.where == str(torn)


def test_ptx_with_a_nul_inside_is_refused(records: list[Record], tmp_path: Path) -> None:
    ptx = tmp_path / "nul.ptx"
    ptx.write_bytes(b".version 8.0\0\n")
    digest = hashlib.sha256(ptx.read_bytes()).hexdigest()
    wrong = [*records[:2], change(records[2], path=ptx, facts={"sha256": digest, "size": 14}), *records[3:]]
    error = refusal(wrong, tmp_path / "crate")
    assert "softmax_fp32_1024@compute_80 holds a NUL" in error.what
    assert error.actual == "one at byte 12 of 14"


def test_a_missing_and_an_extra_image_are_refused(records: list[Record], tmp_path: Path) -> None:
    error = refusal(records[:-1], tmp_path, manifest=make_manifest(records))
    assert error.expected == "softmax_fp16_2048@gfx942, image 8 of 8"
    assert error.actual == "nothing more"
    error = refusal(records, tmp_path, manifest=make_manifest(records[:-1]))
    assert error.actual == "softmax_fp16_2048@gfx942"
    assert "no image" in refusal([], tmp_path).what


def test_an_expression_over_an_unknown_name_is_refused_where_it_stands(records: list[Record], tmp_path: Path) -> None:
    kernel = make_kernel(grid=(expression("n_row"), expression("1"), expression("1")))
    variant = make_variant(kernel, *SHAPES[0])
    error = refusal([change(records[0], image=Image(variant=variant, target="sm_80"))], tmp_path)
    assert str(error.where) == "kernels.yaml:8:3"
    assert "grid of softmax depends on 'n_row'" in error.what
    assert error.actual == "n_row"
    assert error.remedy == "did you mean 'n_rows'?"


def test_a_launch_input_named_like_an_argument_is_refused(records: list[Record], tmp_path: Path) -> None:
    variant = make_variant(make_kernel(inputs={"n_rows": "i32", "n_cols": "i32"}), *SHAPES[0])
    error = refusal([change(records[0], image=Image(variant=variant, target="sm_80"))], tmp_path)
    assert re.search("two arguments or launch inputs that structs would call 'n_cols'", error.what)


def test_a_constant_beyond_64_bits_is_refused(records: list[Record], tmp_path: Path) -> None:
    interface = dataclasses.replace(records[0].interface, constants={"BLOCK_SIZE": 1024, "SEED": 2**63})
    error = refusal([change(records[0], interface=interface)], tmp_path)
    assert "SEED" in error.what
    assert error.actual == str(2**63)
