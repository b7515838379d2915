"""Star imports: of a file of the project, and of Triton's language."""

# ruff: noqa: F403, F405
import triton
from common.constants import *
from triton.language import *

STEP = constexpr(clamped(BLOCK * 8))


@triton.jit
def gather_kernel(y_ptr, x_ptr, index_ptr, scale, n):
    offsets = program_id(0) * STEP + arange(0, STEP)
    index = load(index_ptr + offsets, mask=offsets < n, other=0)
    x = load(x_ptr + index, mask=offsets < n)
    store(y_ptr + offsets, x / (scale + EPSILON), mask=offsets < n)
