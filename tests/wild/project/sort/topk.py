"""Names for a type checker only, and code that stands under the version of Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    from elsewhere import Router
    from torch import Tensor

if tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 1):

    @triton.jit
    def descending(x):
        return tl.sort(x, descending=True)
else:

    @triton.jit
    def descending(x):
        return -tl.sort(-x)


@triton.jit
def topk_kernel(y_ptr, x_ptr, n_cols, K: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * K + cols, descending(x), mask=cols < K)


def route(router: Router, x: Tensor) -> Tensor:
    return router(x)
