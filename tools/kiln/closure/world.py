"""World: what a kernel's code may ask of the machine that it runs on, answered from the target instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class World:
    """The machine that an image is built for, as its source may ask for it. The machine that builds has no part in it.

    It comes from the image's target, from the installed Triton and from `environment:` in kernels.yaml.
    """

    backend: Literal["cuda", "hip"]
    arch: int | str
    """as Triton has it: 90, or gfx942"""
    warp_size: int
    triton_version: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """the variables that code may read, with None for one that is not set; others are refused"""
    triton_folder: Path | None = None
    """the installed package's folder, for what asks whether Triton has a name; None where nobody knows"""

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor, as `torch.cuda.get_device_capability` gives them: (9, 0) for sm_90, (9, 4) for gfx942."""
        if isinstance(self.arch, int):
            return divmod(self.arch, 10)
        digits = self.arch.removeprefix("gfx")
        return int(digits[:-2]), int(digits[-2], 16)

    def answer(self, fact: str) -> str:
        """What was answered to one of `Closure.asked`, as text that tells answers apart."""
        kind, _, name = fact.partition(" ")
        if kind == _ENVIRONMENT:
            return repr(self.environment[name])
        if kind == PYTHON:
            return ".".join(map(str, sys.version_info[:2]))
        return repr(getattr(self, kind))


BACKEND = "backend"
ARCH = "arch"
WARP_SIZE = "warp_size"
TRITON_VERSION = "triton_version"
PYTHON = "python"
"""the words of `Closure.asked`; a variable of the environment is `environment NAME`"""
_ENVIRONMENT = "environment"


def environment_fact(name: str) -> str:
    """The word of `Closure.asked` for a variable of the environment."""
    return f"{_ENVIRONMENT} {name}"


def of_target(fact: str) -> bool:
    """Whether a fact that was asked for differs from target to target."""
    return fact in (BACKEND, ARCH, WARP_SIZE)
