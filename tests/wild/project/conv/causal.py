"""A switch from the environment, and functions that run while the kernel is compiled."""

import os

import torch
import triton
import triton.language as tl

WITH_SILU = tl.constexpr(os.environ.get("WILD_CONV_SILU", "1") == "1")
UNROLL = tl.constexpr(int(os.getenv("WILD_CONV_UNROLL") or 2))


@triton.constexpr_function
def taps_before(width):
    return width - 1


@triton.jit
def causal_conv_kernel(y_ptr, x_ptr, w_ptr, length, dim, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    start = tl.program_id(0) * UNROLL
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    mask = channels < dim
    for step in tl.static_range(UNROLL):
        t = start + step
        acc = tl.zeros([BLOCK_D], dtype=tl.float32)
        for tap in tl.static_range(WIDTH):
            at = t - taps_before(WIDTH) + tap
            x = tl.load(x_ptr + at * dim + channels, mask=mask & (at >= 0) & (at < length), other=0.0)
            acc += x * tl.load(w_ptr + channels * WIDTH + tap, mask=mask, other=0.0)
        if WITH_SILU:
            acc = acc * tl.sigmoid(acc)
        tl.store(y_ptr + t * dim + channels, acc, mask=mask & (t < length))


def conv(x):
    return torch.nn.functional.silu(x)
