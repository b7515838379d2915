"""Everything that may stand in triton.jit's brackets, and a helper that is not inlined."""

import torch
import triton
import triton.language as tl


def shown(specialization):
    return "transpose_" + "_".join(str(torch.dtype))


def metadata(grid, kernel, args):
    return {"name": "transpose", "bytes": args["m"] * args["n"] * torch.float32.itemsize}


@triton.jit(noinline=True)
def place(row, column, stride):
    return row * stride + column


@triton.jit(repr=shown, launch_metadata=metadata, do_not_specialize=["m"], do_not_specialize_on_alignment=["n"])
def transpose_kernel(y_ptr, x_ptr, m, n, BLOCK_SIZE: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = (rows < m)[:, None] & (cols < n)[None, :]
    corner = place(tl.program_id(0), tl.program_id(1), BLOCK_SIZE)
    x = tl.load(x_ptr + rows[:, None] * n + cols[None, :], mask=mask & (corner >= 0))
    tl.store(y_ptr + cols[:, None] * m + rows[None, :], x.T, mask=mask.T)
