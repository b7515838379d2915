"""Functions that many kernels share."""

import math

import torch

from common.compat import tl, triton

SQRT_2_OVER_PI = tl.constexpr(math.sqrt(2.0 / math.pi))
GELU_CUBIC = tl.constexpr(0.044715)


def log2_of_e():
    return math.log2(math.e)


LOG2E = tl.constexpr(log2_of_e())


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def tanh(x):
    # through the sigmoid, which every target has
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def gelu_tanh(x):
    return 0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)))


@triton.jit
def relu(x):
    return tl.maximum(x, 0.0)


@triton.jit
def exp(x):
    return tl.exp2(x * LOG2E)


def reference_silu(x):
    return x * torch.sigmoid(x)
