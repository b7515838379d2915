"""kernels.yaml as a whole: the model it reads to, and each thing that can be wrong, with file, line and column."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest.compound_types import Section
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.schema import KERNEL, OPTIONS, TOP
from kiln.manifest.yaml_tree import read_yaml

REPOSITORY = Path(__file__).parents[2]

HEAD = """\
version: 1
library: kernels
targets: [sm_80, gfx942]
"""

KERNEL_TEXT = """\
  softmax:
    source: kernels/softmax.py
    function: softmax_kernel
    dtypes: [fp32, fp16]
    blocks: [1024, 2048]
    name: softmax_{dtype}_{block}
    signature: "*{dtype}:16, i32"
    grid: [n]
    options: {num_warps: 4}
"""

BASE = f"{HEAD}kernels:\n{KERNEL_TEXT}"
LAST = "    options: {num_warps: 4}"
"""the last line, 13, which tests replace"""
GRID = "    grid: [n]"
"""line 12"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a source and a reference, as the current folder."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/softmax.py").write_text("")
    (tmp_path / "kernels/reference.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_text(text: str) -> Manifest:
    Path("kernels.yaml").write_text(text, encoding="utf-8")
    return load(Path("kernels.yaml"))


def replace(old: str, new: str) -> str:
    assert BASE.count(old) == 1
    return BASE.replace(old, new)


def with_line(line: str) -> str:
    """The manifest with another grid, or with another key in place of its last one."""
    return replace(GRID if line.startswith("grid:") else LAST, f"    {line}")


def refusal(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_text(text)
    return str(caught.value)


def test_the_repositorys_own_manifest() -> None:
    manifest = load(REPOSITORY / "kernels.yaml")
    assert (len(manifest.variants), len(manifest.images)) == (82, 294)
    assert [variant.id for variant in manifest.variants[:6]] == [
        *(f"softmax_fp32_{block}" for block in (1024, 2048, 4096, 8192, 16384)),
        "softmax_fp16_1024",
    ]
    assert [image.id for image in manifest.images[:5]] == [
        *(f"softmax_fp32_1024@{target}" for target in ("sm_80", "sm_90a", "compute_80", "gfx942")),
        "softmax_fp32_2048@sm_80",
    ]
    assert [variant.options["num_warps"] for variant in manifest.variants[:5]] == [4, 8, 16, 16, 16]
    kernel = manifest.kernels[0]
    assert [expression.text for expression in kernel.grid] == ["n_rows", "1", "1"]
    assert kernel.select is not None
    assert kernel.select.evaluate({"n_cols": 1024, "BLOCK_SIZE": 1024}) is True
    assert {name: [e.text for e in shape] for name, shape in kernel.tensors.items()} == {
        "output_ptr": ["n_rows", "n_cols"],
        "input_ptr": ["n_rows", "n_cols"],
    }
    assert {name: [e.text for e in strides] for name, strides in kernel.strides.items()} == {
        "output_ptr": ["output_row_stride", "1"],
        "input_ptr": ["input_row_stride", "1"],
    }
    assert (kernel.outputs, kernel.any_values) == (("output_ptr",), ())
    assert kernel.tolerance == {"fp32": 1e-5, "fp16": 1e-3, "bf16": 1e-2}
    assert kernel.problems[1:3] == ({"n_rows": 4, "n_cols": 1000}, {"n_rows": 8192, "n_cols": 2048})
    assert kernel.inputs == {"n_rows": "i32"}
    assert kernel.reference == "kernels/softmax_reference.py:softmax"


def test_the_model(folder: Path) -> None:
    manifest = load_text(BASE)
    assert (manifest.path, manifest.root, manifest.library) == (folder / "kernels.yaml", folder, "kernels")
    assert (manifest.targets, manifest.host) == (("sm_80", "gfx942"), "x86_64-linux-gnu")
    assert str(manifest.target_positions["gfx942"]) == "kernels.yaml:3:18"
    kernel = manifest.kernels[0]
    assert (str(kernel.position), str(kernel.positions["signature"])) == ("kernels.yaml:5:3", "kernels.yaml:11:5")
    assert kernel.source == folder / "kernels/softmax.py"
    assert (kernel.source_name, kernel.function) == ("kernels/softmax.py", "softmax_kernel")
    variant = manifest.variants[3]
    assert (variant.id, variant.dtype, variant.block) == ("softmax_fp16_2048", "fp16", "2048")
    assert variant.constants == {"BLOCK_SIZE": 2048}
    assert [(item.type, item.promise) for item in variant.signature.items] == [("*fp16", 16), ("i32", None)]
    assert variant.kernel is kernel


def test_what_is_left_out(folder: Path) -> None:
    """The defaults of the format."""
    manifest = load_text(BASE)
    kernel, variant = manifest.kernels[0], manifest.variants[0]
    assert variant.group == "softmax_fp32"
    assert [expression.evaluate({"n": 7}) for expression in kernel.grid] == [7, 1, 1]
    assert (kernel.select, kernel.reference) == (None, None)
    assert (kernel.inputs, kernel.tensors, kernel.problems, kernel.tolerance) == ({}, {}, (), {})
    assert (kernel.strides, kernel.outputs, kernel.any_values) == ({}, None, ())
    assert variant.options == {"num_warps": 4, "enable_fp_fusion": True}


def test_options_over_defaults_over_built_in(folder: Path) -> None:
    """In the order of the table, whatever the order in the file."""
    text = replace(
        "kernels:\n", "defaults: {num_stages: 2, num_warps: block // 256, enable_fp_fusion: false}\nkernels:\n"
    )
    text = text.replace("{num_warps: 4}", '{launch_pdl: BLOCK_SIZE > 1024, ptx_version: 0x50, num_stages: "5"}')
    variants = load_text(text).variants
    assert [list(variant.options.items()) for variant in variants[:2]] == [
        [
            ("num_warps", warps),
            ("num_stages", 5),
            ("enable_fp_fusion", False),
            ("ptx_version", 80),
            ("launch_pdl", pdl),
        ]
        for warps, pdl in ((4, False), (8, True))
    ]
    assert type(variants[0].options["launch_pdl"]) is bool


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("grid: [n, 2]", "grid", ["n", "2", "1"]),
        ('grid: ["cdiv(n, BLOCK_SIZE)", m * 2, 3]', "grid", ["cdiv(n, BLOCK_SIZE)", "m * 2", "3"]),
        ("problems: [{n: -1}, {n: 0x10}]", "problems", ({"n": -1}, {"n": 16})),
        ("tolerance: {fp32: 1e-5, fp16: 0}", "tolerance", {"fp32": 1e-5, "fp16": 0.0}),
        ("tolerance: {fp32: .5}", "tolerance", {"fp32": 0.5}),
        ("inputs: {n: i64, y: u8}", "inputs", {"n": "i64", "y": "u8"}),
        ("group: x_{dtype}", "group", "x_{dtype}"),
        ("reference: kernels/reference.py:f", "reference", "kernels/reference.py:f"),
    ],
)
def test_values(folder: Path, line: str, key: str, value: object) -> None:
    kernel = load_text(with_line(line)).kernels[0]
    found = getattr(kernel, key)
    assert ([expression.text for expression in found] if key == "grid" else found) == value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("n <= 2", False), ("false", False)])
