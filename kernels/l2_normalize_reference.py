"""What l2_normalize must compute, in float64."""

import numpy as np
import numpy.typing as npt


def l2_normalize(input_ptr: npt.NDArray[np.float64], eps: float) -> npt.NDArray[np.float64]:
    """A vector divided by its length, or by eps where that is larger."""
    result: npt.NDArray[np.float64] = input_ptr / max(float(np.sqrt((input_ptr * input_ptr).sum())), eps)
    return result
