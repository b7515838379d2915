"""Expected: what was declared of one image, as the checks hold it against the image's facts."""

from __future__ import annotations

from dataclasses import dataclass

from kiln.toolchain.targets import Target


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What was declared of one image."""

    image_id: str
    target: Target
    entry: str | None
    """the kernel's symbol; None where the compiler alone knows how it spells it"""
    parameters: tuple[int, ...]
    """sizes in bytes of the user's parameters, in order; folded arguments are none"""
    warps: int
    """as asked: num_warps"""
    threads: int | None = None
    """of a block, where they are declared and need not fill their warps; None: as many as the warps have"""
