"""The keys of kernels.yaml: what each takes, whether it is needed, what it means. The reader and every document of the
format come from these tables."""

from __future__ import annotations

import keyword

from kiln.errors import ManifestError, Position
from kiln.manifest.dtypes import DTYPES
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

BLOCK_CONSTANT = "BLOCK_SIZE"
"""the constexpr parameter that a block which is an integer sets"""

OPTION_NAMES = ("block", BLOCK_CONSTANT)
"""what the expressions of options can use"""


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


_PARAMETER = Text(words="a name", check=_parameter)
_INT = Computed(result="int")


def _option_integer(minimum: int, maximum: int, *, power_of_two: bool = False) -> Either:
    return Either(
        literal=Integer(minimum=minimum, maximum=maximum, power_of_two=power_of_two),
        computed=Computed(result="int", names=OPTION_NAMES),
    )


def _option_boolean() -> Either:
    return Either(literal=Boolean(), computed=Computed(result="bool", names=OPTION_NAMES))


OPTIONS: dict[str, Key] = {
    "num_warps": Key(
        type=_option_integer(1, 64, power_of_two=True), doc="warps in a block (wavefronts on AMD)", default=4
    ),
    "num_stages": Key(type=_option_integer(0, 64), doc="stages of software pipelining of loops"),
    "num_ctas": Key(type=_option_integer(1, 16), doc="blocks in a cluster; NVIDIA, sm_90 and later"),
    "enable_fp_fusion": Key(
        type=_option_boolean(), doc="whether a multiply and an add may become one operation, rounded once", default=True
    ),
    "maxnreg": Key(type=_option_integer(16, 255), doc="most registers a thread; NVIDIA"),
    "ptx_version": Key(type=_option_integer(60, 199), doc="PTX ISA of PTX targets, as major x 10 + minor: 80 is 8.0"),
    "launch_cooperative_grid": Key(type=_option_boolean(), doc="all blocks of the grid run at the same time"),
    "launch_pdl": Key(
        type=_option_boolean(), doc="launched with programmatic dependent launch; NVIDIA, sm_90 and later"
    ),
    "waves_per_eu": Key(type=_option_integer(0, 32), doc="wavefronts a SIMD unit to aim at, 0 for no aim; AMD"),
    "matrix_instr_nonkdim": Key(
        type=_option_integer(0, 64), doc="rows and columns of a matrix instruction, 0 for the compiler's choice; AMD"
    ),
    "kpack": Key(type=_option_integer(1, 2), doc="packing of operands of matrix instructions; AMD"),
}
"""Compiler options. A variant always has those with a default; the others are the compiler's to choose."""

KERNEL: dict[str, Key] = {
    "source": Key(
        type=Text(words=PATH_RULE, check=_source), doc="the Python file that defines the kernel", required=True
    ),
    "function": Key(
        type=Text(words="the name of a function", check=_function), doc="the jitted function in it", required=True
    ),
    "dtypes": Key(
        type=ListOf(item=Word(choices=tuple(DTYPES))), doc="one variant each: {dtype} in patterns", required=True
    ),
    "blocks": Key(
        type=ListOf(item=Integer(minimum=1, maximum=2**31 - 1)),
        doc=f"one variant each: {{block}} in patterns, and the constant {BLOCK_CONSTANT}",
        required=True,
    ),
    "name": Key(type=Pattern(placeholders=("dtype", "block")), doc="names of the variants", required=True),
    "group": Key(
        type=Pattern(placeholders=("dtype", "block")),
        doc="names of the groups of variants that compute the same thing; when left out, the kernel's key and _{dtype}",
    ),
    "signature": Key(
        type=Pattern(placeholders=("dtype",)),
        doc="types of the arguments in order, without constants: *fp16 for a pointer, :16 for what is divisible by 16, "
        ":1 for what is 1",
        required=True,
    ),
    "options": Key(type=Section(keys=OPTIONS), doc="compiler options, over those of `defaults`", default={}),
    "inputs": Key(
        type=MapOf(
            key=Text(words="a name", check=_input),
            value=Word(choices=INTEGER_DTYPES),
        ),
        doc="launch inputs that are no argument of the kernel, for `grid` and `select`: name and type",
        default={},
    ),
    "grid": Key(
        type=ListOf(item=_INT, maximum=3, unique=False),
        doc="blocks of the launch in x, y and z, over arguments, inputs and constants; 1 where left out",
        default=(),
    ),
    "select": Key(
        type=Computed(result="bool"), doc="whether the variant can take the arguments; always, when left out"
    ),
    "tensors": Key(
        type=MapOf(key=_PARAMETER, value=ListOf(item=_INT, maximum=8, unique=False)),
        doc="shape, in elements, of the tensor behind each pointer argument",
        default={},
    ),
    "reference": Key(
        type=Text(words="path/to/file.py:function", check=_reference),
        doc="the same computation in NumPy, to test against",
    ),
    "problems": Key(
        type=ListOf(item=MapOf(key=_PARAMETER, value=Integer(), minimum=1), unique=False),
        doc="sizes to test and tune with: names of arguments and inputs, and their values",
        default=(),
    ),
    "tolerance": Key(
        type=MapOf(key=Word(choices=tuple(DTYPES)), value=Number()),
        doc="largest absolute error against the reference in float64, by dtype",
        default={},
    ),
}

TOP: dict[str, Key] = {
    "version": Key(type=Integer(minimum=VERSION, maximum=VERSION), doc="of the format", required=True),
    "library": Key(
        type=Text(words="a name", check=_library),
        doc="the library's name: prefix of its archive, headers, symbols and crate",
        required=True,
    ),
    "targets": Key(
        type=ListOf(item=Text(words="the name of a target, such as sm_90a")),
        doc="what every variant is built for",
        required=True,
    ),
    "host": Key(
        type=Word(choices=HOSTS), doc="the machine that links and loads the library", default="x86_64-linux-gnu"
    ),
    "defaults": Key(type=Section(keys=OPTIONS), doc="compiler options of all kernels", default={}),
    "kernels": Key(
        type=MapOf(key=Text(words="a name", check=_kernel_key), value=Section(keys=KERNEL), minimum=1),
        doc="what is built: a kernel's name, and its declaration",
        required=True,
    ),
}
