"""Tensor descriptors that the kernel makes for itself."""

import torch
import triton
import triton.language as tl


def allocate(size: int, align: int, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


triton.set_allocator(allocate)


@triton.jit
def descriptor_matmul_kernel(
    c_ptr, a_ptr, b_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[m, k], strides=[k, 1], block_shape=[BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[n, k], strides=[k, 1], block_shape=[BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    om, on = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        acc = tl.dot(a_desc.load([om, start]), b_desc.load([on, start]).T, acc)
    c_desc.store([om, on], acc.to(c_ptr.dtype.element_ty))
