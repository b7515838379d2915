"""blocks as maps, axes, constants, exclude and targets of a kernel: what they read to, their order, what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest

HEAD = """\
version: 1
library: l
targets: [sm_80, sm_90a, gfx942]
"""

KEYS = {
    "source": "k.py",
    "function": "f",
    "dtypes": "[fp16, fp32]",
    "blocks": "[{BLOCK_M: 128, BLOCK_N: 64, num_warps: 8}, {tag: small, BLOCK_N: 32, BLOCK_M: 64}]",
    "name": "k_{dtype}_{block}",
    "signature": '"*{dtype}"',
}
"""of the first kernel, one a line, from line 6 on; what a test adds stands from line 12 on, and the grid behind it"""


def kernel(key: str = "k", **changes: str) -> str:
    keys = {**KEYS, **changes}
    keys.setdefault("grid", "[1]")
    return f"  {key}:\n" + "".join(f"    {name}: {value}\n" for name, value in keys.items())


def load_kernels(folder: Path, *kernels: str) -> Manifest:
    (folder / "k.py").touch()
    path = folder / "kernels.yaml"
    path.write_text(HEAD + "kernels:\n" + "".join(kernels))
    return load(path)


def refusal(folder: Path, *kernels: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_kernels(folder, *kernels)
    message = str(caught.value).removeprefix(f"{folder}/")
    print(message)
    return message


AXES = {"axes": "{D: [64, 128], CAUSAL: {causal: true, full: false}}", "name": "k_{dtype}_{D}_{CAUSAL}_{block}"}


def test_a_block_is_constants_and_options_and_a_tag(tmp_path: Path) -> None:
    """As in a Triton Config. Without a tag it is the values of the constants, in the order of the first block."""
    large, small = load_kernels(tmp_path, kernel(dtypes="[fp16]", options="{num_warps: 2, num_stages: 1}")).variants
    assert (large.id, large.block, large.constants) == ("k_fp16_128x64", "128x64", {"BLOCK_M": 128, "BLOCK_N": 64})
    assert large.options == {"num_warps": 8, "num_stages": 1, "enable_fp_fusion": True}
    assert (small.id, list(small.constants.items())) == ("k_fp16_small", [("BLOCK_M", 64), ("BLOCK_N", 32)])
    assert small.options["num_warps"] == 2
    block = small.kernel.blocks[1]
    assert (block.position.line, block.positions["BLOCK_N"].column) == (9, 70)


def without_blocks(**changes: str) -> str:
    """A kernel without `blocks`: what a test adds stands from line 11 on."""
    return kernel(**{"blocks": "[1]", "name": "k_{dtype}", **changes}).replace("    blocks: [1]\n", "")


def test_blocks_may_be_left_out(tmp_path: Path) -> None:
    """One variant for each dtype and value of an axis, with the kernel's own options and constants."""
    changes = {"axes": "{D: [64, 128]}", "name": "k_{dtype}_{D}", "constants": "{HALF: {expression: D // 2}}"}
    manifest = load_kernels(tmp_path, without_blocks(**changes, options="{num_warps: 2}"))
    assert [(v.id, v.group, v.block, v.constants) for v in manifest.variants] == [
        ("k_fp16_64", "k_fp16_64_group", "", {"HALF": 32}),
        ("k_fp16_128", "k_fp16_128_group", "", {"HALF": 64}),
        ("k_fp32_64", "k_fp32_64_group", "", {"HALF": 32}),
        ("k_fp32_128", "k_fp32_128_group", "", {"HALF": 64}),
    ]
    assert {v.options["num_warps"] for v in manifest.variants} == {2}


def test_a_block_that_is_a_tag_alone_is_one(tmp_path: Path) -> None:
    (variant,) = load_kernels(tmp_path, kernel(dtypes="[fp16]", blocks="[{tag: only}]")).variants
    assert (variant.id, variant.group, variant.block) == ("k_fp16_only", "k_fp16", "only")


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        (
            {"name": "k_{dtype}_{block}"},
            "9:11",
            ["`kernels.k.name` uses {block}, and the kernel has no `blocks`", "remove {block}, or add `blocks`"],
        ),
        ({"group": "g_{block}"}, "11:12", ["`kernels.k.group` uses {block}, and the kernel has no `blocks`"]),
        ({"name": "k_{dtype}_{Block}"}, "9:11", ["unknown placeholder '{Block}'", "expected: {dtype}\n"]),
        (
            {"exclude": "[{block: 64}]"},
            "11:16",
            ["`kernels.k.exclude` names a block, and the kernel has no `blocks`", "expected: one of dtype\n"],
        ),
        (
            {"options": '{num_warps: "4 if block > 1 else 8"}'},
            "11:26",
            ["uses 'block', and the kernel has no `blocks`", "remedy: use a constant or an axis in its place"],
        ),
        (
            {"constants": "{A: {expression: block // 2}}"},
            "11:33",
            ["uses 'block', and the kernel has no `blocks`"],
        ),
        (
            {"group": "k_{dtype}"},
            "11:5",
            ["the group 'k_fp16' has the name of a variant", "remedy: give the kernel another `group`"],
        ),
        ({"name": "k"}, "9:5", ["'k' is the name of two variants", "dtype fp16, and dtype fp32", "add {dtype}"]),
    ],
)
def test_what_needs_blocks_says_so(tmp_path: Path, changes: dict[str, str], place: str, words: list[str]) -> None:
    message = refusal(tmp_path, without_blocks(**changes))
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert [word for word in words if word not in message] == []


