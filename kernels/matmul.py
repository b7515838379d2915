"""Matrix product: one program a tile of the output, strides as arguments."""

import triton
import triton.language as tl

from kernels.tile_order import grouped_tile


@triton.jit
def matmul_kernel(
    c_ptr,
    a_ptr,
    b_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    alpha,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """C = alpha * A B, summed in fp32. With EVEN_K, K must be a multiple of BLOCK_K, and the loop needs no mask."""
    tile_m, tile_n = grouped_tile(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Offsets are 64 bits wide: rows x stride passes 2^31 elements in large matrices.
    a = a_ptr + rows.to(tl.int64)[:, None] * stride_am + inner[None, :] * stride_ak
    b = b_ptr + inner[:, None] * stride_bk + columns.to(tl.int64)[None, :] * stride_bn
    a_mask, b_mask = (rows < M)[:, None], (columns < N)[None, :]

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        if EVEN_K:
            x = tl.load(a, mask=a_mask, other=0.0)
            y = tl.load(b, mask=b_mask, other=0.0)
        else:
            x = tl.load(a, mask=a_mask & (inner < K - k)[None, :], other=0.0)
            y = tl.load(b, mask=b_mask & (inner < K - k)[:, None], other=0.0)
        total = tl.dot(x, y, total)
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk

    c = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns.to(tl.int64)[None, :] * stride_cn
    tl.store(c, (total * alpha).to(c_ptr.dtype.element_ty), mask=a_mask & b_mask)
