"""Signature and constants of a variant joined with its function, and what is said when they do not fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch

from kiln.closure.bind import bind
from kiln.closure.slice import Closure
from kiln.errors import KilnError, ManifestError, Position
from kiln.manifest.expression import parse_expression
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Block, Kernel, Variant
from kiln.manifest.signature import parse_signature

KERNEL = (
    "@triton.jit\ndef kernel(out_ptr, in_ptr, n, flag, scale, BLOCK_SIZE: tl.constexpr, DEPTH: tl.constexpr = 2):\n"
)
LINES = {
    "signature": 7,
    "grid": 8,
    "select": 9,
    "inputs": 10,
    "tensors": 11,
    "blocks": 12,
    "axes.MODE": 13,
    "strides": 14,
    "outputs": 15,
    "any_values": 16,
}


def at(key: str) -> Position:
    return Position(file="kernels.yaml", line=LINES[key], column=5)


def variant(
    signature: str = "*fp16:16, *fp16, i32:1, i1, fp32",
    constants: dict[str, Any] | None = None,
    inputs: dict[str, str] | None = None,
    grid: str = "rows * n",
    select: str = "n <= BLOCK_SIZE",
    tensors: dict[str, str] | None = None,
    strides: dict[str, str] | None = None,
    outputs: tuple[str, ...] | None = None,
    any_values: tuple[str, ...] = (),
    axes: dict[str, Any] | None = None,
) -> Variant:
    one = parse_expression("1", at("grid"))
    kernel = Kernel(
        key="soft",
        position=Position(file="kernels.yaml", line=3, column=3),
        positions={key: at(key) for key in LINES},
        source=Path("/nowhere/k.py"),
        source_name="k.py",
        function="kernel",
        dtypes=("fp16",),
        axes={name: {str(value): value} for name, value in (axes or {}).items()},
        blocks=(
            Block(
                tag="64",
                constants={"BLOCK_SIZE": 64},
                options={},
                is_integer=True,
                position=at("blocks"),
                positions={},
            ),
        ),
        constants={},
        exclude=(),
        targets=("sm_80",),
        name="soft_{dtype}_{block}",
        group="soft_{dtype}",
        signature=signature,
        options={},
        inputs={"rows": "i32"} if inputs is None else inputs,
        grid=(parse_expression(grid, at("grid")), one, one),
        select=parse_expression(select, at("select")),
        tensors={
            name: (parse_expression(shape, at("tensors")),)
            for name, shape in ({"in_ptr": "rows * DEPTH"} if tensors is None else tensors).items()
        },
        strides={name: (parse_expression(stride, at("strides")),) for name, stride in (strides or {}).items()},
        outputs=outputs,
        any_values=any_values,
        reference=None,
        problems=(),
        tolerance={},
    )
    return Variant(
        id="soft_fp16_64",
        base="soft_fp16_64",
        kernel=kernel,
        dtype="fp16",
        block="64",
        axes=axes or {},
        group="soft_fp16",
        signature=parse_signature(signature, at("signature")),
        constants={"DEPTH": 4, "BLOCK_SIZE": 64} if constants is None else constants,
        options={},
        targets=kernel.targets,
    )


@pytest.fixture
def closure(scratch: Scratch) -> Closure:
    scratch.write(HEADER + KERNEL + "    pass\n")
    return scratch.cut()


def test_arguments_and_constants_in_the_functions_order(closure: Closure) -> None:
    assert bind(variant(), closure) == Interface(
        arguments=(
            Argument(name="out_ptr", type="*fp16", promise=16),
            Argument(name="in_ptr", type="*fp16", promise=None),
            Argument(name="n", type="i32", promise=1),
            Argument(name="flag", type="i1", promise=None),
            Argument(name="scale", type="fp32", promise=None),
        ),
        constants={"BLOCK_SIZE": 64, "DEPTH": 4},
    )
    assert list(bind(variant(), closure).constants) == ["BLOCK_SIZE", "DEPTH"]


def test_an_axis_sets_its_parameter_or_is_for_expressions(closure: Closure) -> None:
    declared = variant(constants={"BLOCK_SIZE": 64}, axes={"DEPTH": 8, "MODE": True}, grid="rows * MODE + DEPTH")
    interface = bind(declared, closure)
    assert interface.constants == {"BLOCK_SIZE": 64, "DEPTH": 8}
    assert interface.axes == {"MODE": True}
    assert interface.known == {"BLOCK_SIZE": 64, "DEPTH": 8, "MODE": True}


def test_a_default_stands_and_a_constant_needs_no_annotation(scratch: Scratch) -> None:
    scratch.write(HEADER + "@triton.jit\ndef kernel(p, BLOCK_SIZE, D: tl.constexpr = 2):\n    pass\n")
    plain = variant("*fp32", {"BLOCK_SIZE": 64}, grid="rows", select="rows <= BLOCK_SIZE", tensors={"p": "rows"})
    assert bind(plain, scratch.cut()) == Interface(
        arguments=(Argument(name="p", type="*fp32", promise=None),), constants={"BLOCK_SIZE": 64}
    )


def test_an_option_is_the_constant_of_its_name(scratch: Scratch) -> None:
    scratch.write(HEADER + "@triton.jit\ndef kernel(p, num_warps: tl.constexpr, BLOCK_SIZE: tl.constexpr):\n    pass\n")
    plain = variant("*fp32", {"BLOCK_SIZE": 64}, grid="rows", select="rows <= BLOCK_SIZE", tensors={"p": "rows"})
    declared = dataclasses.replace(plain, options={"num_warps": 2, "num_stages": 3})
    assert bind(declared, scratch.cut()).constants == {"num_warps": 2, "BLOCK_SIZE": 64}


REFUSED: dict[str, tuple[Variant, str, str]] = {
    "too few items": (
        variant("*fp16, *fp16, i32"),
        "kernels.yaml:7:5: soft_fp16_64: the signature has fewer items than kernel has arguments",
        "out_ptr: *fp16, in_ptr: *fp16, n: i32, flag: (no item), scale: (no item)",
    ),
    "too many items": (
        variant("*fp16:16, *fp16, i32, i1, fp32, i64"),
        "kernels.yaml:7:5: soft_fp16_64: the signature has more items than kernel has arguments",
        "out_ptr: *fp16:16, in_ptr: *fp16, n: i32, flag: i1, scale: fp32, (no parameter): i64",
    ),
    "a constant that the signature gives a type": (
        variant("*fp16:16, *fp16, i32, i1, fp32", constants={"DEPTH": 4, "BLOCK_SIZE": 64, "n": 5}),
        "kernels.yaml:7:5: soft_fp16_64: the signature has more items than kernel has arguments",
        "remedy: remove the types of n, since constants have no item, or remove those constants",
    ),
    "a constant without value": (
        variant(constants={"DEPTH": 4}),
        "kernels.yaml:3:3: soft_fp16_64 gives no value to the constant BLOCK_SIZE",
        "a value for BLOCK_SIZE: tl.constexpr, a parameter of kernel at k.py:4:1",
    ),
    "a constant that is no parameter": (
        variant(constants={"BLOCKSIZE": 64, "DEPTH": 1}),
        "kernels.yaml:12:5: soft_fp16_64 sets the constant BLOCKSIZE, and kernel has no parameter of that name",
        "did you mean 'BLOCK_SIZE'?",
    ),
    "an unknown name in grid": (
        variant(grid="row"),
        "kernels.yaml:8:5: grid of soft_fp16_64 uses row, which is not known",
        "did you mean 'rows'?",
    ),
    "a truth value in grid": (
        variant(grid="flag"),
        "kernels.yaml:8:5: grid of soft_fp16_64 uses flag, which is no integer",
        "`flag`, with flag: i1, an argument",
    ),
    "a pointer in select": (
        variant(select="in_ptr <= 4"),
        "kernels.yaml:9:5: select of soft_fp16_64 uses in_ptr, which is no integer",
        "with in_ptr: *fp16, an argument",
    ),
    "a constant that is no integer": (
        variant(constants={"BLOCK_SIZE": 64, "DEPTH": 1.5}),
        "kernels.yaml:11:5: the shape of in_ptr of soft_fp16_64 uses DEPTH, which is no integer",
        "with DEPTH = 1.5, a constant",
    ),
    "an unknown name in a shape": (
        variant(tensors={"in_ptr": "cols"}),
        "kernels.yaml:11:5: the shape of in_ptr of soft_fp16_64 uses cols, which is not known",
        "declare it, as `inputs: {cols: i32}`",
    ),
    "an unknown name in a stride": (
        variant(strides={"in_ptr": "step"}),
        "kernels.yaml:14:5: a stride of in_ptr of soft_fp16_64 uses step, which is not known",
        "declare it, as `inputs: {step: i32}`",
    ),
    "an output that is no pointer": (
        variant(outputs=("out_ptr", "n")),
        "kernels.yaml:15:5: outputs of soft_fp16_64 has n, which is not a pointer argument",
        "actual: n: i32",
    ),
    "an output that is misspelt": (
        variant(outputs=("outptr",)),
        "kernels.yaml:15:5: outputs of soft_fp16_64 has outptr, which is not a pointer argument",
        "did you mean 'out_ptr'?",
    ),
    "any values of numbers that are no integers": (
        variant(any_values=("rows", "in_ptr")),
        "kernels.yaml:16:5: any_values of soft_fp16_64 has in_ptr, which is not an integer, or a pointer to integers",
        "names of n, rows",
    ),
    "an axis that nothing uses": (
        variant(axes={"MODE": 1}),
        "kernels.yaml:13:5: the axis MODE of soft changes nothing: kernel has no parameter of that name",
        "one of the parameters of kernel at k.py:4:1: out_ptr,",
    ),
    "an axis of text in grid": (
        variant(axes={"MODE": "fast"}, grid="MODE"),
        "kernels.yaml:8:5: grid of soft_fp16_64 uses MODE, which is no integer",
        "with MODE = 'fast', an axis",
    ),
    "a misspelt option of a block": (
        variant(constants={"num_wraps": 8, "BLOCK_SIZE": 64}),
        "kernels.yaml:12:5: soft_fp16_64 sets the constant num_wraps",
        "did you mean 'num_warps'",
    ),
    "a tensor of no argument": (
        variant(tensors={"inptr": "rows"}),
        "kernels.yaml:11:5: tensors of soft_fp16_64 has a shape for inptr, which is no pointer argument",
        "did you mean 'in_ptr'?",
    ),
    "a tensor of a scalar": (
        variant(tensors={"n": "rows"}),
        "kernels.yaml:11:5: tensors of soft_fp16_64 has a shape for n, which is no pointer argument",
        "actual: n: i32",
    ),
    "an input that is an argument": (
        variant(inputs={"rows": "i32", "n": "i32"}),
        "kernels.yaml:10:5: the input n of soft_fp16_64 is already a parameter of kernel",
        "remove n from inputs",
    ),
    "an input that is a constant": (
        variant(inputs={"rows": "i32", "DEPTH": "i32"}),
        "kernels.yaml:10:5: the input DEPTH of soft_fp16_64 is already a parameter of kernel",
        "",
    ),
    "an input that is a keyword": (
        variant(inputs={"rows": "i32", "fn": "i32"}),
        "kernels.yaml:10:5: 'fn' cannot be the name of a launch input: it is a keyword of Rust",
        "",
    ),
}


@pytest.mark.parametrize(("refused", "head", "detail"), REFUSED.values(), ids=REFUSED)
def test_refuses(closure: Closure, refused: Variant, head: str, detail: str) -> None:
    with pytest.raises(ManifestError) as caught:
        bind(refused, closure)
    message = str(caught.value)
    print(message)
    assert message.startswith(head)
    assert detail in message
    assert "remedy: " in message


@pytest.mark.parametrize("name", ["é", "__x", "_"])
def test_refuses_arguments_that_other_languages_cannot_name(scratch: Scratch, name: str) -> None:
    """What is a fine name in Python may be none in C, C++ or Rust; the place is the kernel's."""
    scratch.write(HEADER + f"@triton.jit\ndef kernel({name}, BLOCK_SIZE: tl.constexpr):\n    pass\n")
    declared = variant("i32", {"BLOCK_SIZE": 64}, grid="rows", select="True", tensors={})
    with pytest.raises(KilnError, match=r"k\.py:4:1: .* cannot be the name of a kernel argument"):
        bind(declared, scratch.cut())


