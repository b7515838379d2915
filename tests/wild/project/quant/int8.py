"""The largest value of a type, and an alias of one of libdevice's functions."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

round_to_even = libdevice.rint
INT8_MAX = tl.constexpr(torch.iinfo(torch.int8).max)
SMALLEST = tl.constexpr(torch.finfo(torch.float32).eps)


@triton.jit
def int8_quant_kernel(q_ptr, scale_ptr, x_ptr, stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), SMALLEST) / INT8_MAX
    q = round_to_even(x / scale).to(tl.int8)
    tl.store(q_ptr + row * stride + cols, q, mask=mask)
    tl.store(scale_ptr + row, scale)


def quantize(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, dtype=torch.int8)
