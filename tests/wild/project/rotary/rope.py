"""Annotations of every kind, and a helper that is read under another name."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rotated(x1, x2, cos, sin):
    return x1 * cos - x2 * sin, x2 * cos + x1 * sin


rotate = rotated


@triton.jit
def rope_kernel(
    x_ptr: torch.Tensor,
    cos_ptr: torch.Tensor,
    sin_ptr: torch.Tensor,
    stride: tl.int64,
    n_heads: int,
    HEAD_DIM: tl.constexpr,
    INVERSE: tl.constexpr = False,
):
    token = tl.program_id(0)
    half: tl.constexpr = HEAD_DIM // 2
    cols = tl.arange(0, half)
    cos = tl.load(cos_ptr + token * half + cols)
    sin = tl.load(sin_ptr + token * half + cols)
    if INVERSE:
        sin = -sin
    for head in range(n_heads):
        first = x_ptr + token * stride + head * HEAD_DIM + cols
        x1 = tl.load(first).to(tl.float32)
        x2 = tl.load(first + half).to(tl.float32)
        y1, y2 = rotate(x1, x2, cos, sin)
        tl.store(first, y1)
        tl.store(first + half, y2)


def apply(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rope_kernel[(x.shape[0],)](x, cos, sin, x.stride(0), x.shape[1], HEAD_DIM=x.shape[2])
    return x
