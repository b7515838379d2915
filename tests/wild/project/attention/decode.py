"""Kernels that a function makes: one for each kind of cache."""

import torch
import triton
import triton.language as tl


def make_decode(page_size, softcap, soft_sign=None):
    pages = tl.constexpr(page_size)
    cap = tl.constexpr(softcap)

    @triton.jit
    def capped(x):
        if cap > 0:
            x = cap * (2.0 * tl.sigmoid(2.0 * x / cap) - 1.0)
        return x

    @triton.jit
    def kernel(o_ptr, q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, scale, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr):
        row = tl.program_id(0)
        dims = tl.arange(0, HEAD_DIM)
        length = tl.load(length_ptr + row)
        q = tl.load(q_ptr + row * HEAD_DIM + dims).to(tl.float32)
        m, total = -float("inf"), 0.0
        acc = tl.zeros([HEAD_DIM], dtype=tl.float32)
        for start in range(0, length, BLOCK_N):
            positions = start + tl.arange(0, BLOCK_N)
            page = tl.load(table_ptr + positions // pages, mask=positions < length, other=0)
            slots = (page * pages + positions % pages)[:, None] * HEAD_DIM + dims[None, :]
            k = tl.load(k_ptr + slots, mask=(positions < length)[:, None], other=0.0).to(tl.float32)
            scores = capped(tl.sum(q[None, :] * k, axis=1) * scale)
            scores = tl.where(positions < length, scores, -float("inf"))
            m_new = tl.maximum(m, tl.max(scores, axis=0))
            p = tl.exp(scores - m_new)
            alpha = tl.exp(m - m_new)
            v = tl.load(v_ptr + slots, mask=(positions < length)[:, None], other=0.0).to(tl.float32)
            acc = acc * alpha + tl.sum(p[:, None] * v, axis=0)
            total = total * alpha + tl.sum(p, axis=0)
            m = m_new
        tl.store(o_ptr + row * HEAD_DIM + dims, acc / total)

    def launch(q: torch.Tensor):
        return kernel[(q.shape[0],)]

    return kernel, launch
