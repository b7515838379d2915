"""A type that each vendor has its own of, chosen by asking which machine this is."""

import torch
import triton
import triton.language as tl
from common.compat import is_hip

if is_hip():
    FP8 = tl.float8e4b8
    FP8_MAX = tl.constexpr(240.0)
else:
    FP8 = tl.float8e4nv
    FP8_MAX = tl.constexpr(torch.finfo(torch.float8_e4m3fn).max)


@triton.jit
def fp8_quant_kernel(q_ptr, scale_ptr, x_ptr, n_cols, GROUP: tl.constexpr):
    row, group = tl.program_id(0), tl.program_id(1)
    cols = group * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10) / FP8_MAX
    q = tl.clamp(x / scale, -FP8_MAX, FP8_MAX).to(FP8)
    tl.store(q_ptr + row * n_cols + cols, q.to(tl.int8, bitcast=True), mask=cols < n_cols)
    tl.store(scale_ptr + row * tl.num_programs(1) + group, scale)


def kind():
    return torch.float8_e4m3fnuz if is_hip() else torch.float8_e4m3fn
