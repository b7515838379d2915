"""A helper from an installed package, beside one of the project."""

import torch
import triton
import triton.language as tl
from common.math import silu
from wildkernels.ops.utils import row_of


@triton.jit
def mixture_kernel(y_ptr, x_ptr, gate_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    row = row_of(tl.program_id(0), n_cols)
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row + cols, mask=cols < n_cols)
    gate = tl.load(gate_ptr + row + cols, mask=cols < n_cols).to(tl.float32)
    tl.store(y_ptr + row + cols, silu(gate) * x, mask=cols < n_cols)


def mix(x: torch.Tensor):
    return torch.zeros_like(x)