def test_select(folder: Path, text: str, value: bool) -> None:
    select = load_text(replace(LAST, f"    select: {text}")).kernels[0].select
    assert select is not None
    assert select.evaluate({"n": 3}) is value


def test_a_block_of_text_may_run_over_lines(folder: Path) -> None:
    text = replace('signature: "*{dtype}:16, i32"', "signature: >\n      *{dtype}:16,\n      i32")
    assert [item.type for item in load_text(text).variants[0].signature.items] == ["*fp32", "i32"]


def test_images_go_through_a_pipe(folder: Path) -> None:
    """A compile child gets its variant by pickle."""
    image = load_text(BASE).images[0]
    assert pickle.loads(pickle.dumps(image)) == image


def test_the_path_names_the_file_in_positions(folder: Path) -> None:
    (folder / "kernels.yaml").write_text(BASE.replace("version: 1", "version: x"))
    for path in (folder / "kernels.yaml", Path("../") / folder.name / "kernels.yaml"):
        with pytest.raises(ManifestError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}:1:10: ")


# what to replace, with what; line:column; words of the message
BAD: list[tuple[str, str, str, list[str]]] = [
    # the whole file
    ("version: 1\n", "", "1:1", ["lacks the key `version`", "the integer 1"]),
    ("version: 1", "version: 2", "1:10", ["another version", "version 1", "version 2"]),
    ("version: 1", "version: 2\nfuture: key", "1:10", ["another version"]),
    ("version: 1", "version: '1'", "1:10", ["`version`", "remove the quotes"]),
    ("version: 1", "version: 1.0", "1:10", ["`version`", "the number '1.0'"]),
    ("version: 1", "version: 1" + "0" * 5000, "1:10", ["`version`"]),
    ("version: 1", "version: 1\nkernles: {}", "2:1", ["unknown key 'kernles'", "did you mean 'kernels'?"]),
    ("version: 1", 'version: 1\n"\\e[31m": 1', "2:1", ["unknown key '\\x1b[31m'"]),
    ("version: 1", "version: 1\nversion: 1", "2:1", ["'version'", "twice", "line 1"]),
    ("version: 1", "version: 1\nhost: x86_64-linux", "2:7", ["`host`", "did you mean 'x86_64-linux-gnu'?"]),
    ("version: 1", "version: 1\ninclude: [a.yaml]", "2:11", ["`include`", "does not exist"]),
    ("version: 1", "version: 1\ndefaults: {num_wraps: 4}", "2:12", ["`defaults`", "'num_warps'"]),
    ("library: kernels", "library: no", "2:10", ["`library`", "the truth value 'no'", 'quote it: "no"']),
    ("library: kernels", "library: 1.10", "2:10", ["the number '1.10'", 'quote it: "1.10"']),
    ("library: kernels", "library:", "2:9", ["`library`", "nothing"]),
    ("library: kernels", "library: [a]", "2:10", ["`library`", "a list of 1"]),
    ("library: kernels", "library: a-b", "2:10", ["'a-b' cannot be a library's name"]),
    ("library: kernels", "library: ../x", "2:10", ["'../x' cannot be a library's name"]),
    ("library: kernels", "library: std", "2:10", ["Rust has a crate"]),
    ("library: kernels", 'library: "a\\n"', "2:10", ["'a\\n' cannot be"]),
    *(
        ("library: kernels", f"library: kernels\nlibrary_version: '{text}'", "3:18", [f"'{text}' is no version", said])
        for text, said in (
            ("1.0", "write all three numbers"),
            ("0.1.0.dev1", "MAJOR.MINOR.PATCH"),
            ("01.2.3", "MAJOR.MINOR.PATCH"),
            ("1.2.3-", "MAJOR.MINOR.PATCH"),
            ("v1.2.3", "MAJOR.MINOR.PATCH"),
            ("1.2.3-rc.01", "MAJOR.MINOR.PATCH"),
            ("1.18446744073709551616.3", "MAJOR.MINOR.PATCH"),
        )
    ),
    ("library: kernels", 'library: kernels\nlibrary_version: "1.2.3\\n"', "3:18", ["'1.2.3\\n' is no version"]),
    ("library: kernels", "library: kernels\nlibrary_version: 1.2", "3:18", ["a semantic version, such as 1.2.0"]),
    ("[sm_80, gfx942]", "[]", "3:10", ["`targets`", "an empty list"]),
    ("[sm_80, gfx942]", "sm_80", "3:10", ["`targets`", "brackets"]),
    ("[sm_80, gfx942]", "[sm_80, sm_80]", "3:18", ["'sm_80' twice", "line 3, column 11"]),
    ("[sm_80, gfx942]", "[80]", "3:11", ["`targets[0]`", 'quote it: "80"']),
    ("  softmax:", "  fn:", "5:3", ["'fn' cannot be a kernel's name", "Rust"]),
    ("  softmax:", "  soft-max:", "5:3", ["'soft-max' cannot be a kernel's name"]),
    # kernels
    ("    source: kernels/softmax.py\n", "", "6:5", ["`kernels.softmax` lacks the key `source`"]),
    ("    function: softmax_kernel\n", "", "6:5", ["lacks the key `function`"]),
    ("    dtypes: [fp32, fp16]\n", "", "6:5", ["lacks the key `dtypes`"]),
    (
        "    blocks: [1024, 2048]\n",
        "",
        "9:11",
        ["`kernels.softmax.name` uses {block}, and the kernel has no `blocks`", "remove {block}, or add `blocks`"],
    ),
    ("    name: softmax_{dtype}_{block}\n", "", "6:5", ["lacks the key `name`"]),
    ('    signature: "*{dtype}:16, i32"\n', "", "6:5", ["lacks the key `signature`"]),
    (
        f"{GRID}\n",
        "",
        "6:5",
        ["lacks the key `grid`", "blocks of the launch in x, y and z", "add `grid:`, a list of 1 to 3 values"],
    ),
    ("    blocks:", "    block:", "9:5", ["unknown key 'block' in `kernels.softmax`", "did you mean 'blocks'?"]),
    (LAST, "    promise: [{}]", "13:5", ["unknown key 'promise'", "'promises'"]),
    (LAST, "    blocks: [1]", "13:5", ["'blocks'", "twice", "line 9, column 5"]),
    ("kernels:\n  softmax:", "kernels:\nsoftmax:", "5:1", ["'softmax'", "looks like a kernel", "under `kernels:`"]),
    ("version: 1", "version: 1\nother: {function: f}", "2:1", ["'other'", "looks like a kernel: indent it"]),
    ("version: 1", "version: 1\nother: {blocks: [1]}", "2:1", ["unknown key 'other'", "remedy: remove it"]),
    # paths
    ("kernels/softmax.py", "/kernels/softmax.py", "6:13", ["is absolute"]),
    ("kernels/softmax.py", "../softmax.py", "6:13", ["leads out"]),
    ("kernels/softmax.py", "kernels/../../x.py", "6:13", ["leads out"]),
    ("kernels/softmax.py", "./kernels//softmax.py", "6:13", ["write kernels/softmax.py"]),
    ("kernels/softmax.py", "kernels\\softmax.py", "6:13", ["forward slashes"]),
    ("kernels/softmax.py", '"kernels/\\0.py"', "6:13", ["'\\x00'"]),
    ("kernels/softmax.py", '"kernels/x\\n.py"', "6:13", ["'\\n'"]),
    ("kernels/softmax.py", "''", "6:13", ["is empty"]),
    ("kernels/softmax.py", "kernels/softmax.cpp", "6:13", ["no Python file"]),
    ("kernels/softmax.py", "kernels/none.py", "6:13", ["does not exist", "'kernels/none.py'"]),
    ("kernels/softmax.py", "kernels/folder.py", "6:13", ["is no file"]),
    ("kernels/softmax.py", "kernels/softmax.py/x.py", "6:13", ["cannot be read", "Not a directory"]),
    ("kernels/softmax.py", f"kernels/{'x' * 300}.py", "6:13", ["cannot be read", "name too long"]),
    ("kernels/softmax.py", "kernels/out.py", "6:13", ["outside the manifest's folder", "link to"]),
    ("kernels/softmax.py", "up/out.py", "6:13", ["outside the manifest's folder"]),
    ("kernels/softmax.py", "kernels/loop.py", "6:13", ["cannot be read"]),
    (LAST, "    reference: kernels/reference.py", "13:16", ["names no function", "path/to/file.py:function"]),
    (LAST, "    reference: kernels/none.py:f", "13:16", ["does not exist"]),
    (LAST, "    reference: kernels/reference.py:f()", "13:16", ["'f()'"]),
    # words
    ("softmax_kernel", "yes", "7:15", ["`kernels.softmax.function`", 'quote it: "yes"']),
    ("softmax_kernel", "def", "7:15", ["'def'", "name in Python"]),
    ("softmax_kernel", "os.system()", "7:15", ["'system()'"]),
    ("[fp32, fp16]", "[fp32, f16]", "8:20", ["`kernels.softmax.dtypes[1]`", "'f16'", "did you mean 'fp16'"]),
    ("[fp32, fp16]", "[fp32, BFloat16]", "8:20", ["'BFloat16'", "did you mean 'bf16'?"]),
    ("[fp32, fp16]", "[fp32, fp32]", "8:20", ["'fp32' twice"]),
    ("[fp32, fp16]", "fp32", "8:13", ["brackets"]),
    ("[fp32, fp16]", "[]", "8:13", ["an empty list"]),
    # integers
    ("[1024, 2048]", "[1024, 0]", "9:20", ["an integer from 1 to 2147483647"]),
    ("[1024, 2048]", "[1024, -2]", "9:20", ["an integer from 1"]),
    ("[1024, 2048]", "[1024, '2048']", "9:20", ["remove the quotes"]),
    ("[1024, 2048]", "[1024, 2e3]", "9:20", ["the number '2e3'", "decimal"]),
    ("[1024, 2048]", "[1024, 010]", "9:20", ["the number '010'", "decimal"]),
    ("[1024, 2048]", "[1024, 2_048]", "9:20", ["decimal"]),
    ("[1024, 2048]", "[1024, 99999999999]", "9:20", ["to 2147483647", "99999999999"]),
    ("[1024, 2048]", f"[1024, {'9' * 5000}]", "9:20", ["(5000 characters)"]),
    ("[1024, 2048]", "[on]", "9:14", ["the truth value 'on'"]),
    ("[1024, 2048]", "[1024, 0x400]", "9:20", ["'1024' twice", "column 14"]),
    ("[1024, 2048]", "{BLOCK_M: 64}", "9:13", ["a list of values", "a map", "brackets"]),
    ("[1024, 2048]", "autotune", "9:13", ["is read from a source file", "a reader of sources"]),
    # names
    ("_{dtype}_{block}", "_{type}_{block}", "10:11", ["'{type}'", "did you mean 'dtype'?"]),
    ("_{dtype}_{block}", "_{dtype}_{{block}}", "10:11", ["a brace"]),
    ("softmax_{dtype}_{block}", "{dtype}_{block}", "10:18", ["not valid YAML", "quote"]),
    ("softmax_{dtype}_{block}", '"{dtype}"', "10:5", ["'fp32'", "two variants", "add {block} to `name`"]),
    ("softmax_{dtype}_{block}", "softmax_{block}", "10:5", ["'softmax_1024'", "add {dtype} to `name`"]),
    ("softmax_{dtype}_{block}", "softmax", "10:5", ["add {block} to `name`"]),
    ("softmax_{dtype}_{block}", '"{block}_{dtype}"', "10:5", ["'1024_fp32' cannot be a variant's name", "digit"]),
    ("softmax_{dtype}_{block}", "launch", "10:5", ["'launch' cannot be a variant's name", "functions of that name"]),
    ("softmax_{dtype}_{block}", "s__{dtype}_{block}", "10:5", ["'s__fp32_1024'", "two underscores"]),
    ("softmax_{dtype}_{block}", "../{dtype}_{block}", "10:5", ["'../fp32_1024' cannot be"]),
    ("softmax_{dtype}_{block}", "'{dtype}_{block};id'", "10:5", ["'fp32_1024;id' cannot be"]),
    ("softmax_{dtype}_{block}", "'{dtype}_{block}$(id)'", "10:5", ["cannot be"]),
    ("softmax_{dtype}_{block}", "'{dtype}_{block}*/'", "10:5", ["cannot be"]),
    ("softmax_{dtype}_{block}", "'{dtype}_{block}\"'", "10:5", ["cannot be"]),
    ("softmax_{dtype}_{block}", '"{dtype}_{block}\\n"', "10:5", ["cannot be"]),
    ("softmax_{dtype}_{block}", "s\u043eftmax_{dtype}_{block}", "10:5", ["'s\\u043eftmax_fp32_1024'", "CYRILLIC"]),
    ("softmax_{dtype}_{block}", "x" * 300 + "_{dtype}_{block}", "10:5", ["too long"]),
    ("softmax_{dtype}_{block}", "off", "10:11", ['quote it: "off"']),
    ("softmax_{dtype}_{block}", "null", "10:11", ["nothing", "remedy: write the value, or remove the entry"]),
    ("softmax_{dtype}_{block}", "{dtype}", "10:11", ["a map with the keys 'dtype'", "put the text in quotes"]),
    ("softmax_{dtype}_{block}", "{a: b}", "10:11", ["actual: a map with the keys 'a'"]),
    (
        LAST,
        "    group: softmax",
        "13:5",
        ["different arguments", "add {dtype}, or the axis that they differ by, to `group`"],
    ),
    (LAST, "    group: int", "13:5", ["'int' cannot be a group's name"]),
    (LAST, "    group: SOFTMAX_{dtype}_{block}", "13:5", ["'SOFTMAX_fp32_1024' has the name of a variant"]),
    # signatures
    ('"*{dtype}:16, i32"', "*fp32:16, i32", "11:16", ["an alias", "quotes"]),
    # At the item, where the text stands in the file as it is.
    ('"*{dtype}:16, i32"', '"*{dtype}:16, i33"', "11:30", ["item 2", "'i32'"]),
    ('"*{dtype}:16, i32"', "'*{dtype}:16,  int'", "11:31", ["item 2 of the signature, 'int'", "did you mean 'i32'?"]),
    ('"*{dtype}:16, i32"', "int, i32", "11:16", ["item 1"]),
    ('"*{dtype}:16, i32"', '"*{dtype}:16, i\\x33"', "11:5", ["item 2"]),
    ('"*{dtype}:16, i32"', ">-\n      *{dtype}:16, i33", "11:5", ["item 2"]),
    ('"*{dtype}:16, i32"', '"*{dtype}:16, {block}"', "11:16", ["'{block}'"]),
    ('"*{dtype}:16, i32"', f'"{"i64, " * 512}i8"', "11:5", ["at most 4096 bytes", "4097 bytes"]),
    # options
    ("{num_warps: 4}", "{num_warp: 4}", "13:15", ["unknown key 'num_warp'", "'num_warps'"]),
    ("{num_warps: 4}", "{num_warps: 3}", "13:26", ["a power of two from 1 to 64"]),
    ("{num_warps: 4}", "{num_warps: 128}", "13:26", ["a power of two from 1 to 64"]),
    ("{num_warps: 4}", "{num_warps: 0}", "13:26", ["a power of two from 1 to 64"]),
    ("{num_warps: 4}", "{num_warps: 4.0}", "13:26", ["the number '4.0'"]),
    ("{num_warps: 4}", "{num_warps: block}", "13:26", ["1024, from 'block' with block = 1024"]),
    ("{num_warps: 4}", "{num_warps: blok}", "13:26", ["the unknown name 'blok'", "did you mean 'block'?"]),
    ("{num_warps: 4}", "{num_warps: block // (block - 1024)}", "13:26", ["divides by zero", "block = 1024"]),
    ("{num_warps: 4}", "{num_warps: block < 3}", "13:26", ["which gives a truth value"]),
    ("{num_warps: 4}", "{num_warps: block / 256}", "13:26", ["write //"]),
    ("{num_warps: 4}", "{num_stages: -1}", "13:27", ["an integer from 0"]),
    ("{num_warps: 4}", "{enable_fp_fusion: no}", "13:33", ["write true or false"]),
    ("{num_warps: 4}", "{enable_fp_fusion: 1}", "13:33", ["the number '1'"]),
    ("{num_warps: 4}", "{enable_fp_fusion: 'true'}", "13:33", ["'true'", "True"]),
    ("{num_warps: 4}", "{enable_fp_fusion: block}", "13:33", ["which gives an integer"]),
    ("{num_warps: 4}", "[4]", "13:14", ["a list of 1"]),
    # the launch
    (LAST, "    inputs: {n: fp32}", "13:17", ["`kernels.softmax.inputs.n`", "i32"]),
    (LAST, "    inputs: {n: int32}", "13:17", ["did you mean 'i32'?"]),
    (LAST, "    inputs: {n: bool}", "13:17", ["`kernels.softmax.inputs.n`", "one of i8, i16"]),
    (LAST, "    inputs: {n: i1}", "13:17", ["`kernels.softmax.inputs.n`"]),
    (LAST, "    inputs: {int: i32}", "13:14", ["'int' cannot be a launch input's name"]),
    (LAST, "    inputs: {max: i32}", "13:14", ["'max' cannot be a launch input's name", "in expressions"]),
    (LAST, "    inputs: {lambda: i32}", "13:14", ["'lambda' cannot be a launch input's name"]),
    (LAST, "    inputs: {no: i32}", "13:14", ["not text", "quote it"]),
    (LAST, "    inputs: {n: i32, n: i64}", "13:22", ["'n'", "twice"]),
    (GRID, "    grid: n", "12:11", ["brackets"]),
    (GRID, "    grid: []", "12:11", ["an empty list"]),
    (GRID, "    grid: [n, 1, 1, 1]", "12:11", ["1 to 3 values", "a list of 4"]),
    (GRID, "    grid: [1, n < 1]", "12:15", ["`kernels.softmax.grid[1]`", "which gives a truth value"]),
    (GRID, "    grid: [1.5]", "12:12", ["the number '1.5'", "remedy: write an integer in decimal"]),
    (GRID, "    grid: [1, 0b1]", "12:15", ["the number '0b1'", "remedy: write an integer in decimal"]),
    (
        GRID,
        "    grid: [cdiv(n, 64)]",
        "12:12",
        ["`kernels.softmax.grid[0]`", "a comma splits a list", "quote the expression: 'cdiv(n, 64)'"],
    ),
    (GRID, "    grid: [m, cdiv(n, max(a, b)), 1]", "12:15", ["grid[1]`", "'cdiv(n, max(a, b))'"]),
    (GRID, "    grid: [cdiv(n, 64), cdiv(m, 64)]", "12:12", ["quote the expression: 'cdiv(n, 64)'"]),
    (GRID, f"    grid: [cdiv({'n' * 60}, 64)]", "12:12", ["remedy: quote the expression"]),
    (GRID, "    grid: [cdiv(n]", "12:12", ["'cdiv(n'"]),
    (GRID, "    grid: [0]", "12:12", ["an extent of 0", "1 or more", "'0'", "write 1 for a dimension"]),
    (GRID, "    grid: [1, -1]", "12:15", ["an extent of -1", "1 or more", "'-1'"]),
    (GRID, "    grid: [n, 1, 2 - 2]", "12:18", ["an extent of 0", "'2 - 2'"]),
    (GRID, "    grid: [1 // 0]", "12:12", ["divides by zero"]),
    (GRID, "    grid: [__import__('os')]", "12:12", ['"\'"']),
    (LAST, "    select: n", "13:13", ["which gives an integer"]),
    (LAST, "    select: [n < 1]", "13:13", ["a list of 1"]),
    (LAST, "    tensors: {a: n}", "13:18", ["`kernels.softmax.tensors.a`", "brackets"]),
    (LAST, "    tensors: {a: [n < 1]}", "13:19", ["`kernels.softmax.tensors.a[0]`"]),
    (LAST, "    tensors: {a: [n, min(n, 8)]}", "13:22", ["tensors.a[1]`", "quote the expression: 'min(n, 8)'"]),
    (LAST, "    tensors: {a b: [n]}", "13:15", ["'a b'"]),
    (LAST, "    strides: {a: [1]}", "13:15", ["strides for a", "a shape of it under `tensors`", "give a a shape"]),
    (
        LAST,
        "    tensors: {input_ptr: [n]}\n    strides: {inputptr: [1]}",
        "14:15",
        ["a tensor among input_ptr", "did you mean 'input_ptr'?"],
    ),
    (
        LAST,
        "    tensors: {a: [n, 4]}\n    strides: {a: [4]}",
        "14:18",
        ["a shape of 2 and strides of 1 dimensions", "a stride for each of [n, 4]", "[4]", "write 1"],
    ),
    (LAST, "    tensors: {a: [n]}\n    strides: {a: [n < 1]}", "14:19", ["`kernels.softmax.strides.a[0]`"]),
    (LAST, "    outputs: a", "13:14", ["`kernels.softmax.outputs`", "a list"]),
    (LAST, "    outputs: []", "13:14", ["list at least one"]),
    (LAST, "    outputs: [a, a]", "13:18", ["outputs"]),
    (LAST, "    any_values: [a b]", "13:18", ["'a b'"]),
    # tests
    (LAST, "    problems: {n: 1}", "13:15", ["a list of values", "a map"]),
    (LAST, "    problems: [{}]", "13:16", ["an empty map"]),
    (LAST, "    problems: [{n: 1.5}]", "13:20", ["`kernels.softmax.problems[0].n`"]),
    (LAST, "    tolerance: {bf16: 1e-3}", "13:17", ["no variants of that dtype", "fp32, fp16"]),
    (LAST, "    tolerance: {f16: 1e-3}", "13:17", ["'fp16'"]),
    (LAST, "    tolerance: {half: 1e-3}", "13:17", ["'half'", "did you mean 'fp16'?"]),
    (LAST, "    tolerance: {fp16: -1}", "13:23", ["at least 0"]),
    (LAST, "    tolerance: {fp16: .nan}", "13:23", ["at least 0"]),
    (LAST, "    tolerance: {fp16: 1e999}", "13:23", ["at least 0"]),
    (LAST, "    tolerance: {fp16: 1e-400}", "13:23", ["'1e-400'", "too small for a float of 64 bits"]),
    (LAST, "    tolerance: {fp16: '1e-3'}", "13:23", ["remove the quotes"]),
    (LAST, "    tolerance: 1e-3", "13:16", ["a map from"]),
]


