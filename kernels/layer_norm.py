"""Layer normalisation of rows of any width, a block of columns at a time; mean and 1 / deviation are kept as well."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(
    output_ptr,
    mean_ptr,
    rstd_ptr,
    input_ptr,
    weight_ptr,
    bias_ptr,
    input_row_stride,
    output_row_stride,
    n_cols,
    eps,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0)
    input_row = input_ptr + row.to(tl.int64) * input_row_stride
    output_row = output_ptr + row.to(tl.int64) * output_row_stride
    columns = tl.arange(0, BLOCK_SIZE)

    sums = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        mask = start + columns < n_cols
        sums += tl.load(input_row + start + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / n_cols

    # A second pass rather than the mean of squares less the square of the mean, which cancels where the mean is large.
    squares = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        mask = start + columns < n_cols
        values = tl.load(input_row + start + columns, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, values - mean, 0.0)
        squares += centred * centred
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    for start in tl.range(0, n_cols, BLOCK_SIZE):
        mask = start + columns < n_cols
        values = tl.load(input_row + start + columns, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + start + columns, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + start + columns, mask=mask, other=0.0).to(tl.float32)
        result = (values - mean) * rstd * weight + bias
        tl.store(output_row + start + columns, result.to(output_ptr.dtype.element_ty), mask=mask)
