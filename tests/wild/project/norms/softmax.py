"""Heuristics that follow from the declaration: a pointer that is not given, a power of two, a divisor."""

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "HAS_MASK": lambda args: args["mask_ptr"] is not None,
        "BLOCK_COLS": lambda args: triton.next_power_of_2(args["COLS"]),
        "EVEN": lambda args: args["COLS"] % 128 == 0,
    }
)
@triton.jit
def masked_softmax_kernel(
    y_ptr,
    x_ptr,
    mask_ptr,
    scale,
    COLS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    HAS_MASK: tl.constexpr,
    EVEN: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_COLS)
    if EVEN and COLS == BLOCK_COLS:
        x = tl.load(x_ptr + row * COLS + cols).to(tl.float32) * scale
    else:
        x = tl.load(x_ptr + row * COLS + cols, mask=cols < COLS, other=-float("inf")).to(tl.float32) * scale
    if HAS_MASK:
        x += tl.load(mask_ptr + cols, mask=cols < COLS, other=0.0)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * COLS + cols, x / tl.sum(x, axis=0), mask=cols < COLS)


def launch(x, mask=None):
    masked_softmax_kernel[(x.shape[0],)](torch.empty_like(x), x, mask, 1.0, COLS=x.shape[1])
