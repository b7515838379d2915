"""Row-wise softmax: one program a row, a row in one block."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    output_ptr,
    input_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_SIZE)
    mask = columns < n_cols
    # Offsets are 64 bits wide: rows x stride passes 2^31 elements on today's GPUs.
    input_row = input_ptr + row.to(tl.int64) * input_row_stride
    output_row = output_ptr + row.to(tl.int64) * output_row_stride

    values = tl.load(input_row + columns, mask=mask, other=-float("inf")).to(tl.float32)
    # Subtracting the row's maximum keeps exp() in range and does not change the result.
    numerator = tl.exp(values - tl.max(values, axis=0))
    result = numerator / tl.sum(numerator, axis=0)
    tl.store(output_row + columns, result.to(output_ptr.dtype.element_ty), mask=mask)