@pytest.mark.parametrize(
    ("names", "items", "inputs", "place"),
    [
        ("do, do_", "i32, i32", {}, "k.py:4:1"),
        ("fn_, x, fn", "i32, i32, i32", {}, "k.py:4:1"),
        ("new", "i32", {"new_": "i32"}, "kernels.yaml:10:5"),
    ],
)
def test_refuses_names_that_structs_would_not_tell_apart(
    scratch: Scratch, names: str, items: str, inputs: dict[str, str], place: str
) -> None:
    scratch.write(HEADER + f"@triton.jit\ndef kernel({names}, BLOCK_SIZE: tl.constexpr):\n    pass\n")
    declared = variant(items, {"BLOCK_SIZE": 64}, grid="1", select="True", tensors={}, inputs=inputs)
    word = next(name for name in ("do", "fn", "new") if name in names)
    with pytest.raises(ManifestError) as caught:
        bind(declared, scratch.cut())
    message = str(caught.value)
    assert message.startswith(f"{place}: ")
    assert f"would both be {word}_ in C and Rust, where {word} has an underscore behind it" in message
    assert "remedy: rename one of them" in message


def test_arguments_keep_their_own_names(scratch: Scratch) -> None:
    scratch.write(HEADER + "@triton.jit\ndef kernel(do, fn, BLOCK_SIZE: tl.constexpr):\n    pass\n")
    declared = variant("*fp16:16, i32", {"BLOCK_SIZE": 64}, grid="fn", select="fn > 2", tensors={"do": "fn"})
    assert [argument.name for argument in bind(declared, scratch.cut()).arguments] == ["do", "fn"]


def test_without_a_place_of_its_own_a_key_is_told_by_the_kernel(closure: Closure) -> None:
    declared = variant(tensors={"inptr": "rows"})
    bare = dataclasses.replace(declared, kernel=dataclasses.replace(declared.kernel, positions={}))
    with pytest.raises(ManifestError, match=r"^kernels\.yaml:3:3: tensors of"):
        bind(bare, closure)
