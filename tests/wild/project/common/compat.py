"""One place for what the project takes from Triton."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

__all__ = ["is_cuda", "is_hip", "libdevice", "tl", "triton"]


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


def is_cuda():
    return torch.cuda.is_available() and torch.version.cuda is not None
