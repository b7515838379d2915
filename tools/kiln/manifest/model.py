"""What kernels.yaml declares, as data: Manifest, Kernel, and the variants and images they expand to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kiln.errors import Position
from kiln.manifest.expression import Expression
from kiln.manifest.signature import Signature

Value = bool | int | float | str
"""A constant or an option as it reaches the compiler."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One declared function. Patterns are already checked, but not yet filled; see `expand.expand_variants`."""

    key: str
    """its key under `kernels:`, such as softmax"""
    position: Position
    """of the key"""
    positions: Mapping[str, Position]
    """of each of the kernel's own keys that kernels.yaml gives (`source`, `function`, `grid`, ...)"""
    source: Path
    """absolute path of the source file"""
    source_name: str
    """the same, as declared: relative to the manifest, with forward slashes"""
    function: str
    dtypes: tuple[str, ...]
    blocks: tuple[int, ...]
    """each is the constant BLOCK_SIZE of its variants"""
    name: str
    """pattern of a variant's name, such as softmax_{dtype}_{block}"""
    group: str
    """pattern of a group's name"""
    signature: str
    """pattern of the signature"""
    options: Mapping[str, Value | Expression]
    """compiler options (num_warps, num_stages, ...), defaults merged in; an expression is over block and constants"""
    inputs: Mapping[str, str]
    """launch inputs that are no kernel argument: name -> integer dtype"""
    grid: tuple[Expression, Expression, Expression]
    select: Expression | None
    tensors: Mapping[str, tuple[Expression, ...]]
    """shape of the tensor behind each pointer argument, in elements"""
    reference: str | None
    """`path/to/file.py:function`, relative to the manifest"""
    problems: tuple[Mapping[str, int], ...]
    tolerance: Mapping[str, float]
    """dtype -> largest allowed absolute error against the reference in float64"""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A kernel for one dtype and block, every pattern and option resolved: softmax_fp16_2048."""

    id: str
    kernel: Kernel
    dtype: str
    block: str
    """the block as it stands in names: 2048"""
    group: str
    signature: Signature
    constants: Mapping[str, Value]
    options: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Image:
    """A variant built for one target: softmax_fp16_2048@sm_90a."""

    variant: Variant
    target: str

    @cached_property
    def id(self) -> str:
        """`<variant>@<target>`"""
        return f"{self.variant.id}@{self.target}"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """kernels.yaml, checked."""

    path: Path
    """absolute path of kernels.yaml"""
    position: Position
    library: str
    """prefix of archive, headers, symbols and crate"""
    targets: tuple[str, ...]
    """in the order of declaration, which is the order of every output; `toolchain.targets` knows what they mean"""
    target_positions: Mapping[str, Position]
    host: str
    """x86_64-linux-gnu or aarch64-linux-gnu: what objcopy, ar and cc build for"""
    kernels: tuple[Kernel, ...]
    variants: tuple[Variant, ...]
    images: tuple[Image, ...]
    """each variant's targets in order, variants in order of declaration"""

    @property
    def root(self) -> Path:
        """The folder that paths in kernels.yaml are relative to."""
        return self.path.parent
