"""What other words for a dtype are answered with."""

from __future__ import annotations

import pytest

from kiln.manifest.dtypes import DTYPES, suggest_dtype


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("float16 half f16 F16 Half FP16", "fp16"),
        ("bfloat16 BF16 BFloat16", "bf16"),
        ("float float32 f32 FP32", "fp32"),
        ("float64 double f64", "fp64"),
        ("int32 Int32 I32", "i32"),
        ("int64", "i64"),
        ("uint8", "u8"),
        ("bool", "i1"),
        ("e4m3 E4M3 float8_e4m3fn", "fp8e4nv"),
        ("e5m2 float8_e5m2", "fp8e5"),
    ],
)
def test_another_word_for_a_dtype(words: str, dtype: str) -> None:
    for word in words.split():
        assert suggest_dtype(word) == f"did you mean '{dtype}'?"


def test_only_choices_are_suggested() -> None:
    assert suggest_dtype("half", ("i32", "i64")) is None
    assert suggest_dtype("tensor") is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_slip_in_a_dtype(dtype: str) -> None:
    assert repr(dtype) in str(suggest_dtype(f"{dtype}_"))
