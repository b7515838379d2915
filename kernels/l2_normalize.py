"""Division of a long vector by its length in one launch: all programs meet in the middle, at a barrier of the grid."""

import triton
import triton.language as tl


@triton.jit
def wait_for_all(arrived_ptr, n_programs):
    """Returns when all programs of the grid are here, and what they stored before is visible.

    All of them have to run at the same time, which a cooperative launch guarantees. `arrived_ptr` points to an i32 that
    is 0 at launch.
    """
    # All threads' stores come before the one thread that says so.
    tl.debug_barrier()
    tl.atomic_add(arrived_ptr, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(arrived_ptr, 0, sem="acquire", scope="gpu") < n_programs:
        pass
    tl.debug_barrier()


@triton.jit
def l2_normalize_kernel(
    output_ptr,
    input_ptr,
    partial_ptr,
    arrived_ptr,
    n_elements,
    eps,
    BLOCK_SIZE: tl.constexpr,
    MAX_PROGRAMS: tl.constexpr,
):
    """y = x / max(|x|, eps). `partial_ptr` has room for a float32 a program; there are at most MAX_PROGRAMS."""
    program, n_programs = tl.program_id(0), tl.num_programs(0)
    offsets = tl.arange(0, BLOCK_SIZE)
    first, step = program.to(tl.int64) * BLOCK_SIZE, n_programs.to(tl.int64) * BLOCK_SIZE

    squares = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for start in tl.range(first, n_elements, step):
        values = tl.load(input_ptr + start + offsets, mask=start + offsets < n_elements, other=0.0).to(tl.float32)
        squares += values * values
    tl.store(partial_ptr + program, tl.sum(squares, axis=0))

    wait_for_all(arrived_ptr, n_programs)
    others = tl.arange(0, MAX_PROGRAMS)
    # Past the L1 cache, which other multiprocessors' stores do not reach.
    partials = tl.load(partial_ptr + others, mask=others < n_programs, other=0.0, cache_modifier=".cg")
    scale = 1.0 / tl.maximum(tl.sqrt(tl.sum(partials, axis=0)), eps)

    for start in tl.range(first, n_elements, step):
        mask = start + offsets < n_elements
        values = tl.load(input_ptr + start + offsets, mask=mask, other=0.0).to(tl.float32)
        tl.store(output_ptr + start + offsets, (values * scale).to(output_ptr.dtype.element_ty), mask=mask)
