"""Strides that come as a tuple, and a tuple among the constants."""

import torch
import triton
import triton.language as tl


@triton.jit
def offset_of(index, strides):
    return index[0] * strides[0] + index[1] * strides[1]


@triton.jit
def batched_add_kernel(out, operands, strides, n, SHAPE: tl.constexpr, AFFINE: tl.constexpr):
    batch = tl.program_id(0)
    rows = tl.arange(0, SHAPE[0])[:, None]
    cols = tl.arange(0, SHAPE[1])[None, :]
    offsets = offset_of((batch, 0), strides) + rows * SHAPE[1] + cols
    mask = offsets < n
    a = tl.load(operands[0] + offsets, mask=mask).to(tl.float32)
    b = tl.load(operands[1] + offsets, mask=mask).to(tl.float32)
    tl.store(out + offsets, a * AFFINE[0] + b * AFFINE[1], mask=mask)


def add(a: torch.Tensor, b: torch.Tensor):
    out = torch.empty_like(a)
    batched_add_kernel[(a.shape[0],)](out, (a, b), a.stride()[:2], a.numel(), SHAPE=(16, 32), AFFINE=(1.0, -0.5))
    return out
