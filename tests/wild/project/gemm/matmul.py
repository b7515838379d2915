"""Tuning, heuristics and hints for the JIT around one kernel."""

import torch
import triton
import triton.language as tl


def configs():
    found = []
    for m, n in [(64, 64), (128, 64)]:
        for k in (32,):
            found.append(
                triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=3, num_warps=4)
            )
    return found


@triton.autotune(configs=configs(), key=["m", "n"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % (args["BLOCK_K"] * 2) == 0})
@triton.jit(do_not_specialize=["m"], debug=False)
def matmul_kernel(
    c_ptr,
    a_ptr,
    b_ptr,
    m,
    n,
    stride_am,
    stride_bk,
    stride_cm,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    pid = tl.program_id(0)
    pid_m, pid_n = tl.swizzle2d(
        pid // tl.cdiv(n, BLOCK_N), pid % tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M
    )
    rm = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    rn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    rk = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rm[:, None] * stride_am + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] * stride_bk + rn[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a, b = tl.load(a_ptrs), tl.load(b_ptrs)
        else:
            left = K - k * BLOCK_K
            a = tl.load(a_ptrs, mask=rk[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=rk[:, None] < left, other=0.0)
        acc += tl.dot(a, b)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + rm[:, None] * stride_cm + rn[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rm < m)[:, None] & (rn < n)[None, :])


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b)
