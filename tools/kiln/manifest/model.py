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
class Block:
    """One entry of `blocks`: constants and options that belong together, as in a Triton Config."""

    tag: str
    """what stands for it in names: `2048`, `128x64`"""
    constants: Mapping[str, Value]
    """constexpr parameter -> value, in the order of the kernel's first block; BLOCK_SIZE for a block that is an int"""
    options: Mapping[str, Value | Expression]
    """over those of the kernel"""
    is_integer: bool
    """declared as an int: expressions know it as `block`"""
    position: Position
    positions: Mapping[str, Position]
    """of each of its own keys; empty for an int"""


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """One entry of `exclude`: variants that have one of the values under every key are not built."""

    values: Mapping[str, tuple[Value, ...]]
    """`dtype`, `block`, a constant of the blocks or an axis -> values"""
    position: Position
    positions: Mapping[str, tuple[Position, ...]]
    """of each value"""
    key_positions: Mapping[str, Position]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One declared function. Patterns are already checked, but not yet filled; see `expand.expand_variants`."""

    key: str
    """its key under `kernels:`, such as softmax"""
    position: Position
    """of the key"""
    positions: Mapping[str, Position]
    """of each of the kernel's own keys that kernels.yaml gives (`source`, `function`, `grid`, ...), and of each name
    under `constants`, `axes` and `inputs` (`axes.HEAD_DIM`)"""
    source: Path
    """absolute path of the source file"""
    source_name: str
    """the same, as declared: relative to the manifest, with forward slashes"""
    function: str
    dtypes: tuple[str, ...]
    axes: Mapping[str, Mapping[str, Value]]
    """axis -> what stands for a value in names -> the value, as in `{"CAUSAL": {"1": True, "0": False}}`"""
    blocks: tuple[Block, ...]
    """all set the same constants"""
    constants: Mapping[str, Value | Expression]
    """constexpr parameter -> value; an expression is over block, the blocks' constants, literal constants and axes"""
    exclude: tuple[Exclusion, ...]
    targets: tuple[str, ...]
    """what the kernel is built for, in the library's order"""
    name: str
    """pattern of a variant's name, such as softmax_{dtype}_{block}"""
    group: str
    """pattern of a group's name"""
    signature: str
    """pattern of the signature"""
    options: Mapping[str, Value | Expression]
    """compiler options (num_warps, num_stages, ...), defaults merged in; an expression is over block, constants and
    axes"""
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
    """A kernel for one dtype, block and value of each axis, every pattern and option resolved: softmax_fp16_2048."""

    id: str
    kernel: Kernel
    dtype: str
    block: str
    """the block as it stands in names: 2048, 128x64"""
    axes: Mapping[str, Value]
    """axis -> value, in order of declaration; an axis named like a parameter sets it"""
    group: str
    signature: Signature
    constants: Mapping[str, Value]
    """constexpr parameter -> value: of the block, then of `constants`"""
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
