"""The keys of kernels.yaml: what each takes, whether it is needed, what it means. The reader and every document of the
format come from these tables."""

from __future__ import annotations

import keyword

from kiln.errors import ManifestError, Position
from kiln.manifest.choices import BLOCK_CONSTANT, AxisValues, Blocks, Exclusions, check_variable
from kiln.manifest.dtypes import DTYPES, suggest_dtype
from kiln.manifest.expression import RESERVED_NAMES
from kiln.manifest.names import check_library, check_name, check_parameter
from kiln.manifest.paths import PATH_RULE, check_path
from kiln.manifest.value_types import (
    Boolean,
    Computed,
    Either,
    Integer,
    Key,
    ListOf,
    LiteralOrComputed,
    MapOf,
    Number,
    Pattern,
    Section,
    Text,
    Word,
)
from kiln.manifest.wording import show

VERSION = 1
"""of the format"""

HOSTS = ("x86_64-linux-gnu", "aarch64-linux-gnu")

INTEGER_DTYPES = tuple(name for name in DTYPES if name[0] in "iu" and name != "i1")
"""what expressions can compute with"""


def _kernel_key(text: str, position: Position, what: str) -> None:
    check_name(text, position, "a kernel's name")


def _library(text: str, position: Position, what: str) -> None:
    check_library(text, position)


def _function(text: str, position: Position, what: str) -> None:
    if not text.isascii() or not text.isidentifier() or keyword.iskeyword(text):
        raise ManifestError(
            f"{show(text)} cannot be a function's name in Python",
            where=position,
            expected="the name of a function in `source`",
            actual=show(text),
        )


def _source(text: str, position: Position, what: str) -> None:
    check_path(text, position, what)
    if not text.endswith(".py"):
        raise ManifestError(
            f"`{what}` is no Python file",
            where=position,
            expected="a file whose name ends with .py, with the Triton kernel in it",
            actual=show(text),
        )


def _reference(text: str, position: Position, what: str) -> None:
    path, colon, function = text.rpartition(":")
    if not colon:
        raise ManifestError(
            f"`{what}` names no function",
            where=position,
            expected="path/to/file.py:function",
            actual=show(text),
            remedy="add a colon and the function's name",
        )
    _source(path, position, what)
    _function(function, position, what)


def _parameter(text: str, position: Position, what: str) -> None:
    check_parameter(text, position, "the name of an argument or an input")


def _input(text: str, position: Position, what: str) -> None:
    check_parameter(text, position, "a launch input's name")
    if text in RESERVED_NAMES or keyword.iskeyword(text) or text.lower() in ("true", "false"):
        raise ManifestError(
            f"{show(text)} cannot be a launch input's name: it has a meaning of its own in expressions",
            where=position,
            expected="a name that grid and select can use",
            actual=show(text),
            remedy="choose another name",
        )


def _axis(text: str, position: Position, what: str) -> None:
    _variable(text, position, "an axis")


def _constant(text: str, position: Position, what: str) -> None:
    _variable(text, position, "a constant")


def _variable(text: str, position: Position, what: str) -> None:
    check_variable(text, position, what)
    if text in OPTIONS:
        raise ManifestError(
            f"{show(text)} is a compiler option, and cannot be the name of {what}",
            where=position,
            expected="the name of a constexpr parameter",
            actual=show(text),
            remedy="set it under `options`; an expression there may use an axis of another name",
        )


_PARAMETER = Text(words="a name", check=_parameter)
_INT = Computed(result="int")


def _option_integer(minimum: int, maximum: int, *, power_of_two: bool = False) -> Either:
    return Either(
        literal=Integer(minimum=minimum, maximum=maximum, power_of_two=power_of_two),
        computed=Computed(result="int"),
    )


def _option_boolean() -> Either:
    return Either(literal=Boolean(), computed=Computed(result="bool"))


