"""torch at the top, used by everything in the file but the kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl
from einops import rearrange

torch.backends.cuda.matmul.allow_tf32 = True
DEVICE = torch.device("cuda")


@triton.jit
def rms_norm_kernel(y_ptr, x_ptr, w_ptr, stride, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row * stride + cols, x * scale * w, mask=mask)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps=1e-6):
        rows = rearrange(x, "... d -> (...) d")
        y = torch.empty_like(rows)
        rms_norm_kernel[(rows.shape[0],)](y, rows, w, rows.stride(0), rows.shape[1], eps, BLOCK_SIZE=4096)
        return y.view_as(x)


class Layer(nn.Module):
    def __init__(self, size: int, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=dtype, device=DEVICE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return RMSNorm.apply(x, self.weight)