@pytest.mark.parametrize(("old", "new", "place", "words"), BAD, ids=[ascii(new.strip())[:40] for _, new, _, _ in BAD])
def test_refused_with_position(folder: Path, old: str, new: str, place: str, words: list[str]) -> None:
    (folder / "kernels/folder.py").mkdir()
    (folder / "kernels/out.py").symlink_to(__file__)
    (folder / "kernels/loop.py").symlink_to("loop.py")
    (folder / "up").symlink_to(Path(__file__).parent)
    if "up/" in new:
        new = f"up/{Path(__file__).name}"
    message = refusal(replace(old, new))
    lines = message.splitlines()
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert [word for word in words if word not in message] == []
    assert all(line.startswith(("  expected: ", "  actual: ", "  remedy: ")) for line in lines[1:])
    assert max(len(line) for line in lines) < 400
    assert "Error" not in message and all(character.isprintable() for character in message if character != "\n")


@pytest.mark.parametrize(
    ("second", "place", "words"),
    [
        ("Softmax", "14:3", ["'softmax' and 'Softmax'", "case only", "the first is at kernels.yaml:5:3"]),
        ("softmax", "14:3", ["'softmax'", "twice", "line 5, column 3"]),
        ("other", "19:5", ["'softmax_fp32_1024'", "kernels 'softmax' and 'other'", "such as other_"]),
    ],
)
def test_two_kernels_of_one_name(folder: Path, second: str, place: str, words: list[str]) -> None:
    message = refusal(BASE + KERNEL_TEXT.replace("  softmax:", f"  {second}:"))
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "[1]\n", "kernels\n", f"{HEAD}kernels: {{}}\n", f"{HEAD}kernels:\n"]
)
def test_no_kernels(folder: Path, text: str) -> None:
    assert refusal(text).startswith("kernels.yaml:")


