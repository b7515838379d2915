"""Constants that star imports bring."""

import triton.language as tl

__all__ = ["BLOCK", "EPSILON", "clamped"]

BLOCK = 256
EPSILON = tl.constexpr(1e-6)
HIDDEN = tl.constexpr(3)


def clamped(value, low=16, high=1024):
    return max(low, min(value, high))
