"""A kernel of somebody else's tree, which imports from its own root."""

import torch
import triton
import triton.language as tl
from layers.angles import rotated_by


@triton.jit
def rotary_kernel(x_ptr, angle_ptr, seqlen, INTERLEAVED: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    angle = tl.load(angle_ptr + (row % seqlen) * HALF + i)
    step: tl.constexpr = 2 if INTERLEAVED else 1
    gap: tl.constexpr = 1 if INTERLEAVED else HALF
    first = x_ptr + row * 2 * HALF + i * step
    a, b = rotated_by(tl.load(first), tl.load(first + gap), angle)
    tl.store(first, a)
    tl.store(first + gap, b)


def rotary(x: torch.Tensor):
    return x.contiguous()
