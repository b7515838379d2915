"""What layer_norm must compute, in float64."""

import numpy as np
import numpy.typing as npt


def layer_norm(
    input_ptr: npt.NDArray[np.float64],
    weight_ptr: npt.NDArray[np.float64],
    bias_ptr: npt.NDArray[np.float64],
    eps: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Normalised rows of an array of shape (n_rows, n_cols); each row's mean, and 1 / deviation, of shape (n_rows,)."""
    mean = input_ptr.mean(axis=-1)
    rstd = 1 / np.sqrt(input_ptr.var(axis=-1) + eps)
    return (input_ptr - mean[:, None]) * rstd[:, None] * weight_ptr + bias_ptr, mean, rstd
