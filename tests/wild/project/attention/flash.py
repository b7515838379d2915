"""Configurations made for the machine that is found, and two stages of one inner loop."""

import math

import torch
import triton
import triton.language as tl
from common.compat import is_hip

if is_hip():
    CONFIGS = [triton.Config({"BLOCK_M": m, "BLOCK_N": 32}, num_warps=w, num_stages=1) for m in (64, 128) for w in (4,)]
else:
    CONFIGS = [triton.Config({"BLOCK_M": 64, "BLOCK_N": n}, num_warps=4, num_stages=2) for n in [32, 64]]


@triton.jit
def inner(
    acc,
    l_i,
    m_i,
    q,
    k_ptrs,
    v_ptrs,
    stride,
    start_m,
    low,
    high,
    offs_m,
    n_ctx,
    scale,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    for start in range(low, high, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptrs + start * stride, mask=(offs_n < n_ctx)[None, :], other=0.0)
        qk = tl.dot(q, k) * scale
        keep = (offs_n < n_ctx)[None, :]
        if MASKED:
            keep = keep & (offs_m[:, None] >= offs_n[None, :])
        qk = tl.where(keep, qk, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_ptrs + start * stride, mask=(offs_n < n_ctx)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_new
    return acc, l_i, m_i


@triton.autotune(configs=CONFIGS, key=["n_ctx"])
@triton.jit
def flash_kernel(
    o_ptr,
    lse_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    stride_head,
    stride,
    n_ctx,
    scale,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    start_m, head = tl.program_id(0), tl.program_id(1)
    base = head.to(tl.int64) * stride_head
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    q = tl.load(q_ptr + base + offs_m[:, None] * stride + offs_d[None, :], mask=(offs_m < n_ctx)[:, None], other=0.0)
    k_ptrs = k_ptr + base + offs_n[None, :] * stride + offs_d[:, None]
    v_ptrs = v_ptr + base + offs_n[:, None] * stride + offs_d[None, :]
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    scale *= 1.44269504
    high = (start_m + 1) * BLOCK_M if CAUSAL else n_ctx
    acc, l_i, m_i = inner(
        acc, l_i, m_i, q, k_ptrs, v_ptrs, stride, start_m, 0, high, offs_m, n_ctx, scale, BLOCK_N, CAUSAL
    )
    o_ptrs = o_ptr + base + offs_m[:, None] * stride + offs_d[None, :]
    tl.store(o_ptrs, (acc / l_i[:, None]).to(o_ptr.dtype.element_ty), mask=(offs_m < n_ctx)[:, None])
    tl.store(lse_ptr + head * n_ctx + offs_m, m_i + tl.log2(l_i), mask=offs_m < n_ctx)


def attention(q, k, v, causal):
    scale = 1 / math.sqrt(q.shape[-1])
    o = torch.empty_like(q)
    grid = lambda META: (triton.cdiv(q.shape[2], META["BLOCK_M"]), q.shape[1])  # noqa: E731
    flash_kernel[grid](o, o, q, k, v, q.stride(1), q.stride(2), q.shape[2], scale, HEAD_DIM=64, CAUSAL=causal)
    return o
