"""A factory called at module level: the kernel is what it gives back."""

import torch
import triton
import triton.language as tl


def make_merge(base_two: bool):
    exponential = tl.constexpr(base_two)

    @triton.jit
    def merge(o_ptr, a_ptr, b_ptr, lse_a_ptr, lse_b_ptr, HEAD_DIM: tl.constexpr):
        row = tl.program_id(0)
        dims = tl.arange(0, HEAD_DIM)
        lse_a, lse_b = tl.load(lse_a_ptr + row), tl.load(lse_b_ptr + row)
        high = tl.maximum(lse_a, lse_b)
        if exponential:
            wa, wb = tl.exp2(lse_a - high), tl.exp2(lse_b - high)
        else:
            wa, wb = tl.exp(lse_a - high), tl.exp(lse_b - high)
        a = tl.load(a_ptr + row * HEAD_DIM + dims)
        b = tl.load(b_ptr + row * HEAD_DIM + dims)
        tl.store(o_ptr + row * HEAD_DIM + dims, (a * wa + b * wb) / (wa + wb))

    return merge


merge_kernel = make_merge(True)


def merge_states(a, b, lse_a, lse_b):
    o = torch.empty_like(a)
    merge_kernel[(a.shape[0],)](o, a, b, lse_a, lse_b, HEAD_DIM=a.shape[-1])
    return o
