"""Turns pairs by an angle."""

import triton
import triton.language as tl


@triton.jit
def rotated_by(a, b, angle):
    c, s = tl.cos(angle), tl.sin(angle)
    return a * c - b * s, a * s + b * c
