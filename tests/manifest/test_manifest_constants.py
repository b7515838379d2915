"""Constants: null, lists, dtypes and functions in every place that takes them, and what they are taken for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.constants import (
    DTypeConstant,
    FunctionConstant,
    Value,
    described,
    fill_dtypes,
    functions_of,
    same,
    written,
)
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest

FP16, BF16, FP32 = (DTypeConstant(name=name) for name in ("fp16", "bf16", "fp32"))
RELU, GELU = (FunctionConstant(name=name) for name in ("relu", "gelu"))


def load_kernel(folder: Path, **changes: str) -> Manifest:
    keys = {
        "source": "k.py",
        "function": "f",
        "dtypes": "[fp16, bf16]",
        "blocks": "[64]",
        "name": "k_{dtype}_{block}",
        "signature": '"*{dtype}"',
        "grid": "[1]",
        **changes,
    }
    (folder / "k.py").touch()
    text = "version: 1\nlibrary: l\ntargets: [sm_80]\nkernels:\n  k:\n"
    text += "".join(f"    {name}: {value}\n" for name, value in keys.items())
    (folder / "kernels.yaml").write_text(text)
    return load(folder / "kernels.yaml")


def refusal(folder: Path, **changes: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load_kernel(folder, **changes)
    message = str(caught.value).removeprefix(f"{folder}/")
    print(message)
    return message


CONSTANTS: list[tuple[str, Value]] = [
    ("null", None),
    ('"null"', "null"),
    ("none", "none"),
    ('"None"', "None"),
    ("[1, -2, 0.5]", (1, -2, 0.5)),
    ("[]", ()),
    ("[[1, [true]], null, relu]", ((1, (True,)), None, "relu")),
    ("{dtype: fp32}", FP32),
    ("[{dtype: fp32}, {function: relu}]", (FP32, RELU)),
    ("{function: Ops.relu}", FunctionConstant(name="Ops.relu")),
    ("-7", -7),
    ("-1e-6", -1e-6),
    ("0e-400", 0.0),
    ("5e-324", 5e-324),
    ("tl.float16_t", "tl.float16_t"),
    ('"tl.float16"', "tl.float16"),
]


@pytest.mark.parametrize(("text", "value"), CONSTANTS)
def test_what_a_constant_reads_to(tmp_path: Path, text: str, value: Value) -> None:
    found = load_kernel(tmp_path, constants=f"{{A: {text}}}").variants[0].constants["A"]
    assert same(found, value), found


def test_dtypes_follow_the_variant(tmp_path: Path) -> None:
    """In constants, members of lists, blocks and axes; over the dtype and over the words of an axis."""
    manifest = load_kernel(
        tmp_path,
        axes="{ACC: {same: {dtype: '{dtype}'}, wide: {dtype: fp32}}, IN: [fp16, fp32]}",
        blocks="[{tag: a, OUT: {dtype: '{IN}'}, N: 1}]",
        constants="{PAIR: [{dtype: '{dtype}'}, {dtype: '{IN}'}]}",
        name="k_{dtype}_{ACC}_{IN}_{block}",
    )
    found = [(v.id, v.axes["ACC"], v.constants["OUT"], v.constants["PAIR"]) for v in manifest.variants]
    assert found[:4] == [
        ("k_fp16_same_fp16_a", FP16, FP16, (FP16, FP16)),
        ("k_fp16_same_fp32_a", FP16, FP32, (FP16, FP32)),
        ("k_fp16_wide_fp16_a", FP32, FP16, (FP16, FP16)),
        ("k_fp16_wide_fp32_a", FP32, FP32, (FP16, FP32)),
    ]
    assert found[4] == ("k_bf16_same_fp16_a", BF16, FP16, (BF16, FP16))


def test_axes_and_exclusions_take_every_value(tmp_path: Path) -> None:
    """null beside another type is how Python leaves out; values are told apart by type, members of lists too."""
    manifest = load_kernel(
        tmp_path,
        dtypes="[fp16]",
        axes="{ACT: {relu: {function: relu}, gelu: {function: gelu}}, W: {full: null, w1: [1], w2: [true]}}",
        exclude="[{ACT: {function: gelu}, W: [null, [1]]}]",
        name="k_{dtype}_{ACT}_{W}",
        group="of_{dtype}_{ACT}_{W}",
    )
    assert [(v.id, v.axes["ACT"], v.axes["W"]) for v in manifest.variants] == [
        ("k_fp16_relu_full", RELU, None),
        ("k_fp16_relu_w1", RELU, (1,)),
        ("k_fp16_relu_w2", RELU, (True,)),
        ("k_fp16_gelu_w2", GELU, (True,)),
    ]


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"constants": "{A: None}"}, "13:20", ["write null for Python's None"]),
        ({"constants": "{A: }"}, "13:20", ["constants.A", "nothing", "write null"]),
        ({"constants": "{A: ~}"}, "13:20", ["write null"]),
        ({"constants": "{A: True}"}, "13:20", ["write true"]),
        ({"constants": "{A: .nan}"}, "13:20", ["write a finite number", 'float("nan")']),
        ({"constants": "{A: -.inf}"}, "13:20", ["write a finite number"]),
        ({"constants": "{A: 1e400}"}, "13:20", ["the largest number is 1.798e+308"]),
        ({"constants": "{A: -1e-400}"}, "13:20", ["too small for a float of 64 bits"]),
        ({"constants": "{A: 9223372036854775808}"}, "13:20", ["-9223372036854775808 to 9223372036854775807"]),
        ({"constants": "{A: tl.float16}"}, "13:20", ["write {dtype: fp16} for the dtype, or quote the text"]),
        ({"constants": "{A: torch.bfloat16}"}, "13:20", ["write {dtype: bf16}"]),
        ({"constants": "{A: [1, None]}"}, "13:24", ["constants.A[1]", "write null"]),
        ({"constants": "{A: {dtype: float16}}"}, "13:28", ["constants.A.dtype", "did you mean 'fp16'?"]),
        ({"constants": "{A: {dtype: tl.float16}}"}, "13:28", ["did you mean 'fp16'?"]),
        ({"constants": "{A: {dtype: '{dtpe}'}}"}, "13:17", ["unknown placeholder '{dtpe}'", "did you mean 'dtype'?"]),
        (
            {"constants": "{A: {dtype: '{D}'}}", "axes": "{D: [fp61]}"},
            "13:17",
            ["no dtype", "'fp61', from '{D}'", "fp16"],
        ),
        ({"constants": "{A: {function: relu()}}"}, "13:31", ["no function's name", "'relu()'"]),
        ({"constants": "{A: {funct: relu}}"}, "13:21", ["unknown key 'funct'", "did you mean 'function'?"]),
        ({"constants": "{A: {function: relu, dtype: fp16}}"}, "13:20", ["one of the keys expression, dtype, function"]),
        ({"constants": "{A: [{expression: 1}]}"}, "13:22", ["unknown key 'expression'"]),
        ({"constants": '{A: [1], B: {expression: "A + 1"}}'}, "13:41", ["'A', which is no integer"]),
        ({"axes": "{A: [null, 1]}"}, "13:16", ["`kernels.k.axes.A` cannot stand in names", "{low: null}"]),
        ({"axes": "{A: [0.5]}"}, "13:16", ["{low: 0.5}"]),
        ({"axes": "{A: {a: null, b: null}}"}, "13:25", ["holds null twice"]),
        ({"axes": "{A: {a: null, b: 1, c: [1]}}"}, "13:31", ["mixes values of different types", "[1] beside 1"]),
        ({"blocks": "[{M: 0.5}]"}, "9:14", ["needs a tag", "M: 0.5"]),
        ({"blocks": "[{M: {function: _}}]"}, "9:14", ["needs a tag", "M: {function: _}"]),
        ({"axes": "{A: {a: [1]}}", "exclude": "[{A: [1]}]"}, "14:20", ["A is never 1", "one of [1]"]),
    ],
)
def test_refused_with_position(tmp_path: Path, changes: dict[str, str], place: str, words: list[str]) -> None:
    message = refusal(tmp_path, **changes)
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert [word for word in words if word not in message] == []


def test_values_as_people_read_them() -> None:
    nested: Value = (1, ("a", None), FP16, (True,))
    assert written(nested) == "[1, ['a', null], {dtype: fp16}, [true]]"
    assert described(nested) == "(1, ('a', None), fp16, (True,))"
    assert [described(value) for value in ("relu", None, 1e-5, True, RELU)] == ["relu", "None", "1e-05", "True", "relu"]


def test_values_are_told_apart_by_type() -> None:
    values: list[Value] = [1, 1.0, True, "1", None, (1,), (1.0,), (True,), (1, 1), FP16, FunctionConstant(name="fp16")]
    for index, value in enumerate(values):
        assert [same(value, other) for other in values] == [place == index for place in range(len(values))]
    assert same(((1,), None), ((1,), None))
    assert not same(math.nan, math.nan)


def test_the_functions_of_a_variant() -> None:
    assert functions_of([1, RELU, (GELU, (RELU, None)), "relu"]) == ("relu", "gelu")


def test_only_placeholders_are_filled() -> None:
    where = Position(file="kernels.yaml", line=1)
    words = {"dtype": "bf16", "block": "64"}
    assert fill_dtypes((FP32, "{dtype}", DTypeConstant(name="{dtype}")), words, where, "A") == (FP32, "{dtype}", BF16)
    with pytest.raises(ManifestError, match="unknown placeholder"):
        fill_dtypes(DTypeConstant(name="{block}"), words, where, "A")
