"""Plain functions that are made kernels further down."""

import torch
import triton
import triton.language as tl


def add(a, b):
    return a + b


def cumsum_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr, REVERSE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.associative_scan(x, 0, add, reverse=REVERSE)
    tl.store(y_ptr + row * n_cols + cols, y, mask=cols < n_cols)


add = triton.jit(add)
cumsum_kernel = triton.jit(cumsum_kernel)


def cumsum(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x, -1)
