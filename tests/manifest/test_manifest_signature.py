"""Signatures: types, promises, sizes; and each mistake with the number of its item."""

from __future__ import annotations

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.signature import Signature, parse_signature

HERE = Position(file="kernels.yaml", line=15, column=5)


def parse(text: str) -> Signature:
    return parse_signature(text, HERE)


def test_items() -> None:
    signature = parse("*fp16:16, i32 ,i32:1,*i64, u8 : 16, fp32")
    assert [(item.type, item.promise) for item in signature.items] == [
        ("*fp16", 16),
        ("i32", None),
        ("i32", 1),
        ("*i64", None),
        ("u8", 16),
        ("fp32", None),
    ]
    assert [item.is_pointer for item in signature.items] == [True, False, False, True, False, False]
    assert signature.items[0].dtype == "fp16"
    assert (signature.text, signature.position) == ("*fp16:16, i32 ,i32:1,*i64, u8 : 16, fp32", HERE)


def test_tuples_are_flattened_and_keep_their_paths() -> None:
    signature = parse("*fp16, (*fp16:16, (i32, i64:1)), ( i8 , ), fp32")
    assert signature.parts == ("*fp16", "(*fp16:16, (i32, i64:1))", "( i8 , )", "fp32")
    assert [(item.type, item.promise, item.path) for item in signature.items] == [
        ("*fp16", None, (0,)),
        ("*fp16", 16, (1, 0)),
        ("i32", None, (1, 1, 0)),
        ("i64", 1, (1, 1, 1)),
        ("i8", None, (2, 0)),
        ("fp32", None, (3,)),
    ]
    assert signature.parameter_bytes == 28


@pytest.mark.parametrize("text", ["", "  "])
def test_a_kernel_without_arguments(text: str) -> None:
    assert parse(text).items == ()
    assert parse(text).parameter_bytes == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_stands_alone_and_behind_a_pointer(dtype: str) -> None:
    signature = parse(f"{dtype}, *{dtype}")
    assert [item.dtype for item in signature.items] == [dtype, dtype]
    assert [item.size for item in signature.items] == [DTYPES[dtype].size, 8]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("i32", 4),
        ("i32, *fp16", 16),
        ("i1, i16, i1, i64, i8", 17),
        ("i32:1, i64:1, i32", 4),
        (", ".join(["i64"] * 512), 4096),
    ],
)
def test_parameter_bytes(text: str, size: int) -> None:
    assert parse(text).parameter_bytes == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("i32, i33", ["item 2", "'i33'", "did you mean 'i32'?"]),
        ("i32, *f16", ["item 2", "'f16'", "'fp16'"]),
        ("I32", ["item 1", "'I32'"]),
        ("i32,, i32", ["item 2", "is empty"]),
        ("i32, ", ["item 2", "is empty"]),
        (",", ["item 1", "is empty"]),
        ("i32 i32", ["item 1", "not one type", "commas"]),
        ("*fp16 16", ["not one type"]),
        ("fp16*", ["not one type", "remedy: write *fp16"]),
        ("i32, fp16 *: 16", ["item 2", "remedy: write *fp16:16"]),
        ("fp17*", ["not one type", "commas"]),
        ("*bfloat16", ["'bfloat16'", "did you mean 'bf16'?"]),
        ("* fp16", ["not one type"]),
        ("**fp16", ["item 1", "pointer to a pointer", "*i64"]),
        ("*fp16, 1024", ["item 2", "is a constant", "BLOCK_SIZE"]),
        ("-1.5", ["item 1", "is a constant", "under `constants`"]),
        ("i32, 'relu'", ["item 2", "is a constant"]),
        ("None", ["item 1", "is a constant", "set the parameter to null under `constants`"]),
        ("*kfp16", ["is a pointer to constants", "remedy: write *fp16"]),
        ("u1", ["unknown dtype 'u1'", "did you mean 'i1'?"]),
        ("(i32", ["item 1", "is no tuple of types", "close each parenthesis"]),
        ("i32, (i32)), i8", ["item 2", "not one type"]),
        ("i32)", ["item 1", "not one type"]),
        ("(i32, i8):16", ["item 1", "is no tuple of types", "give each member its own promise"]),
        ("()", ["item 1", "is an empty tuple", "[] under `constants`"]),
        ("(i32,, i8)", ["member 2 of item 1 of the signature", "is empty"]),
        ("i8, (i32, (i32, i33))", ["member 2 of member 2 of item 2 of the signature, 'i33'", "did you mean 'i32'?"]),
        ("(i32, 4)", ["member 2 of item 1", "is a constant", "i32:1 for what is 1"]),
        ("(None, i8)", ["member 1 of item 1", "is a constant", "pass the tuple's members as arguments"]),
        ("(fp32:16)", ["member 1 of item 1", "no integer and no pointer"]),
        ("(" * 9 + "i8" + ")" * 9, ["nested too deeply", "at most 8 tuples"]),
        ("i32, tensordesc<fp16[128,64]>", ["item 2", "tensor descriptor that the host makes", "CUtensorMap", "yet"]),
        ("nvTmaDesc", ["item 1", "remedy: pass pointer, shape and strides", "tl.make_tensor_descriptor"]),
        ("*fp16:8", ["item 1", "promise", "divisible by 16"]),
        ("*fp16:1", ["item 1", "promise that *fp16 cannot"]),
        ("*fp16:", ["item 1", "promise"]),
        ("fp32:16", ["no integer and no pointer"]),
        ("fp32:1", ["no integer and no pointer"]),
        ("i1:1", ["no integer and no pointer"]),
        ("i32:2", [":16", ":1 (the value is 1)"]),
        ("i32:16:1", ["not one type"]),
        ("i32;id", ["not one type"]),
        ("\u045632", ["'\\u045632'"]),
        (", ".join(["i64"] * 512) + ", i1", ["513 arguments", "at most 4096 bytes", "4097 bytes"]),
    ],
)
def test_refused(text: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("kernels.yaml:15:5: ")
    assert message.isascii()
    assert [word for word in words if word not in message] == []
