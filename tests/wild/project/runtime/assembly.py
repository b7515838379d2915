"""Assembly of one vendor each."""

import torch
import triton
import triton.language as tl


@triton.jit
def ptx_exp2(x):
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def amd_exp2(x):
    return tl.inline_asm_elementwise("v_exp_f32 $0, $1", "=v,v", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def ptx_exp2_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, ptx_exp2(x), mask=offsets < n)


@triton.jit
def amd_exp2_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, amd_exp2(x), mask=offsets < n)


def exp2(x: torch.Tensor):
    return torch.exp2(x)
