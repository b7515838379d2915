"""Rows of a table picked by 64-bit indices, as an embedding does: one program a block of columns of one row."""

import triton
import triton.language as tl


@triton.jit
def gather_rows_kernel(
    output_ptr,
    table_ptr,
    index_ptr,
    n_rows_table,
    output_row_stride,
    table_row_stride,
    n_cols,
    BLOCK_SIZE: tl.constexpr,
):
    """A negative index counts from the table's end. One outside the table makes a row of zeros."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    index = tl.load(index_ptr + row)
    index = tl.where(index < 0, index + n_rows_table, index)
    # A row that is not there has no columns to read.
    n_readable = tl.where((index >= 0) & (index < n_rows_table), n_cols, 0)
    values = tl.load(table_ptr + index * table_row_stride + columns, mask=columns < n_readable, other=0.0)
    tl.store(output_ptr + row * output_row_stride + columns, values, mask=columns < n_cols)
