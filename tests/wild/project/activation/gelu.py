"""A function that stands for a constant: which one, the declaration says."""

import torch
import triton
import triton.language as tl
from common.math import gelu_tanh, relu


@triton.jit
def squared_relu(x):
    y = relu(x)
    return y * y


@triton.jit
def activation_kernel(y_ptr, x_ptr, n, ACTIVATION: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, ACTIVATION(x), mask=mask)


def activate(x, name):
    function = {"gelu": gelu_tanh, "relu2": squared_relu}[name]
    y = torch.empty_like(x)
    activation_kernel[(triton.cdiv(x.numel(), 1024),)](y, x, x.numel(), function, 1024)
    return y
