"""Constants that plain code computes, changes and collects."""

import math

import numpy as np
import triton
import triton.language as tl

SETTINGS = {"theta": 10000.0, "halves": 1}
SETTINGS["halves"] += 1
WIDTHS = [16, 32]
WIDTHS.append(64)


def half(width, halves=SETTINGS["halves"]):
    total = 0
    for part in WIDTHS:
        total += part if part <= width else 0
    return max(total // halves, 1)


HALF = tl.constexpr(1 << (half(64).bit_length() - 1))
RATE = tl.constexpr(-math.log(SETTINGS["theta"]) / HALF.value)
TABLE = np.arange(16)


@triton.jit
def timestep_kernel(y_ptr, t_ptr, n):
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    t = tl.load(t_ptr + row).to(tl.float32)
    angle = t * tl.exp(i.to(tl.float32) * RATE)
    tl.store(y_ptr + row * 2 * HALF + i, tl.cos(angle), mask=row < n)
    tl.store(y_ptr + row * 2 * HALF + HALF + i, tl.sin(angle), mask=row < n)
