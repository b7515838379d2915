"""Names that come to be while the file runs: only importing it says what they are."""

import triton
import triton.language as tl

for _name, _value in {"BINS": 64, "SHIFT": 2}.items():
    globals()[_name] = tl.constexpr(_value)


@triton.jit
def histogram_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    counts = tl.histogram((x >> SHIFT) % BINS, BINS, mask=offsets < n)  # noqa: F821
    tl.atomic_add(y_ptr + tl.arange(0, BINS), counts)  # noqa: F821