def test_tags_follow_the_first_blocks_order(tmp_path: Path) -> None:
    manifest = load_kernels(tmp_path, kernel(blocks="[{M: 1, N: 2, F: true}, {F: false, N: 1, M: 2}]"))
    assert [block.tag for block in manifest.kernels[0].blocks] == ["1x2x1", "2x1x0"]


def test_blocks_of_options_alone_compete(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path, kernel(blocks="[{tag: w4, num_warps: 4}, {tag: w8, num_warps: 8}]", dtypes="[fp16]")
    )
    assert [(v.id, v.constants, v.options["num_warps"], v.group) for v in manifest.variants] == [
        ("k_fp16_w4", {}, 4, "k_fp16"),
        ("k_fp16_w8", {}, 8, "k_fp16"),
    ]


def test_the_order_is_dtypes_then_axes_then_blocks(tmp_path: Path) -> None:
    manifest = load_kernels(tmp_path, kernel(**AXES))
    assert [variant.id for variant in manifest.variants] == [
        f"k_{dtype}_{d}_{causal}_{block}"
        for dtype in ("fp16", "fp32")
        for d in ("64", "128")
        for causal in ("causal", "full")
        for block in ("128x64", "small")
    ]
    first = manifest.variants[0]
    assert list(first.axes.items()) == [("D", 64), ("CAUSAL", True)]
    assert first.group == "k_fp16_64_causal"


def test_truth_values_are_1_and_0_in_names_and_texts_are_themselves(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path,
        kernel(axes="{B: [true, false], ACT: [relu, gelu_tanh]}", name="k_{dtype}_{B}{ACT}_{block}", dtypes="[fp16]"),
    )
    assert [variant.id for variant in manifest.variants[::2]] == [
        "k_fp16_1relu_128x64",
        "k_fp16_1gelu_tanh_128x64",
        "k_fp16_0relu_128x64",
        "k_fp16_0gelu_tanh_128x64",
    ]


def test_an_axis_may_be_part_of_the_signature(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path,
        kernel(axes="{OUT: [fp32, fp16]}", name="k_{dtype}_{OUT}_{block}", signature='"*{OUT}:16, *{dtype}"'),
    )
    assert [variant.signature.items[0].type for variant in manifest.variants[:4]] == ["*fp32"] * 2 + ["*fp16"] * 2


def test_constants_are_literals_or_computed(tmp_path: Path) -> None:
    text = (
        '{ACT: relu, FLAG: true, N: -3, X: 0x10, EPS: 1e-5, Q: "1", '
        'EVEN: {expression: "D % BLOCK_N == 0"}, HALF: {expression: D // 2 + N + FLAG}}'
    )
    variant = load_kernels(tmp_path, kernel(constants=text, **AXES)).variants[0]
    assert variant.constants == {
        "BLOCK_M": 128,
        "BLOCK_N": 64,
        "ACT": "relu",
        "FLAG": True,
        "N": -3,
        "X": 16,
        "EPS": 1e-5,
        "Q": "1",
        "EVEN": True,
        "HALF": 30,
    }
    types = [type(variant.constants[name]) for name in ("FLAG", "N", "EPS", "Q", "EVEN", "HALF")]
    assert types == [bool, int, float, str, bool, int]


def test_options_compute_with_blocks_axes_and_constants(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path,
        kernel(
            constants='{S: 2, T: {expression: "S + 1"}}',
            options='{num_stages: "T if D == 64 else S", num_warps: BLOCK_M // 16, launch_pdl: CAUSAL == 1}',
            dtypes="[fp16]",
            **AXES,
        ),
    )
    options = [[v.options[n] for n in ("num_warps", "num_stages", "launch_pdl")] for v in manifest.variants]
    assert options == [[8, d, c] if b else [4, d, c] for d in (3, 2) for c in (True, False) for b in (True, False)]


