"""What attention must compute, in float64."""

import numpy as np
import numpy.typing as npt


def attention(
    q_ptr: npt.NDArray[np.float64],
    k_ptr: npt.NDArray[np.float64],
    v_ptr: npt.NDArray[np.float64],
    heads_per_kv: int,
    sm_scale: float,
    CAUSAL: bool,
) -> npt.NDArray[np.float64]:
    """softmax(sm_scale * Q K^T) V, for Q of shape (n_batch, n_heads, n_queries, HEAD_DIM).

    heads_per_kv heads after each other share one head of K and of V.

    With CAUSAL, the last query sees all keys, and each one before it one key less.
    """
    keys, values = np.repeat(k_ptr, heads_per_kv, axis=1), np.repeat(v_ptr, heads_per_kv, axis=1)
    scores = sm_scale * (q_ptr @ keys.swapaxes(-1, -2))
    if CAUSAL:
        n_queries, n_keys = scores.shape[-2:]
        visible = np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)
        scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: npt.NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True) @ values
    return result