OPTIONS: dict[str, Key] = {
    "num_warps": Key(
        type=_option_integer(1, 64, power_of_two=True),
        doc="warps in a block (wavefronts on AMD)",
        example="4 if BLOCK_SIZE <= 1024 else 8",
        default=4,
    ),
    "num_stages": Key(type=_option_integer(0, 64), doc="stages of software pipelining of loops", example="3"),
    "num_ctas": Key(type=_option_integer(1, 16), doc="blocks in a cluster; NVIDIA, sm_90 and later", example="2"),
    "enable_fp_fusion": Key(
        type=_option_boolean(),
        doc="whether a multiply and an add may become one operation, rounded once",
        example="false",
        default=True,
    ),
    "maxnreg": Key(type=_option_integer(16, 255), doc="most registers a thread; NVIDIA", example="128"),
    "ptx_version": Key(
        type=_option_integer(70, 94), doc="PTX ISA of PTX targets, as major x 10 + minor: 80 is 8.0", example="80"
    ),
    "launch_cooperative_grid": Key(
        type=_option_boolean(), doc="all blocks of the grid run at the same time", example="true"
    ),
    "launch_pdl": Key(
        type=_option_boolean(),
        doc="launched with programmatic dependent launch; NVIDIA, sm_90 and later",
        example="true",
    ),
    "waves_per_eu": Key(
        type=_option_integer(0, 32), doc="wavefronts a SIMD unit to aim at, 0 for no aim; AMD", example="2"
    ),
    "matrix_instr_nonkdim": Key(
        type=_option_integer(0, 64),
        doc="rows and columns of a matrix instruction, 0 for the compiler's choice; AMD",
        example="16",
    ),
    "kpack": Key(type=_option_integer(1, 2), doc="packing of operands of matrix instructions; AMD", example="2"),
}
"""Compiler options. A variant always has those with a default; the others are the compiler's to choose."""

COMPUTED = Section(
    keys={
        "expression": Key(
            type=Computed(result=None),
            doc="over the block's constants, literal constants and axes",
            example="BLOCK_K // 32",
            required=True,
        )
    }
)
"""What a constant is computed with: apart from the literals, since any text is a text."""

