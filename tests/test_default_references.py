"""The references of the default library: each against a second formulation of the same mathematics, in plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gpu.gpu_plan import load_reference
from kiln.manifest.loader import load
from project import REPOSITORY

MANIFEST = load(REPOSITORY / "kernels.yaml")
Array = npt.NDArray[np.float64]


def reference(name: str) -> Callable[..., Any]:
    (path,) = {kernel.reference for kernel in MANIFEST.kernels if (kernel.reference or "").endswith(f":{name}")}
    assert path is not None
    return load_reference(REPOSITORY, path)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


def close(got: Array | float, wanted: object) -> None:
    np.testing.assert_allclose(got, np.array(wanted), rtol=1e-10, atol=1e-10)


def test_every_kernel_can_be_tested() -> None:
    for kernel in MANIFEST.kernels:
        assert kernel.reference and kernel.problems, kernel.key
        assert set(kernel.tolerance) == set(kernel.dtypes), kernel.key


def test_softmax(random: np.random.Generator) -> None:
    """As exponentials of differences: p_i = 1 / sum of exp(x_j - x_i)."""
    x = random.normal(size=(3, 7)) * 5
    close(reference("softmax")(x), [[1 / sum(math.exp(b - a) for b in row) for a in row] for row in x])


def test_rms_norm(random: np.random.Generator) -> None:
    """By the length of the row: |x| / sqrt(n) is the root mean square."""
    x, weight = random.normal(size=(3, 7)), random.normal(size=7)
    wanted = [
        [a / math.sqrt(math.hypot(*row) ** 2 / 7 + 0.1) * w for a, w in zip(row, weight, strict=True)] for row in x
    ]
    close(reference("rms_norm")(x, weight, 0.1), wanted)


def test_layer_norm(random: np.random.Generator) -> None:
    """The variance as half the mean squared difference of all pairs."""
    x, weight, bias = random.normal(size=(3, 7)) + 2, random.normal(size=7), random.normal(size=7)
    result, mean, rstd = reference("layer_norm")(x, weight, bias, 0.1)
    means = [math.fsum(row) / 7 for row in x]
    deviations = [math.sqrt(sum((a - b) ** 2 for a in row for b in row) / (2 * 49) + 0.1) for row in x]
    close(mean, means)
    close(rstd, [1 / deviation for deviation in deviations])
    close(
        result,
        [[(x[i, j] - means[i]) / deviations[i] * weight[j] + bias[j] for j in range(7)] for i in range(3)],
    )


@pytest.mark.parametrize("silu", [False, True])
def test_group_norm(random: np.random.Generator, silu: bool) -> None:
    """Layer normalisation of each group's values, taken out one by one, and silu by the hyperbolic tangent."""
    x, gamma, beta = random.normal(size=(2, 5, 6)), random.normal(size=6), random.normal(size=6)
    result = reference("group_norm")(x, gamma, beta, 0.1, CHANNELS=3, SILU=silu)
    for image in range(2):
        for channel in range(6):
            first = channel // 3 * 3
            values = [x[image, pixel, other] for pixel in range(5) for other in range(first, first + 3)]
            mean = math.fsum(values) / 15
            deviation = math.sqrt(math.fsum(value * value for value in values) / 15 - mean**2 + 0.1)
            for pixel in range(5):
                y = (x[image, pixel, channel] - mean) / deviation * gamma[channel] + beta[channel]
                close(result[image, pixel, channel], y * (1 + math.tanh(y / 2)) / 2 if silu else y)


def test_matmul(random: np.random.Generator) -> None:
    a, b = random.normal(size=(3, 5)), random.normal(size=(5, 4))
    wanted = [[0.5 * math.fsum(a[i, k] * b[k, j] for k in range(5)) for j in range(4)] for i in range(3)]
    close(reference("matmul")(a, b, 0.5), wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(random: np.random.Generator, causal: bool) -> None:
    """Query by query, over a list of the keys that it sees."""
    q, k, v = (random.normal(size=(2, heads, length, 8)) for heads, length in ((4, 3), (2, 5), (2, 5)))
    result = reference("attention")(q, k, v, heads_per_kv=2, sm_scale=0.3, CAUSAL=causal)
    assert result.shape == q.shape
    for batch, head, row in np.ndindex(2, 4, 3):
        seen = range(5 - 3 + row + 1) if causal else range(5)
        weights = [math.exp(0.3 * float(q[batch, head, row] @ k[batch, head // 2, key])) for key in seen]
        total = sum(weight * v[batch, head // 2, key] for weight, key in zip(weights, seen, strict=True))
        close(result[batch, head, row], total / math.fsum(weights))


def test_gather_rows() -> None:
    table = np.arange(6.0).reshape(3, 2) + 1
    index = np.array([2, -1, 0, 3, -3, -4])
    close(reference("gather_rows")(table, index), [[5, 6], [5, 6], [1, 2], [0, 0], [1, 2], [0, 0]])


def test_l2_normalize(random: np.random.Generator) -> None:
    x = random.normal(size=9)
    result = reference("l2_normalize")(x, 1e-5)
    close(math.hypot(*result), 1)
    close(np.outer(result, x), np.outer(x, result))
    close(reference("l2_normalize")(np.array([3e-9, 4e-9]), 1.0), [3e-9, 4e-9])


def test_vector_add(random: np.random.Generator) -> None:
    """Added in fp32 itself, with exponents that lie far apart too."""
    x, y = (random.normal(size=10_000).astype(np.float32) for _ in range(2))
    y *= np.float32(2) ** random.integers(-40, 40, size=y.size).astype(np.float32)
    result = reference("vector_add")(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_array_equal(result, x + y)


def test_warp_reduce(random: np.random.Generator) -> None:
    x = random.normal(size=(3, 100))
    close(reference("warp_reduce")(x), [math.fsum(row) for row in x])
