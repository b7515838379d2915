"""Attention forward, tiled over the keys with a running softmax; grouped heads, strides as arguments."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def tile_at(base, first, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Pointers to ROWS rows from `first` on. Offsets inside a tile fit 32 bits; in a cache of keys they need 64."""
    inside = tl.arange(0, ROWS)[:, None] * stride.to(tl.int32) + tl.arange(0, COLUMNS)[None, :]
    return base + first * stride + inside


@triton.jit
def attend(
    total,
    denominator,
    peak,
    query,
    k_head,
    v_head,
    stride_kn,
    stride_vn,
    scale,
    begin,
    end,
    n_keys,
    last_visible,
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Take the keys from `begin` to `end` in. Without MASKED, all of them exist, and every row sees all of them."""
    for start in tl.range(begin, end, BLOCK_N):
        k = tile_at(k_head, start, stride_kn, BLOCK_N, HEAD_DIM)
        v = tile_at(v_head, start, stride_vn, BLOCK_N, HEAD_DIM)
        if MASKED:
            keys = start + tl.arange(0, BLOCK_N)
            exists = keys < n_keys
            scores = tl.dot(query, tl.load(k, mask=exists[:, None], other=0.0).T) * scale
            visible = exists[None, :]
            if CAUSAL:
                visible &= keys[None, :] <= last_visible[:, None]
            scores = tl.where(visible, scores, -float("inf"))
            values = tl.load(v, mask=exists[:, None], other=0.0)
        else:
            scores = tl.dot(query, tl.load(k).T) * scale
            values = tl.load(v)
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        denominator = denominator * shrink + tl.sum(weights, axis=1)
        total = tl.dot(weights.to(values.dtype), values, total * shrink[:, None])
        peak = new_peak
    return total, denominator, peak


@triton.jit
def attention_kernel(
    output_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    n_queries,
    n_keys,
    heads_per_kv,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    stride_vb,
    stride_vh,
    stride_vn,
    stride_ob,
    stride_oh,
    stride_om,
    sm_scale,
    HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """softmax(sm_scale * Q K^T) V for BLOCK_M queries of one head; the head's own elements lie one after the other.

    With CAUSAL, the last query sees all keys, and each one before it one key less: n_keys must be at least n_queries.
    """
    first, head, batch = tl.program_id(0) * BLOCK_M, tl.program_id(1), tl.program_id(2)
    kv_head = head // heads_per_kv
    rows = first + tl.arange(0, BLOCK_M)
    q = tile_at(q_ptr + batch * stride_qb + head * stride_qh, first, stride_qm, BLOCK_M, HEAD_DIM)
    k_head = k_ptr + batch * stride_kb + kv_head * stride_kh
    v_head = v_ptr + batch * stride_vb + kv_head * stride_vh
    query = tl.load(q, mask=(rows < n_queries)[:, None], other=0.0)

    total = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    denominator = tl.zeros((BLOCK_M,), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    # Powers of 2 are what the hardware computes; the factor goes into the scale.
    scale = sm_scale * LOG2_E
    past = n_keys - n_queries
    if CAUSAL:
        whole = (past + first + 1) // BLOCK_N * BLOCK_N
        end = min(past + first + BLOCK_M, n_keys)
    else:
        whole = n_keys // BLOCK_N * BLOCK_N
        end = n_keys
    total, denominator, peak = attend(
        total, denominator, peak, query, k_head, v_head, stride_kn, stride_vn, scale,
        0, whole, n_keys, rows + past, HEAD_DIM, BLOCK_N, False, CAUSAL,
    )  # fmt: skip
    total, denominator, peak = attend(
        total, denominator, peak, query, k_head, v_head, stride_kn, stride_vn, scale,
        whole, end, n_keys, rows + past, HEAD_DIM, BLOCK_N, True, CAUSAL,
    )  # fmt: skip

    output = tile_at(output_ptr + batch * stride_ob + head * stride_oh, first, stride_om, BLOCK_M, HEAD_DIM)
    result = (total / denominator[:, None]).to(output_ptr.dtype.element_ty)
    tl.store(output, result, mask=(rows < n_queries)[:, None])
