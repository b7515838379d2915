"""What the package's kernels share."""

import functools

import torch
import triton
import triton.language as tl


@functools.lru_cache
def device():
    return torch.cuda.current_device()


@triton.jit
def row_of(program, n_cols):
    return program.to(tl.int64) * n_cols
