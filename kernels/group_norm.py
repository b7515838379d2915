"""Group normalisation of images whose channels lie innermost: one program a group of channels of an image."""

import triton
import triton.language as tl


@triton.jit
def group_norm_kernel(
    output_ptr,
    input_ptr,
    gamma_ptr,
    beta_ptr,
    n_pixels,
    n_channels,
    eps,
    CHANNELS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_HW: tl.constexpr,
    SILU: tl.constexpr,
):
    """CHANNELS are those of a group, BLOCK_C a power of two that is no less. With SILU, y becomes y * sigmoid(y)."""
    image, group = tl.program_id(0), tl.program_id(1)
    inside = tl.arange(0, BLOCK_C)
    channels = group * CHANNELS + inside
    channel_mask = inside < CHANNELS
    pixels = tl.arange(0, BLOCK_HW)
    # Offsets are 64 bits wide: a batch of large images passes 2^31 elements.
    pixel_stride = n_channels.to(tl.int64)
    base = image * (n_pixels * pixel_stride)
    tile = pixels[:, None] * n_channels + channels[None, :]
    n_values = n_pixels * CHANNELS

    sums = tl.zeros((BLOCK_HW, BLOCK_C), dtype=tl.float32)
    for start in tl.range(0, n_pixels, BLOCK_HW):
        mask = (start + pixels < n_pixels)[:, None] & channel_mask[None, :]
        offsets = base + start * pixel_stride + tile
        sums += tl.load(input_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(sums) / n_values

    squares = tl.zeros((BLOCK_HW, BLOCK_C), dtype=tl.float32)
    for start in tl.range(0, n_pixels, BLOCK_HW):
        mask = (start + pixels < n_pixels)[:, None] & channel_mask[None, :]
        offsets = base + start * pixel_stride + tile
        values = tl.load(input_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, values - mean, 0.0)
        squares += centred * centred
    rstd = tl.rsqrt(tl.sum(squares) / n_values + eps)

    gamma = tl.load(gamma_ptr + channels, mask=channel_mask, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + channels, mask=channel_mask, other=0.0).to(tl.float32)
    for start in tl.range(0, n_pixels, BLOCK_HW):
        mask = (start + pixels < n_pixels)[:, None] & channel_mask[None, :]
        offsets = base + start * pixel_stride + tile
        values = tl.load(input_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        result = (values - mean) * rstd * gamma[None, :] + beta[None, :]
        if SILU:
            result *= tl.sigmoid(result)
        tl.store(output_ptr + offsets, result.to(output_ptr.dtype.element_ty), mask=mask)
