"""How two steps of a recurrence join."""

import triton


@triton.jit
def first_order(fl, xl, fr, xr):
    return fr * fl, fr * xl + xr
