"""An import that is tried in several places, and a reduction of three values at once."""

import torch
import triton
import triton.language as tl

try:
    from apex.contrib.group_norm import cuda_rsqrt as rsqrt
except ImportError:
    try:
        from triton.language.extra.libdevice import rsqrt
    except ModuleNotFoundError:
        from triton.language.math import rsqrt

from norms.reduce import welford


@triton.jit
def group_norm_kernel(y_ptr, x_ptr, group_size, eps, BLOCK_SIZE: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * group_size
    offsets = tl.arange(0, BLOCK_SIZE)
    mask = offsets < group_size
    x = tl.load(x_ptr + base + offsets, mask=mask, other=0.0).to(tl.float32)
    count = tl.where(mask, 1.0, 0.0)
    mean, m2, total = tl.reduce((x, tl.zeros_like(x), count), 0, welford)
    y = (x - mean) * rsqrt(m2 / total + eps)
    tl.store(y_ptr + base + offsets, y, mask=mask)


def check(x: torch.Tensor) -> None:
    torch.testing.assert_close(x, x)
