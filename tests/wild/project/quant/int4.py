"""What the machine can do decides how wide a step is; bits are unpacked by hand."""

import torch
import triton
import triton.language as tl

HOPPER = torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability()[0] >= 9
STEP = tl.constexpr(128 if HOPPER else 64)


@triton.jit
def unpacked(packed, shift):
    return ((packed >> shift) & 0xF).to(tl.float32) - 8.0


@triton.jit
def int4_dequant_kernel(y_ptr, q_ptr, scale_ptr, n_words, GROUP: tl.constexpr):
    tl.static_assert(GROUP % 8 == 0, "a word holds eight values")
    words = tl.program_id(0) * STEP + tl.arange(0, STEP)
    mask = words < n_words
    packed = tl.load(q_ptr + words, mask=mask, other=0)
    scale = tl.load(scale_ptr + words * 8 // GROUP, mask=mask, other=1.0)
    for nibble in tl.static_range(8):
        tl.store(y_ptr + words * 8 + nibble, unpacked(packed, nibble * 4) * scale, mask=mask)
