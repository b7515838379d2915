"""What rms_norm must compute, in float64."""

import numpy as np
import numpy.typing as npt


def rms_norm(
    input_ptr: npt.NDArray[np.float64], weight_ptr: npt.NDArray[np.float64], eps: float
) -> npt.NDArray[np.float64]:
    """Rows of an array of shape (n_rows, n_cols) by their root mean square, times a weight a column."""
    mean_square = (input_ptr * input_ptr).mean(axis=-1, keepdims=True)
    result: npt.NDArray[np.float64] = input_ptr / np.sqrt(mean_square + eps) * weight_ptr
    return result
