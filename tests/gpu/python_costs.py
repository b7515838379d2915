"""What softmax costs from Python, with Triton's JIT and with torch: a line of JSON a figure, in microseconds.

The kernel is the one of kernels/softmax.py, the shapes are those of cost.c, and so is the way to measure: medians of
rounds; on the host of batches of launches that fit the driver's queue, on the GPU between two events. Triton's cache is
empty at first.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUNDS = 100
BATCH = 200
"""launches a round, on the host"""
PER_EVENT = 20
"""launches between two events"""
SHAPES = ((8192, 1000), (8192, 2048), (4096, 4096), (1024, 16384))


def report(name: str, microseconds: float) -> None:
    """One figure."""
    print(json.dumps({"name": name, "microseconds": round(float(microseconds), 3)}), flush=True)


def load_kernel() -> Any:
    """softmax_kernel, as Triton's JIT has it."""
    path = Path(__file__).parents[2] / "kernels" / "softmax.py"
    spec = importlib.util.spec_from_file_location("softmax", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.softmax_kernel


def block_of(columns: int) -> tuple[int, int]:
    """BLOCK_SIZE and num_warps that kernels.yaml has for a number of columns."""
    block = max(1024, 1 << (columns - 1).bit_length())
    return block, 4 if block <= 1024 else 8 if block <= 2048 else 16


def on_the_host(torch: Any, launch: Callable[[], object]) -> float:
    """Microseconds of a launch for the caller."""
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            launch()
        times.append((time.perf_counter() - start) / BATCH)
    torch.cuda.synchronize()
    return statistics.median(times) * 1e6


def on_the_gpu(torch: Any, launch: Callable[[], object]) -> float:
    """Microseconds of a launch for the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(ROUNDS):
        start.record()
        for _ in range(PER_EVENT):
            launch()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / PER_EVENT)
    return float(statistics.median(times)) * 1e3


def first_call(torch: Any, launch: Callable[[], object]) -> float:
    """Microseconds of one launch, to its end."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    launch()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def measure(torch: Any, kernel: Any) -> None:
    """All figures; Triton's first launch has to be the first that the process makes of any kernel of Triton's."""

    def softmax(rows: int, columns: int) -> tuple[Callable[[], object], Callable[[], object]]:
        """Triton's and torch's launch, of a tensor of that shape."""
        given = torch.zeros(rows, columns, dtype=torch.float16, device="cuda")
        made = torch.empty_like(given)
        block, warps = block_of(columns)

        def by_triton() -> object:
            return kernel[(rows,)](made, given, columns, columns, columns, BLOCK_SIZE=block, num_warps=warps)

        return by_triton, lambda: torch.softmax(given, -1)

    small, of_torch = softmax(1, 64)
    report("torch.softmax: first launch", first_call(torch, of_torch))
    report("torch.softmax: launch on the host", on_the_host(torch, of_torch))
    for rows, columns in SHAPES:
        by_torch = softmax(rows, columns)[1]
        first_call(torch, by_torch)
        report(f"torch.softmax: fp16 of {rows} x {columns} on the GPU", on_the_gpu(torch, by_torch))
    report("Triton: first launch, compiled", first_call(torch, small))
    report("Triton: another variant's first launch, compiled", first_call(torch, softmax(1, 2048)[0]))
    report("Triton: launch on the host", on_the_host(torch, small))
    for rows, columns in SHAPES:
        by_triton = softmax(rows, columns)[0]
        first_call(torch, by_triton)
        report(f"Triton: softmax fp16 of {rows} x {columns} on the GPU", on_the_gpu(torch, by_triton))


def main() -> None:
    """Measure with what is installed."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        # Not by name: type checkers need not have it.
        measure(importlib.import_module("torch"), load_kernel())


if __name__ == "__main__":
    main()