def test_a_blocks_option_may_be_computed(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path, kernel(blocks='[{M: 64, num_warps: "M // 16 if D == 64 else 8"}]', dtypes="[fp16]", **AXES)
    )
    assert [variant.options["num_warps"] for variant in manifest.variants] == [4, 4, 8, 8]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("[{dtype: fp32}]", {"fp16 64 causal", "fp16 64 full", "fp16 128 causal", "fp16 128 full"}),
        ("[{dtype: [fp32], D: 128}, {CAUSAL: true}]", {"fp16 64 full", "fp16 128 full", "fp32 64 full"}),
        ("[{D: [64, 128], CAUSAL: false, dtype: fp16}, {dtype: fp32}]", {"fp16 64 causal", "fp16 128 causal"}),
    ],
)
def test_exclude(tmp_path: Path, exclude: str, left: set[str]) -> None:
    manifest = load_kernels(tmp_path, kernel(exclude=exclude, **AXES))
    assert [variant.block for variant in manifest.variants] == ["128x64", "small"] * len(left)
    assert {variant.id[2:].replace("_", " ").rpartition(" ")[0] for variant in manifest.variants} == left


@pytest.mark.parametrize(
    ("blocks", "exclude"),
    [
        (KEYS["blocks"], "{block: small}"),
        (KEYS["blocks"], "{BLOCK_M: 64}"),
        (KEYS["blocks"], "{BLOCK_M: [64, 128], BLOCK_N: 32}"),
        ("[128, 64]", "{block: 64}"),
        ("[128, 64]", '{block: "64"}'),
        ("[128, 64]", "{BLOCK_SIZE: 64}"),
    ],
)
def test_exclude_by_block(tmp_path: Path, blocks: str, exclude: str) -> None:
    manifest = load_kernels(tmp_path, kernel(blocks=blocks, exclude=f"[{exclude}]"))
    assert [variant.constants for variant in manifest.variants] == [manifest.kernels[0].blocks[0].constants] * 2


def test_targets_narrow_in_the_librarys_order(tmp_path: Path) -> None:
    manifest = load_kernels(
        tmp_path,
        kernel("a", name="a_{dtype}_{block}", targets="[gfx942, sm_80]", dtypes="[fp16]", blocks="[64]"),
        kernel("b", name="b_{dtype}_{block}", targets="[sm_90a]", dtypes="[fp16]", blocks="[64]"),
    )
    assert [image.id for image in manifest.images] == ["a_fp16_64@sm_80", "a_fp16_64@gfx942", "b_fp16_64@sm_90a"]


