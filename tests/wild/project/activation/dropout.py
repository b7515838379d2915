"""Defaults by name, in the kernel and in its helper."""

import os

import torch
import triton
import triton.language as tl

P = 0.1
ROUNDS = 7
SEED = int(os.environ.get("SEED", "0"))


@triton.jit
def keep(seed, offsets, p, rounds: tl.constexpr = ROUNDS):
    return tl.rand(seed, offsets, rounds) > p


@triton.jit
def dropout_kernel(y_ptr, x_ptr, n, seed, P: tl.constexpr = P, BLOCK_SIZE: tl.constexpr = 512):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.where(keep(seed, offsets, P), x / (1 - P), 0.0)
    tl.store(y_ptr + offsets, y, mask=mask)


def dropout(x):
    dropout_kernel[(1,)](torch.empty_like(x), x, x.numel(), SEED)