KERNEL: dict[str, Key] = {
    "source": Key(
        type=Text(words=PATH_RULE, check=_source),
        doc="the Python file that defines the kernel",
        example="kernels/softmax.py",
        required=True,
    ),
    "function": Key(
        type=Text(words="the name of a function", check=_function),
        doc="the jitted function in it",
        example="softmax_kernel",
        required=True,
    ),
    "dtypes": Key(
        type=ListOf(item=Word(choices=tuple(DTYPES), suggest=suggest_dtype)),
        doc="one variant each: {dtype} in patterns",
        example="[fp32, fp16]",
        required=True,
    ),
    "axes": Key(
        type=MapOf(key=Text(words="a name", check=_axis), value=AxisValues()),
        doc="one variant for each value of each axis, {NAME} in patterns. An axis named like a constexpr parameter "
        "sets it; another one is for expressions and the signature, and must be used there. In names and expressions "
        "true is 1 and false is 0; a map gives each value another word for names",
        example="{HEAD_DIM: [64, 128], CAUSAL: {causal: true, full: false}}",
        default={},
    ),
    "blocks": Key(
        type=Blocks(options=OPTIONS),
        doc=f"one variant each, {{block}} in patterns. An integer is the constant {BLOCK_CONSTANT}. A map is like a "
        "Triton Config: it sets constants (constexpr parameters, the same ones in every block) and compiler options, "
        "over those of `options`; its `tag` is what {block} stands for and, when left out, the values of the "
        "constants, in the order of the first block, with an x between them",
        example="[{tag: 128x64, BLOCK_M: 128, BLOCK_N: 64, num_warps: 8}, {BLOCK_M: 64, BLOCK_N: 64}]",
        required=True,
    ),
    "constants": Key(
        type=MapOf(key=Text(words="a name", check=_constant), value=LiteralOrComputed(section=COMPUTED)),
        doc="constexpr parameters that neither a block nor an axis sets. A text is a text; what is computed for each "
        "variant is a map with the key `expression`",
        example='{ACTIVATION: relu, EVEN: true, GROUP_M: 8, SPLIT: {expression: "BLOCK_K // 32"}}',
        default={},
    ),
    "exclude": Key(
        type=Exclusions(),
        doc="combinations that are not built: each entry gives values, one or a list, of dtype, block (a tag), axes "
        "and constants of the blocks, and drops the variants that have one of each",
        example="[{dtype: fp32, HEAD_DIM: 128}, {block: 128x64, CAUSAL: true}]",
        default=(),
    ),
    "targets": Key(
        type=ListOf(item=Text(words="the name of a target, such as sm_90a")),
        doc="those of the library's targets that the kernel is built for; all, when left out",
        example="[sm_90a]",
    ),
    "name": Key(
        type=Pattern(placeholders=("dtype", "block")),
        doc="names of the variants",
        example="softmax_{dtype}_{block}",
        required=True,
    ),
    "group": Key(
        type=Pattern(placeholders=("dtype", "block")),
        doc="names of the groups of variants that compute the same thing; when left out, the kernel's key, _{dtype}, "
        "and _{NAME} for each axis",
        example="softmax_{dtype}",
    ),
    "signature": Key(
        type=Pattern(placeholders=("dtype",)),
        doc="types of the arguments in order, without constants: *fp16 for a pointer, :16 for what is divisible by 16, "
        ":1 for what is 1",
        example='"*{dtype}:16, *{dtype}:16, i32, i32:1"',
        required=True,
    ),
    "options": Key(
        type=Section(keys=OPTIONS),
        doc="compiler options, over those of `defaults`",
        example='{num_warps: "4 if block <= 1024 else 8", num_stages: 3}',
        default={},
    ),
    "inputs": Key(
        type=MapOf(
            key=Text(words="a name", check=_input),
            value=Word(choices=INTEGER_DTYPES, suggest=suggest_dtype),
        ),
        doc="launch inputs that are no argument of the kernel, for `grid` and `select`: name and type",
        example="{n_rows: i32}",
        default={},
    ),
    "grid": Key(
        type=ListOf(item=_INT, maximum=3, unique=False),
        doc="blocks of the launch in x, y and z, over arguments, inputs, constants and axes; y and z may be left out",
        example='["cdiv(n_elements, BLOCK_SIZE)", n_rows, 1]',
        required=True,
    ),
    "select": Key(
        type=Computed(result="bool"),
        doc="whether the variant can take the arguments; always, when left out",
        example="n_cols <= BLOCK_SIZE",
    ),
    "tensors": Key(
        type=MapOf(key=_PARAMETER, value=ListOf(item=_INT, maximum=8, unique=False)),
        doc="shape, in elements, of the tensor behind each pointer argument",
        example="{x_ptr: [n_rows, n_cols]}",
        default={},
    ),
    "reference": Key(
        type=Text(words="path/to/file.py:function", check=_reference),
        doc="the same computation in NumPy, to test against",
        example="kernels/softmax_reference.py:softmax",
    ),
    "problems": Key(
        type=ListOf(item=MapOf(key=_PARAMETER, value=Integer(), minimum=1), unique=False),
        doc="sizes to test and tune with: names of arguments and inputs, and their values",
        example="[{n_rows: 4, n_cols: 1000}]",
        default=(),
    ),
    "tolerance": Key(
        type=MapOf(key=Word(choices=tuple(DTYPES), suggest=suggest_dtype), value=Number()),
        doc="largest absolute error against the reference in float64, by dtype",
        example="{fp32: 1e-5, fp16: 1e-3}",
        default={},
    ),
}

TOP: dict[str, Key] = {
    "version": Key(
        type=Integer(minimum=VERSION, maximum=VERSION), doc="of the format", example=str(VERSION), required=True
    ),
    "library": Key(
        type=Text(words="a name", check=_library),
        doc="the library's name: prefix of its archive, headers, symbols and crate",
        example="kernels",
        required=True,
    ),
    "targets": Key(
        type=ListOf(item=Text(words="the name of a target, such as sm_90a")),
        doc="what every variant is built for",
        example="[sm_80, sm_90a, compute_80, gfx942]",
        required=True,
    ),
    "host": Key(
        type=Word(choices=HOSTS),
        doc="the machine that links and loads the library",
        example="aarch64-linux-gnu",
        default="x86_64-linux-gnu",
    ),
    "defaults": Key(
        type=Section(keys=OPTIONS),
        doc="compiler options of all kernels",
        example="{num_warps: 4, num_stages: 3}",
        default={},
    ),
    "kernels": Key(
        type=MapOf(key=Text(words="a name", check=_kernel_key), value=Section(keys=KERNEL), minimum=1),
        doc="what is built: a kernel's name, and its declaration",
        example="{softmax: {source: kernels/softmax.py, function: softmax_kernel, dtypes: [fp32], blocks: [1024], "
        'name: "softmax_{dtype}_{block}", signature: "*{dtype}:16, i32", grid: [n_rows]}}',
        required=True,
    ),
}