# keys to change; line:column; words of the message
BAD: list[tuple[dict[str, str], str, list[str]]] = [
    # blocks
    ({"blocks": "[64, {BLOCK_SIZE: 32}]"}, "9:18", ["mixes integers and maps", "{BLOCK_SIZE: n}"]),
    ({"blocks": "[{BLOCK_SIZE: 32}, 64]"}, "9:32", ["mixes integers and maps"]),
    ({"blocks": "[{M: 1, N: 1}, {M: 2, K: 2}]"}, "9:35", ["blocks[1]` sets 'K'", "the first block: M, N"]),
    ({"blocks": "[{M: 1}, {M: 2, num_wrap: 4}]"}, "9:29", ["'num_wrap'", "did you mean 'num_warps'"]),
    ({"blocks": "[{M: 1, N: 1}, {M: 2}]"}, "9:28", ["does not set N", "in every block"]),
    ({"blocks": "[{M: 1}, {M: 1, num_warps: 8}]"}, "9:22", ["the tag '1'", "column 14", "`tag: `"]),
    ({"blocks": "[{M: 1, tag: a}, {M: 1, tag: A}]"}, "9:37", ["the tag 'A'"]),
    ({"blocks": "[{num_warps: 8}]"}, "9:14", ["needs a tag", "options alone"]),
    ({"blocks": "[{}]"}, "9:14", ["needs a tag"]),
    ({"blocks": "[{M: -1}]"}, "9:14", ["needs a tag", "M: -1"]),
    ({"blocks": "[{M: 0.5}]"}, "9:14", ["needs a tag", "M: 0.5"]),
    ({"blocks": "[{tag: 128, M: 1}]"}, "9:20", ["blocks[0].tag", 'quote it: "128"']),
    ({"blocks": "[{tag: a-b, M: 1}]"}, "9:20", ["'a-b'", "part of names"]),
    ({"blocks": "[{tag: a__b, M: 1}]"}, "9:20", ["'a__b'"]),
    ({"blocks": "[{M: 1, num_warps: 3}]"}, "9:32", ["blocks[0].num_warps", "a power of two"]),
    ({"blocks": "[{M: [1]}]"}, "9:14", ["`kernels.k.blocks[0]` needs a tag", "[1]"]),
    ({"blocks": "[{M: null}]"}, "9:14", ["`kernels.k.blocks[0]` needs a tag", "M: null"]),
    ({"blocks": "[{M: no}]"}, "9:18", ["blocks[0].M", 'quote it: "no"']),
    ({"blocks": "[{M: 010}]"}, "9:18", ["blocks[0].M", "the number '010'"]),
    (
        {"blocks": "[{a b: 1}]"},
        "9:15",
        ["'a b' cannot be the name of a constant in `kernels.k.blocks[0]`", "no identifier"],
    ),
    ({"blocks": "[{block: 1}]"}, "9:15", ["'block' cannot be the name of", "in kernels.yaml"]),
    ({"blocks": "[{min: 1}]"}, "9:15", ["'min' cannot be the name of", "in expressions"]),
    ({"blocks": "[{M: 1, M: 2}]"}, "9:21", ["'M'", "twice"]),
    ({"blocks": "[[64]]"}, "9:14", ["a list of 1"]),
    ({"blocks": '[{M: 1, num_warps: "block"}]'}, "9:32", ["'block', and the blocks are maps", "constants: M"]),
    ({"options": "{num_warps: block}"}, "12:26", ["'block', and the blocks are maps", "BLOCK_M, BLOCK_N"]),
    ({"options": "{num_warps: BLOCKM}"}, "12:26", ["unknown name 'BLOCKM'", "did you mean 'BLOCK_M'"]),
    ({"options": "{num_warps: A}", "constants": "{A: x}"}, "12:26", ["'A', which is no integer"]),
    # axes
    ({"axes": "{A: 64}"}, "12:15", ["axes.A", "brackets"]),
    ({"axes": "{A: []}"}, "12:15", ["axes.A", "an empty list"]),
    ({"axes": "{A: {}}"}, "12:15", ["axes.A", "an empty map"]),
    ({"axes": "{A: [1, 1]}"}, "12:19", ["'1' twice"]),
    ({"axes": "{A: [a, A]}"}, "12:19", ["'A' twice"]),
    ({"axes": "{A: {x: 1, y: 1}}"}, "12:22", ["holds 1 twice"]),
    ({"axes": "{A: [1, true]}"}, "12:19", ["different types"]),
    ({"axes": "{A: [1, b]}"}, "12:19", ["different types", "'b' beside 1"]),
    ({"axes": "{A: [0.5]}"}, "12:16", ["cannot stand in names", "{low: 0.5}"]),
    ({"axes": "{A: [-1]}"}, "12:16", ["cannot stand in names", "{low: -1}"]),
    ({"axes": "{A: ['']}"}, "12:16", ["cannot stand in names", "{low: ''}"]),
    ({"axes": "{A: {a-b: 1}}"}, "12:16", ["cannot stand in names", "'a-b'"]),
    ({"axes": "{A: [on]}"}, "12:16", ['quote it: "on"']),
    ({"axes": "{dtype: [1]}"}, "12:12", ["'dtype' cannot be the name of an axis"]),
    ({"axes": "{num_warps: [4, 8]}"}, "12:12", ["a compiler option", "an axis of another name"]),
    ({"axes": "{True: [1]}"}, "12:12", ["'True'"]),
    ({"axes": "{BLOCK_M: [1]}"}, "12:12", ["'BLOCK_M' stands under `blocks` and under `axes`"]),
    ({"axes": "{A: [1]}", "constants": "{A: 1}"}, "13:17", ["'A' stands under `axes` and under `constants`"]),
    ({"axes": "{n: [1]}", "inputs": "{n: i32}"}, "13:14", ["'n' stands under `axes` and under `inputs`"]),
    ({"axes": "{A: [1, 2]}"}, "10:5", ["'k_fp16_128x64'", "A 1", "add {A} to `name`"]),
    ({"axes": "{A: [1, 2]}", "name": "k_{a}_{dtype}_{block}"}, "10:11", ["'{a}'", "{dtype}, {block} and {A}"]),
    (
        {"axes": "{HEAD: [1, 2]}", "name": "k_{HED}_{dtype}_{block}"},
        "10:11",
        ["'{HED}'", "did you mean 'HEAD'"],
    ),
    (
        {"axes": "{A: [1, 11], B: [1, 11]}", "name": "k_{A}{B}_{dtype}_{block}"},
        "10:5",
        ["'k_111_fp16_128x64'", "an underscore between"],
    ),
    (
        {"axes": "{O: [fp16, fp32]}", "name": "k_{O}_{dtype}_{block}", "group": "g_{dtype}", "signature": '"*{O}"'},
        "13:5",
        ["different arguments", "the axis that they differ by"],
    ),
    # constants
    ({"constants": "{A: {expr: 1}}"}, "12:21", ["unknown key 'expr'", "keys among expression"]),
    ({"constants": "{A: {}}"}, "12:20", ["one of the keys expression, dtype, function", "an empty map"]),
    ({"constants": "{A: {expression: B}}"}, "12:33", ["unknown name 'B'", "BLOCK_M, BLOCK_N"]),
    (
        {"constants": "{A: {expression: B}, B: {expression: 1}}"},
        "12:33",
        ["'B', which is computed itself"],
    ),
    ({"constants": "{A: {expression: BLOCK_M // (BLOCK_M - 128)}}"}, "12:33", ["divides by zero"]),
    ({"constants": "{num_warps: 4}"}, "12:17", ["a compiler option"]),
    ({"constants": "{A: off}"}, "12:20", ['quote it: "off"']),
    ({"constants": "{A: 1e999}"}, "12:20", ["constants.A"]),
    ({"constants": f"{{A: {2**63}}}"}, "12:20", ["constants.A"]),
    # exclude
    ({"exclude": "{dtype: fp16}"}, "12:14", ["a list of maps", "brackets"]),
    ({"exclude": "[]"}, "12:14", ["an empty list", "remove the key"]),
    ({"exclude": "[{}]"}, "12:15", ["exclude[0]", "an empty map"]),
    ({"exclude": "[{dtype: []}]"}, "12:23", ["exclude[0].dtype", "an empty list"]),
    ({"exclude": "[{dtpye: fp16}]"}, "12:16", ["unknown key 'dtpye'", "did you mean 'dtype'"]),
    ({"exclude": "[{dtype: f16}]"}, "12:23", ["never 'f16'", "did you mean 'fp16'"]),
    ({"exclude": "[{dtype: [fp16, bf16]}]"}, "12:30", ["never 'bf16'", "fp16, fp32"]),
    ({"exclude": "[{block: smal}]"}, "12:23", ["never 'smal'", "did you mean 'small'"]),
    ({"exclude": "[{BLOCK_M: 32}]"}, "12:25", ["BLOCK_M is never 32", "128, 64"]),
    ({"exclude": "[{BLOCK_M: 64, BLOCK_N: 64}]"}, "12:15", ["excludes nothing", "BLOCK_M: 64, BLOCK_N: 64"]),
    (
        {"exclude": "[{A: 1}]", "axes": "{A: [true]}", "name": "k_{A}_{dtype}_{block}"},
        "12:19",
        ["A is never 1", "one of true"],
    ),
    ({"exclude": "[{dtype: fp16}, {dtype: fp32}]"}, "12:5", ["leaves no variant", "all 4"]),
    # targets
    ({"targets": "[sm_70]"}, "12:15", ["'sm_70', which the library is not built for", "did you mean 'sm_80'"]),
    ({"targets": "[]"}, "12:14", ["an empty list"]),
    ({"targets": "sm_80"}, "12:14", ["brackets"]),
    ({"targets": "[sm_80, sm_80]"}, "12:22", ["'sm_80' twice"]),
    ({"targets": "[gfx942, sm_80]"}, "3:18", ["no kernel is built for 'sm_90a'"]),
]


@pytest.mark.parametrize(("changes", "place", "words"), BAD, ids=[ascii([*c.values()])[:50] for c, _, _ in BAD])
def test_refused_with_position(tmp_path: Path, changes: dict[str, str], place: str, words: list[str]) -> None:
    message = refusal(tmp_path, kernel(**changes))
    lines = message.splitlines()
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert [word for word in words if word not in message] == []
    assert all(line.startswith(("  expected: ", "  actual: ", "  remedy: ")) for line in lines[1:])
    assert max(len(line) for line in lines) < 400


def test_too_many_combinations_are_refused_before_they_are_made(tmp_path: Path) -> None:
    values = ", ".join(str(number) for number in range(200))
    axes = ", ".join(f"A{number}: [{values}]" for number in range(8))
    start = time.perf_counter()
    assert "too many images" in refusal(tmp_path, kernel(axes=f"{{{axes}}}"))
    assert time.perf_counter() - start < 2
