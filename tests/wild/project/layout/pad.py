"""Words and negative numbers among the constants."""

import triton
import triton.language as tl


@triton.jit
def pad_kernel(
    y_ptr, x_ptr, n, m, SHIFT: tl.constexpr, VALUE: tl.constexpr, MODE: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    source = offsets + SHIFT
    inside = (source >= 0) & (source < n)
    if MODE == "reflect":
        source = tl.where(source < 0, -source, source)
        source = tl.where(source >= n, 2 * n - 2 - source, source)
        y = tl.load(x_ptr + source, mask=offsets < m)
    elif MODE == "edge":
        y = tl.load(x_ptr + tl.minimum(tl.maximum(source, 0), n - 1), mask=offsets < m)
    else:
        tl.static_assert(MODE == "constant")
        y = tl.load(x_ptr + source, mask=inside & (offsets < m), other=VALUE)
    tl.store(y_ptr + offsets, y, mask=offsets < m)
