"""What group_norm must compute, in float64."""

import numpy as np
import numpy.typing as npt


def group_norm(
    input_ptr: npt.NDArray[np.float64],
    gamma_ptr: npt.NDArray[np.float64],
    beta_ptr: npt.NDArray[np.float64],
    eps: float,
    CHANNELS: int,
    SILU: bool,
) -> npt.NDArray[np.float64]:
    """Images of shape (n_batch, n_pixels, n_channels), normalised over all pixels of each CHANNELS channels."""
    images, pixels, channels = input_ptr.shape
    grouped = input_ptr.reshape(images, pixels, channels // CHANNELS, CHANNELS)
    mean = grouped.mean(axis=(1, 3), keepdims=True)
    variance = grouped.var(axis=(1, 3), keepdims=True)
    normal = ((grouped - mean) / np.sqrt(variance + eps)).reshape(input_ptr.shape)
    result: npt.NDArray[np.float64] = normal * gamma_ptr + beta_ptr
    return result / (1 + np.exp(-result)) if SILU else result
