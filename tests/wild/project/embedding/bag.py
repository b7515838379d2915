"""Constants that classes hold, in another file."""

import triton
import triton.language as tl
from embedding.settings import LIMITS, Config, Mode

BAG = tl.constexpr(Config.BAG)
SCALE = tl.constexpr(LIMITS.scale)
MEAN = tl.constexpr(int(Mode.MEAN))


@triton.jit
def bag_kernel(y_ptr, index_ptr, table_ptr, n_cols, MODE: tl.constexpr, BLOCK_SIZE: tl.constexpr = Config.WIDTH):
    bag = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for slot in tl.static_range(BAG):
        index = tl.load(index_ptr + bag * BAG + slot)
        total += tl.load(table_ptr + index * n_cols + cols, mask=cols < n_cols, other=0.0)
    if MODE == MEAN:
        total = total * (SCALE / BAG)
    tl.store(y_ptr + bag * n_cols + cols, total, mask=cols < n_cols)
