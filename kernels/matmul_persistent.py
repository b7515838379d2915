"""Matrix product for Hopper: as many programs as there are multiprocessors, which copy tiles through descriptors."""

import triton
import triton.language as tl

from kernels.tile_order import grouped_tile


@triton.jit
def matmul_persistent_kernel(
    c_ptr,
    a_ptr,
    b_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    alpha,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
):
    """C = alpha * A B of row-major matrices, summed in fp32.

    The kernel makes its tensor descriptors itself, in scratch memory that the launch provides. Rows must start at
    multiples of 16 bytes, and those of C hold a multiple of 16 bytes, since a piece of 16 bytes is written whole. With
    WARP_SPECIALIZE, some warps only copy, and more are launched than were asked for.
    """
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_am, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [stride_bk, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = grouped_tile(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        # What lies beyond the edges reads as 0 and is not written: the descriptors know the shapes.
        for k in tl.range(0, K, BLOCK_K, warp_specialize=WARP_SPECIALIZE):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        c.store([row, column], (total * alpha).to(c_ptr.dtype.element_ty))
