"""What kernels.yaml declares, as data: Manifest, Kernel, and the variants and images they expand to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from kiln.errors import Position
from kiln.manifest.constants import Value as Value
from kiln.manifest.expression import Expression
from kiln.manifest.signature import Signature

FATBIN: Literal["fatbin"] = "fatbin"
"""how images are bundled; and in place of a target, all of NVIDIA's in one fat binary"""
Bundle = Literal["separate", "fatbin"]
"""how a variant's images for NVIDIA go into packages: each by itself, or all in one fat binary"""
SIGNATURE_TEXT = "signature: text"
"""in the positions of a kernel, that of the first character of its signature"""
EntryNames = Literal["function", "variant"]
"""what a kernel's entry, the symbol that profilers show, can be called after"""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One entry of `blocks`: constants and options that belong together, as in a Triton Config."""

    tag: str
    """what stands for it in names: `2048`, `128x64`"""
    constants: Mapping[str, Value]
    """constexpr parameter -> value, in the order of the kernel's first block; BLOCK_SIZE for a block that is an int.
    Here and under `axes` and `constants` of a kernel, names of dtypes may still be patterns"""
    options: Mapping[str, int | Expression]
    """over those of the kernel"""
    is_integer: bool
    """declared as an int: expressions know it as `block`"""
    position: Position
    positions: Mapping[str, Position]
    """of each of its own keys; empty for an int"""
    targets: tuple[str, ...] | None = None
    """those of the kernel's that it is built for, where its source says so; None: all"""


NO_BLOCK = Block(tag="", constants={}, options={}, is_integer=False, position=Position(file="", line=1), positions={})
"""the one block of a kernel that declares none; nothing in it can be wrong, so its place is never told"""


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row of a function table: a variant that a Python file declares whole."""

    name: str
    group: str
    source: Path
    """absolute path of the file that defines the function"""
    source_name: str
    """the same file as messages name it"""
    function: str
    signature: str
    """in Triton's syntax, without the constants"""
    constants: Mapping[str, Value]
    options: Mapping[str, int]
    position: Position
    """in the table's file"""


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
class PromiseSet:
    """One entry of `promises`: what a caller guarantees of some arguments, and what variants built on it are called."""

    tag: str
    """what their names end with: `stride16_n1`; empty for a set without promises"""
    promises: Mapping[str, int]
    """argument -> 16: its address or value is divisible by 16, or 1: its value is 1"""
    position: Position
    positions: Mapping[str, Position]
    """of each promise"""


NO_PROMISES = PromiseSet(tag="", promises={}, position=Position(file="", line=1), positions={})
"""the one set of a kernel that declares none; nothing in it can be wrong, so its place is never told"""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that an image may use of something: registers, spills, stack, shared memory or bytes of its file."""

    limit: int | Expression
    """in the unit of its key, see `budgets.KEYS`; of a variant an integer, of a kernel also an expression over block,
    constants and axes"""
    name: str
    """its place in kernels.yaml, with dots: budgets.spills, kernels.attention.budgets.spills.gfx942"""
    position: Position
    """of the value"""

    @property
    def most(self) -> int:
        """The limit, of a variant's budget."""
        assert isinstance(self.limit, int)
        return self.limit


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One declared function. Patterns are already checked, but not yet filled; see `expand.expand_variants`."""

    key: str
    """its key under `kernels:`, such as softmax"""
    position: Position
    """of the key"""
    positions: Mapping[str, Position]
    """of each of the kernel's own keys that kernels.yaml gives (`source`, `function`, `grid`, ...), and of each name
    under `constants`, `axes`, `inputs` and `options` (`axes.HEAD_DIM`); SIGNATURE_TEXT where it can be told"""
    source: Path
    """absolute path of the source file"""
    source_name: str
    """what the file is called on every machine: `kernels/softmax.py`, `../third_party/flash/ops/x.py` below a root,
    `site-packages/liger_kernel/ops/x.py` in an installed package"""
    function: str
    dtypes: tuple[str, ...]
    """in order; of a function table, those of the rows"""
    axes: Mapping[str, Mapping[str, Value]]
    """axis -> what stands for a value in names -> the value, as in `{"CAUSAL": {"1": True, "0": False}}`"""
    blocks: tuple[Block, ...]
    """all set the same constants; NO_BLOCK alone where none are declared"""
    rows: tuple[TableRow, ...] = ()
    """of a function table: one for each of `blocks`, in place of dtypes and patterns; none for other kernels"""
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
    options: Mapping[str, int | Expression]
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
    promises: tuple[PromiseSet, ...] = (NO_PROMISES,)
    """one variant each, in order of preference: the first that holds for the arguments of a launch is picked"""
    cuda: Cuda | None = None
    """what only a kernel in CUDA C++ declares; None for Triton"""
    budgets: Mapping[str, Mapping[str, Budget]] = field(default_factory=dict)
    """registers, spills, stack, shared or size -> target -> the most of it; those of the library merged in"""
    strides: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    """pointer argument -> elements from one index of each dimension of its tensor to the next; of a tensor that is not
    here the last dimension is innermost, and it has no gaps"""
    outputs: tuple[str, ...] | None = None
    """pointer arguments behind which the kernel writes; None: the manifest does not say"""
    any_values: tuple[str, ...] = ()
    """integers, and pointers to integers, whatever value of which the kernel stays in its tensors with"""
    entry_names: EntryNames = "function"
    """what the symbols of its images are called after"""
    debug: bool = False
    """whether its images have line tables"""
    bundle: Bundle = "separate"
    """the library's, unless the kernel says another"""

    @property
    def has_blocks(self) -> bool:
        """Whether its variants differ by blocks, so that names can hold {block}."""
        return self.blocks != (NO_BLOCK,)


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """The keys of a kernel in CUDA C++. Expressions are over block, constants and axes."""

    threads: int | Expression
    """of a block"""
    shared: Expression | None
    """bytes of dynamic shared memory of a block; None: none"""
    defines: Mapping[str, Value | Expression]
    """macro -> what it stands for"""
    flags: tuple[str, ...]
    """of the compiler, in order"""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A kernel for one dtype, block, value of each axis and set of promises, all resolved: softmax_fp16_2048."""

    id: str
    """`base`, and the tag of the set of promises behind it"""
    base: str
    """the name without promises: what variants that differ by promises alone share, and their argument struct too"""
    kernel: Kernel
    dtype: str
    block: str
    """the block as it stands in names: 2048, 128x64; empty for a kernel without blocks"""
    axes: Mapping[str, Value]
    """axis -> value, in order of declaration; an axis named like a parameter sets it"""
    group: str
    signature: Signature
    constants: Mapping[str, Value]
    """constexpr parameter -> value: of the block, then of `constants`"""
    options: Mapping[str, int]
    promises: PromiseSet = NO_PROMISES
    """over those of the signature"""
    targets: tuple[str, ...]
    """what it is built for: its kernel's, or fewer where its block says so"""
    threads: int | None = None
    """of a block, in CUDA C++; None for Triton, where num_warps says it"""
    shared: int | None = None
    """bytes of dynamic shared memory of a block; None where the kernel does not say"""
    budgets: Mapping[str, Mapping[str, Budget]] = field(default_factory=dict)
    """those of its kernel, computed"""

    @property
    def block_entry(self) -> Block:
        """The entry of the kernel's `blocks` that `block` is the tag of."""
        return next(block for block in self.kernel.blocks if block.tag == self.block)

    @property
    def entry_name(self) -> str | None:
        """The symbol that its images are given; None: the one that the compiler gives the function."""
        return self.id if self.kernel.entry_names == "variant" else None

    def option_position(self, option: str) -> Position:
        """Where one of its options is set: in its block, in its kernel, or among the defaults: then the kernel's."""
        kernel, block = self.kernel, self.block_entry
        if option in block.options:
            return block.positions[option]
        return kernel.positions.get(f"options.{option}", kernel.position)


