"""Modes as constexpr globals, some annotated, chosen by an axis."""

from typing import Literal

import numpy as np
import torch
import triton
import triton.language as tl

REDUCTION = Literal["none", "sum", "mean"]
_NONE: tl.constexpr = tl.constexpr(0)
_SUM: tl.constexpr = tl.constexpr(1)
_MEAN: tl.constexpr = tl.constexpr(2)
_MODES = {"none": _NONE.value, "sum": _SUM.value, "mean": _MEAN.value}
EPSILON: tl.constexpr = tl.constexpr(float(10**-10))
MAX_BLOCK = np.int64(65536)


@triton.jit
def kl_div_kernel(
    y_ptr, x_ptr, t_ptr, stride, n_cols, REDUCTION: tl.constexpr, LOG_TARGET: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0)
        t = tl.load(t_ptr + row * stride + cols, mask=mask, other=0.0)
        loss = tl.exp(t) * (t - x) if LOG_TARGET else t * (tl.log(tl.maximum(t, EPSILON)) - x)
        if REDUCTION == _NONE:
            tl.store(y_ptr + row * stride + cols, loss, mask=mask)
        else:
            total += tl.sum(tl.where(mask, loss, 0.0), axis=0)
    if REDUCTION == _MEAN:
        total /= n_cols
    if REDUCTION != _NONE:
        tl.store(y_ptr + row, total)


def mode_of(reduction: REDUCTION, x: torch.Tensor) -> int:
    return _MODES[reduction]
