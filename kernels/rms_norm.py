"""Division of each row by its root mean square, and a weight for each column: one program a row, a row in one block."""

import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    output_ptr,
    input_ptr,
    weight_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    eps,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_SIZE)
    mask = columns < n_cols
    values = tl.load(input_ptr + row * input_row_stride + columns, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(values * values, axis=0) / n_cols
    result = values * tl.rsqrt(mean_square + eps) * weight
    tl.store(output_ptr + row * output_row_stride + columns, result.to(output_ptr.dtype.element_ty), mask=mask)
