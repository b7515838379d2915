"""What ONNX Runtime's format for Triton kernels can say of an image, and the names in it.

Source: ONNX Runtime, tools/ci_build/compile_triton.py, which writes header and archive, and
onnxruntime/core/providers/cuda/triton_kernel.cu, which reads them. A row names a symbol, an entry, a group and a
kernel, and has warps, dynamic shared memory and constants that are integers. It is launched by cuLaunchKernel, without
attributes, with one packed buffer, and without scratch memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from kiln.binaries.facts import Facts
from kiln.toolchain.targets import Kind

FOLDER = "onnxruntime"
HEADER = f"{FOLDER}/triton_kernel_infos.h"
ARCHIVE = f"{FOLDER}/triton_kernel_infos.a"
MEMBER = "triton_kernel_infos.o"
"""The archive's only member: the loader looks all symbols up by name, so that all of it is linked or nothing."""

MAX_SHARED = 64 << 10
"""bytes of shared memory above which the launcher answers "unsupported", so that a tuner passes the kernel over"""
OPT_IN_SHARED = 48 << 10
"""bytes above which the driver wants an attribute that the launcher does not set"""
Content = Kind | Literal["fatbin"]
"""what lies between two symbols"""
INT = (-(2**31), 2**31 - 1)
"""what a constant can be"""


def start_symbol(variant: str, kind: Content) -> str:
    """What the loader looks up: the address of an image's first byte, named as objcopy names that of a file."""
    return f"_binary_{variant}_{kind}_start"


def end_symbol(variant: str, kind: Content) -> str:
    """The byte after an image's last; the NUL that ends a PTX lies before it."""
    return f"_binary_{variant}_{kind}_end"


def obstacle(facts: Facts) -> str | None:
    """Why the launcher cannot launch an image, in a few words; None where it can."""
    if facts.cluster != (1, 1, 1):
        return f"blocks form clusters of {' x '.join(map(str, facts.cluster))}"
    if facts.cooperative:
        return "all blocks must run at the same time"
    if facts.global_scratch_bytes or facts.profile_scratch_bytes:
        needed = facts.global_scratch_bytes or facts.profile_scratch_bytes
        return f"a block needs {needed} bytes of scratch memory"
    if facts.threads != facts.warps * facts.warp_size:
        return f"a block has {facts.threads} threads, which are no whole warps"
    return None


def common_obstacle(images: Sequence[Facts]) -> str | None:
    """The same of a fat binary, or of one image by itself: what one row says is so of each.

    For a launch knows not which of them the driver takes.
    """
    for image in images:
        reason = obstacle(image)
        if reason is not None:
            return reason if len(images) == 1 else f"for {image.arch}, {reason}"
    for name, words in _SAID.items():
        values = {image.arch: getattr(image, name) for image in images}
        if any(getattr(image, name) != getattr(images[0], name) for image in images):
            return f"{words} {', '.join(f'{value} for {arch}' for arch, value in values.items())}"
    if any(image.parameters != images[0].parameters for image in images):
        return "its parameters lie at other offsets for each target"
    return None


_SAID = {
    "entry": "its entry is",
    "warps": "its warps are",
    "shared_dynamic": "its bytes of shared memory are",
    "parameter_bytes": "its bytes of parameters are",
}
"""fact -> how a difference in it begins"""


def warning(facts: Mapping[str, Sequence[Facts]], *, listed: bool) -> str | None:
    """What people should know of the images that could be in the header, given by variant: several in a fat binary.

    That is those which are left out, unless they are `listed` and so refused; and those that are in it and are not
    launched all the same.
    """
    left_out = "" if listed else _by_reason((variant, common_obstacle(each)) for variant, each in facts.items())
    fits = {variant: each for variant, each in facts.items() if common_obstacle(each) is None}
    shared = _by_reason((variant, _shared_remark(each)) for variant, each in fits.items())
    said = [f"ONNX Runtime's header is without {left_out}"] if left_out else []
    said += [f"ONNX Runtime does not launch {shared}"] if shared else []
    return "; ".join(said) or None


def _shared_remark(images: Sequence[Facts]) -> str | None:
    used = max(facts.shared_static + facts.shared_dynamic for facts in images)
    if images[0].shared_dynamic > MAX_SHARED:
        return f"the launcher refuses more than {MAX_SHARED} bytes of shared memory"
    if used > OPT_IN_SHARED:
        return f"the launcher sets no attribute for more than {OPT_IN_SHARED} bytes of shared memory"
    return None


_NAMED = 6
"""variants that are named for one reason"""


def _by_reason(reasons: Iterable[tuple[str, str | None]]) -> str:
    """`a, b and 3 more (why); c (why)`; empty for none."""
    found: dict[str, list[str]] = {}
    for variant, reason in reasons:
        if reason is not None:
            found.setdefault(reason, []).append(variant)
    return "; ".join(f"{_some(variants)} ({reason})" for reason, variants in found.items())


def _some(variants: list[str]) -> str:
    more = len(variants) - _NAMED
    return ", ".join(variants) if more <= 0 else f"{', '.join(variants[:_NAMED])} and {more} more"