@pytest.mark.parametrize(
    ("text", "place"), [("kernels: {}\n", "4:10"), ("kernels:\n", "4:9"), ("kernels: ~\n", "4:10")]
)
def test_what_to_do_about_no_kernels(folder: Path, text: str, place: str) -> None:
    message = refusal(HEAD + text)
    assert message.startswith(f"kernels.yaml:{place}: wrong value for `kernels`")
    assert "\n  remedy: write at least one entry under `kernels`" in message


def test_no_file(folder: Path) -> None:
    with pytest.raises(ManifestError, match=r"none\.yaml: the manifest does not exist") as caught:
        load(Path("none.yaml"))
    assert "start a project with `kiln init DIR`" in str(caught.value)
    with pytest.raises(ManifestError, match="cannot be read\n  actual: Is a directory"):
        load(folder)


def test_a_link_to_a_file_of_the_project_is_followed(folder: Path) -> None:
    (folder / "kernels/link.py").symlink_to("softmax.py")
    kernel = load_text(replace("kernels/softmax.py", "kernels/link.py")).kernels[0]
    assert kernel.source == folder / "kernels/link.py"


def test_a_project_behind_a_link(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The project's own folder may be a link: only what leads out of it is refused."""
    link = tmp_path_factory.mktemp("elsewhere") / "project"
    link.symlink_to(folder)
    (folder / "kernels.yaml").write_text(BASE)
    assert load(link / "kernels.yaml").kernels[0].source == link / "kernels/softmax.py"


def test_refused_as_too_large_without_reading_it_all(folder: Path) -> None:
    """10 MB, and a sparse terabyte: the size is seen before anything is parsed."""
    (folder / "kernels.yaml").write_bytes(BASE.encode() * 50_000)
    start = time.perf_counter()
    with pytest.raises(ManifestError, match="too large"):
        load(Path("kernels.yaml"))
    os.truncate(folder / "kernels.yaml", 2**40)
    with pytest.raises(ManifestError, match="too large"):
        load(Path("kernels.yaml"))
    assert time.perf_counter() - start < 1


def test_a_null_build_pays_little(folder: Path) -> None:
    """Reading a manifest imports no compiler, no template engine, no ELF reader and no doit, and is quick."""
    (folder / "kernels.yaml").write_text(BASE)
    program = """
import sys, time
from pathlib import Path
from kiln.manifest.loader import load
start = time.perf_counter()
load(Path("kernels.yaml"))
print(time.perf_counter() - start, *sorted({name.partition(".")[0] for name in sys.modules}))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    seconds, *modules = done.stdout.split()
    assert {"triton", "jinja2", "elftools", "msgpack", "doit", "numpy"}.isdisjoint(modules)
    assert float(seconds) < 0.1


def test_many_variants(folder: Path) -> None:
    """10,000 variants of 500 kernels in well under what a build may take to start."""
    kernels = [
        KERNEL_TEXT.replace("softmax:", f"k{number}:")
        .replace("name: softmax", f"name: k{number}")
        .replace("[1024, 2048]", "[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]")
        for number in range(500)
    ]
    start = time.perf_counter()
    assert len(load_text(f"{HEAD}kernels:\n{''.join(kernels)}").images) == 20_000
    assert time.perf_counter() - start < 3


def test_too_many_images(folder: Path) -> None:
    """A file within the limits of its size may still declare more than memory can hold."""
    blocks = ", ".join(str(block) for block in range(1, 100_001))
    text = replace("[sm_80, gfx942]", f"[{', '.join(f't{number}' for number in range(40))}]")
    start = time.perf_counter()
    message = refusal(text.replace("[1024, 2048]", f"[{blocks}]"))
    assert message.startswith("kernels.yaml:5:3: ") and "8000000 up to this kernel" in message
    assert time.perf_counter() - start < 5


def test_every_key_is_documented_and_stands_in_the_model() -> None:
    for keys in (TOP, KERNEL, OPTIONS):
        assert all(key.doc and key.type.words for key in keys.values())
        assert not any(key.required and key.default is not None for key in keys.values())


def test_sections_keep_the_order_of_their_table() -> None:
    node = read_yaml(b"{kpack: 1, num_warps: 2}", "f")
    assert list(Section(keys=OPTIONS).read(node, "options")) == ["num_warps", "kpack"]
