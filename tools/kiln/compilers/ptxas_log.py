"""What ptxas says of the code that it made and no cubin tells: the bytes that a thread spills.

Asked with -v, ptxas prints for the kernel, and for each function that it calls and that is not inlined, a line such as
`208 bytes stack frame, 264 bytes spill stores, 284 bytes spill loads` (NVIDIA, "NVIDIA CUDA Compiler Driver NVCC",
chapter "Printing Code Generation Statistics").
"""

from __future__ import annotations

import re

_SPILLS = re.compile(r"^ *\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads$", re.MULTILINE)
_REPORT = re.compile(r"^(?:ptxas\S* +info .*| *\d+ bytes stack frame, .*)\n", re.MULTILINE)


def without_report(log: str) -> str:
    """The log without what ptxas says of every kernel: nothing where it says no more than that."""
    left = _REPORT.sub("", log)
    return left if left.strip() else ""


def spilled_bytes(log: str) -> int | None:
    """Bytes a thread that the code of one image spills, all functions together: the larger of stores and loads.

    Spilling is counted as code, each instruction once: one in a loop is run more often. None where the log says none.
    """
    found = _SPILLS.findall(log)
    if not found:
        return None
    return max(sum(int(stores) for stores, _ in found), sum(int(loads) for _, loads in found))
