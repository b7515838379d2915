"""PTX ISA versions: the oldest CUDA, and so the oldest driver, that loads a PTX of each.

Sources: NVIDIA, "PTX ISA", table "PTX Release History" (ISA to CUDA release); "CUDA Toolkit Release Notes", table "CUDA
Toolkit and Corresponding Driver Versions" (CUDA release to driver on Linux, of which the branch stands here).
"""

from __future__ import annotations

_CUDA: dict[str, tuple[str, int]] = {
    "6.3": ("10.0", 410),
    "6.4": ("10.1", 418),
    "6.5": ("10.2", 440),
    "7.0": ("11.0", 450),
    "7.1": ("11.1", 455),
    "7.2": ("11.2", 460),
    "7.3": ("11.3", 465),
    "7.4": ("11.4", 470),
    "7.5": ("11.5", 495),
    "7.6": ("11.6", 510),
    "7.7": ("11.7", 515),
    "7.8": ("11.8", 520),
    "8.0": ("12.0", 525),
    "8.1": ("12.1", 530),
    "8.2": ("12.2", 535),
    "8.3": ("12.3", 545),
    "8.4": ("12.4", 550),
    "8.5": ("12.5", 555),
    "8.6": ("12.7", 565),
    "8.7": ("12.8", 570),
    "8.8": ("12.9", 575),
    "9.0": ("13.0", 580),
    "9.1": ("13.1", 590),
}
"""ISA -> CUDA release that brought it, and branch of the first driver of that release"""


def oldest_driver(isa: str) -> str | None:
    """`CUDA 12.0 (driver 525)` for ISA "8.0"; None for a version that is not in the table.

    From ISA 9.0 on, which came with CUDA 13.0, the minor versions of both have gone up together; what a newer one asks
    of a driver is told without its branch.
    """
    if isa in _CUDA:
        release, branch = _CUDA[isa]
        return f"CUDA {release} (driver {branch})"
    major, _, minor = isa.partition(".")
    return f"CUDA 13.{minor}" if major == "9" and minor.isdecimal() else None
