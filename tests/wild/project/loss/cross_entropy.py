"""A label to ignore that is negative, a pointer that may be None, and a word that says what is computed."""

import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(
    loss_ptr,
    x_ptr,
    target_ptr,
    weight_ptr,
    stride,
    n_cols,
    n_non_ignore,
    IGNORE_INDEX: tl.constexpr,
    LABEL_SMOOTHING: tl.constexpr,
    REDUCTION: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_ptr += row * stride
    if target == IGNORE_INDEX:
        tl.store(loss_ptr + row, 0.0)
        return
    m, d, total = float("-inf"), 0.0, 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        block_max = tl.max(x)
        if LABEL_SMOOTHING > 0:
            total += tl.sum(tl.where(cols < n_cols, x, 0.0))
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    loss = lse - tl.load(x_ptr + target).to(tl.float32)
    if LABEL_SMOOTHING > 0:
        loss = loss * (1 - LABEL_SMOOTHING) + LABEL_SMOOTHING * (lse - total / n_cols)
    if HAS_WEIGHT:
        loss *= tl.load(weight_ptr + target)
    if REDUCTION == "mean":
        loss = loss / n_non_ignore
    tl.store(loss_ptr + row, loss)


class CrossEntropy(torch.autograd.Function):
    IGNORE_INDEX = -100