@dataclass(frozen=True, kw_only=True)
class Image:
    """A variant built for one target: softmax_fp16_2048@sm_90a."""

    variant: Variant
    target: str

    @cached_property
    def id(self) -> str:
        """`<variant>@<target>`"""
        return f"{self.variant.id}@{self.target}"

    @property
    def budgets(self) -> dict[str, Budget]:
        """registers, spills, stack, shared or size -> the most of it that the image may use"""
        declared = self.variant.budgets.items()
        return {name: by_target[self.target] for name, by_target in declared if self.target in by_target}


@dataclass(frozen=True, kw_only=True)
class OnnxRuntime:
    """What of the library is made into a header and an archive for ONNX Runtime."""

    target: str
    """one of the library's: ONNX Runtime's format knows one; or FATBIN"""
    kernels: tuple[str, ...] | None
    """keys of kernels, each of which must fit the format; None: those that do"""
    position: Position

    @property
    def is_bundled(self) -> bool:
        """Whether it names fat binaries, which serve all of NVIDIA's targets, in place of one target's images."""
        return self.target == FATBIN


UNVERSIONED = "0.0.0"
"""the version of a library that is given none"""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """kernels.yaml, checked."""

    path: Path
    """absolute path of kernels.yaml"""
    files: tuple[Path, ...] = ()
    """absolute paths of all its files: itself, then those that it includes"""
    position: Position
    library: str
    """prefix of archive, headers, symbols and crate"""
    library_version: str = UNVERSIONED
    """of the packages, as semantic versioning has it"""
    crate: Mapping[str, str] = field(default_factory=dict)
    """license, description, repository or homepage -> what the crate's Cargo.toml says of it"""
    targets: tuple[str, ...]
    """in the order of declaration, which is the order of every output; `toolchain.targets` knows what they mean"""
    target_positions: Mapping[str, Position]
    native_position: Position | None = None
    """of the word native among the targets; None without it"""
    host: str
    """x86_64-linux-gnu or aarch64-linux-gnu: what objcopy, ar and cc build for"""
    roots: Mapping[str, str] = field(default_factory=dict)
    """name -> folder, relative to the manifest's own, of further ones that hold sources"""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    """variable -> what the code of kernels finds in it; None for one that is not set"""
    build: str = "build"
    """the build folder, relative to the manifest's own"""
    build_position: Position | None = None
    """None: the manifest leaves it out"""
    onnxruntime: OnnxRuntime | None = None
    """None: nothing is made for it"""
    release_sizes: Mapping[str, Budget] = field(default_factory=dict)
    """target -> the most bytes that all its images may have together in a release; positions are those of the keys"""
    bundle_position: Position | None = None
    """of the value that `bundle` has for the whole library; None: the manifest leaves it out"""
    kernels: tuple[Kernel, ...]
    variants: tuple[Variant, ...]
    images: tuple[Image, ...]
    """each variant's targets in order, variants in order of declaration"""

    @property
    def native(self) -> bool:
        """Whether targets are those of the machine that builds, so that another machine builds another library."""
        return self.native_position is not None

    @property
    def root(self) -> Path:
        """The folder that paths in kernels.yaml are relative to."""
        return self.path.parent
