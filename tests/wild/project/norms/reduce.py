"""Sums over a block of rows."""

import triton
import triton.language as tl


@triton.jit
def weighted_sum(x, w, mask, n):
    return tl.sum(tl.where(mask, x * w, 0.0), axis=0) / n


@triton.jit
def welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count
