"""The order in which programs take the tiles of a matrix, for all matrix products here."""

import triton
import triton.language as tl


@triton.jit
def grouped_tile(index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of a tile: bands of GROUP_M rows, column by column.

    Programs that run at the same time then share rows of the left operand and columns of the right one, which stay in
    the L2 cache.
    """
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    band = index // (GROUP_M * columns)
    first = band * GROUP_M
    height = min(rows - first, GROUP_M)
    inside = index % (GROUP_M * columns)
    return first + inside % height, inside // height
