"""What vector_add must compute, to the last bit."""

import numpy as np
import numpy.typing as npt


def vector_add(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """The sum of two vectors of one length, whose numbers are of fp32, rounded to it as one addition in fp32 is."""
    return (x + y).astype(np.float32)
