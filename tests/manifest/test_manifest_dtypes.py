"""The words for a dtype: Triton's own, and what other ones are answered with."""

from __future__ import annotations

import pytest
import triton.language

from kiln.manifest.dtypes import DTYPES, DType, dtype_called, suggest_dtype


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("float16 half f16 F16 Half FP16", "fp16"),
        ("bfloat16 BF16 BFloat16", "bf16"),
        ("float float32 f32 FP32", "fp32"),
        ("float64 double f64", "fp64"),
        ("int32 Int32 I32 int int32_t", "i32"),
        ("int64 long int64_t isize", "i64"),
        ("uint8 uint8_t", "u8"),
        ("size_t usize uint64_t", "u64"),
        ("bool", "i1"),
        ("e4m3 E4M3 float8_e4m3fn", "fp8e4nv"),
        ("e5m2 float8_e5m2", "fp8e5"),
    ],
)
def test_another_word_for_a_dtype(words: str, dtype: str) -> None:
    for word in words.split():
        assert suggest_dtype(word) == f"did you mean '{dtype}'?"


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
def test_the_word_in_triton_language(dtype: DType) -> None:
    assert getattr(triton.language, dtype.language) == triton.language.str_to_ty(dtype.name, None)
    assert dtype_called(dtype.language) == dtype.name


def test_only_choices_are_suggested() -> None:
    assert suggest_dtype("half", ("i32", "i64")) is None
    assert suggest_dtype("tensor") is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_slip_in_a_dtype(dtype: str) -> None:
    assert repr(dtype) in str(suggest_dtype(f"{dtype}_"))
