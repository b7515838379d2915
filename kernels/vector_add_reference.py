"""What vector_add must compute."""

import numpy as np
import numpy.typing as npt


def vector_add(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The sum of two vectors of one length, in their own precision: one addition, rounded as the GPU rounds it."""
    return x + y
