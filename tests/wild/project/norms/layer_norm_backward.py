"""A relative import of a module, and atomics."""

import torch
import triton
import triton.language as tl

from . import reduce


@triton.jit
def layer_norm_backward_kernel(
    dx_ptr,
    dw_ptr,
    db_ptr,
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    stride,
    n_cols,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    normal = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = reduce.weighted_sum(normal, wdy, mask, n_cols)
    c2 = tl.sum(wdy, axis=0) / n_cols
    tl.store(dx_ptr + row * stride + cols, (wdy - (normal * c1 + c2)) * rstd, mask=mask)
    part = (row % GROUP) * n_cols + cols
    tl.atomic_add(dw_ptr + part, dy * normal, mask=mask)
    tl.atomic_add(db_ptr + part, dy, mask=mask)


def launch(dy: torch.Tensor, x: torch.Tensor):
    return torch.empty_like(dy), torch.zeros_like(x)
