"""What softmax must compute, in float64."""

import numpy as np
import numpy.typing as npt


def softmax(input_ptr: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Softmax along the last axis of an array of shape (n_rows, n_cols)."""
    shifted = input_ptr - input_ptr.max(axis=-1, keepdims=True)
    numerator = np.exp(shifted)
    result: npt.NDArray[np.float64] = numerator / numerator.sum(axis=-1, keepdims=True)
    return result
