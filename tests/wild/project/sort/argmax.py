"""A kernel that stands under a condition."""

import torch
import triton
import triton.language as tl

HAS_TRITON = True
FAST = HAS_TRITON and not hasattr(tl, "never_there")

if FAST:

    @triton.jit
    def argmax_kernel(value_ptr, index_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
        row = tl.program_id(0)
        cols = tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        value, index = tl.max(x, axis=0, return_indices=True)
        tl.store(value_ptr + row, value)
        tl.store(index_ptr + row, index)

else:
    pass


def argmax(x):
    return torch.argmax(x, -1)
