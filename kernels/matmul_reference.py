"""What the matrix products must compute, in float64."""

import numpy as np
import numpy.typing as npt


def matmul(a_ptr: npt.NDArray[np.float64], b_ptr: npt.NDArray[np.float64], alpha: float) -> npt.NDArray[np.float64]:
    """alpha * A B, for A of shape (M, K) and B of shape (K, N)."""
    result: npt.NDArray[np.float64] = alpha * (a_ptr @ b_ptr)
    return result
