"""The keys of kernels.yaml: what each takes, whether it is needed, what it means. The reader and every document of the
format come from these tables."""

from __future__ import annotations

from typing import get_args

from kiln.errors import ManifestError, Position
from kiln.manifest import budgets, crate, cuda
from kiln.manifest.choices import BLOCK_CONSTANT, AxisValues, Blocks, Exclusions, check_variable
from kiln.manifest.compound_types import Key, ListOf, MapOf, Section
from kiln.manifest.constant_types import ConstantOrComputed
from kiln.manifest.dtypes import DTYPES, is_integer, suggest_dtype
from kiln.manifest.model import FATBIN, NO_BLOCK, NO_PROMISES, UNVERSIONED, Bundle, EntryNames
from kiln.manifest.paths import OUTER_RULE, PATH_RULE, check_outer_path
from kiln.manifest.promises import PromiseSets
from kiln.manifest.targets import TargetList
from kiln.manifest.text_checks import (
    check_build,
    check_caller_name,
    check_included,
    check_input,
    check_kernel_function,
    check_kernel_key,
    check_kernel_source,
    check_library_name,
    check_library_version,
    check_module,
    check_reference,
    check_root,
    check_source,
    check_variable_name,
)
from kiln.manifest.value_types import Boolean, Computed, Either, Integer, Number, Pattern, Text, TextOrNothing, Word
from kiln.manifest.wording import show

VERSION = 1
"""of the format"""

HOSTS = ("x86_64-linux-gnu", "aarch64-linux-gnu")

BUNDLES: tuple[Bundle, ...] = get_args(Bundle)
ENTRY_NAMES: tuple[EntryNames, ...] = get_args(EntryNames)

INTEGER_DTYPES = tuple(filter(is_integer, DTYPES))
"""what expressions can compute with"""


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


_PARAMETER = Text(words="a name", check=check_caller_name)
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
        type=_option_integer(70, 94),
        doc="PTX ISA of PTX targets, as major x 10 + minor: 80 is 8.0; 80 below compute_90 when left out, else what "
        "nvcc writes",
        example="80",
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

COMPUTED = Key(
    type=Computed(result=None),
    doc="over the block's constants, literal constants and axes",
    example="BLOCK_K // 32",
)
"""What a constant is computed with: apart from the literals, since any text is a text."""

KERNEL: dict[str, Key] = {
    "source": Key(
        type=Text(words=PATH_RULE, check=check_kernel_source),
        doc="the file that defines the kernel: Triton in Python, or CUDA C++ where its name ends with .cu",
        example="kernels/softmax.py",
        required=True,
        unless=("function_table", "package"),
    ),
    "root": Key(
        type=Text(words="the name of a root"),
        doc="which of the manifest's `roots` the source lies below; the manifest's folder, when left out",
        example="flash",
        unless=("package",),
    ),
    "package": Key(
        type=Text(words="the dotted name of a module", check=check_module),
        doc="in place of a source, a module in an installed package of the Python that runs Kiln: its file is read, "
        "and never imported",
        example="liger_kernel.ops.softmax",
        unless=("function_table",),
    ),
    "function": Key(
        type=Text(words="the name of a function", check=check_kernel_function),
        doc="the jitted function in it, or whose rows of a function table are meant. In a class it is `Ops.kernel`; "
        "in a function that makes it, `make_kernel.kernel`: the parameters of `make_kernel` get their values from "
        "`constants`, blocks and axes. In CUDA C++ the kernel with its namespace and template arguments: "
        "`ns::row_sum<{T}, {block}>`, where {T} is the dtype's type in C++, such as float and __half, and constants "
        "and axes have their names",
        example="softmax_kernel",
        required=True,
        unless=("function_table",),
        beside=True,
    ),
    "function_table": Key(
        type=Text(words=PATH_RULE, check=check_source),
        doc="a Python file whose function `get_function_table()` returns the variants, in ONNX Runtime's form: a list "
        "of maps with name, group, func (the jitted function), sig (the signature) and kwargs, which holds compiler "
        "options, and constants under `constants` or beside the options. It is read, not run. Its rows are the "
        "variants; where they are of several functions, `function` says whose are meant",
        example="kernels/softmax_onnx.py",
    ),
    "dtypes": Key(
        type=ListOf(item=Word(choices=tuple(DTYPES), suggest=suggest_dtype)),
        doc="one variant each: {dtype} in patterns",
        example="[fp32, fp16]",
        required=True,
        unless=("function_table",),
    ),
    "axes": Key(
        type=MapOf(key=Text(words="a name", check=_axis), value=AxisValues()),
        doc="one variant for each value of each axis, {NAME} in patterns. An axis named like a constexpr parameter "
        "sets it; another one is for expressions and the signature, and must be used there. In names and expressions "
        "true is 1 and false is 0; a map gives each value another word for names",
        example="{HEAD_DIM: [64, 128], CAUSAL: {causal: true, full: false}}",
        default={},
        unless=("function_table",),
    ),
    "blocks": Key(
        type=Blocks(options=OPTIONS),
        doc="one variant each, {block} in patterns; left out for a kernel that takes none, whose names have no {block} "
        f"then. An integer is the constant {BLOCK_CONSTANT}. A map is like a Triton Config: it sets constants "
        "(constexpr parameters, the same ones in every block) and compiler options, over those of `options`; its `tag` "
        "is what {block} stands for and, when left out, the values of the constants, in the order of the first block, "
        "with an x between them. The word autotune stands for the configurations that the function's own "
        "`@triton.autotune` lists, in its order and without repetitions: their tags are made of the constants' values "
        "and, where those do not tell them apart, of the options (128x64_w8s3: 8 warps, 3 stages); one that the source "
        "lists for some of the targets only is built for those",
        example="[{tag: 128x64, BLOCK_M: 128, BLOCK_N: 64, num_warps: 8}, {BLOCK_M: 64, BLOCK_N: 64}]",
        default=(NO_BLOCK,),
        unless=("function_table",),
    ),
    "constants": Key(
        type=MapOf(key=Text(words="a name", check=_constant), value=ConstantOrComputed(expression=COMPUTED)),
        doc="parameters with a value of their own that neither a block nor an axis sets. One that the function's own "
        "@triton.heuristics computes from constants, promises and null pointers may be left out. A text is a text, and "
        "null is Python's None: of a pointer that is left out, say. A list is a tuple. A map says what YAML has no "
        "word for: with the key `expression` a value that is computed for each variant, with `dtype` what a kernel "
        "knows as tl.float16 ({dtype} and {NAME} of an axis stand for the variant's own), with `function` a jitted "
        "function of the kernel's own file. In blocks, and in axes that are maps, the same values may stand, "
        "but for `expression`",
        example='{MODE: relu, GROUP_M: 8, BIAS: null, SPLIT: {expression: "BLOCK_K // 32"}, OUT: {dtype: "{dtype}"}}',
        default={},
    ),
    "exclude": Key(
        type=Exclusions(),
        doc="combinations that are not built: each entry gives values, one or a list, of dtype, block (a tag), axes "
        "and constants of the blocks, and drops the variants that have one of each",
        example="[{dtype: fp32, HEAD_DIM: 128}, {block: 128x64, CAUSAL: true}]",
        default=(),
        unless=("function_table",),
    ),
    "targets": Key(
        type=TargetList(),
        doc="those of the library's targets that the kernel is built for; all, when left out. native stands for those "
        "that it stands for in the library's",
        example="[sm_90a]",
    ),
    "name": Key(
        type=Pattern(placeholders=("dtype", "block")),
        doc="names of the variants",
        example="softmax_{dtype}_{block}",
        required=True,
        unless=("function_table",),
    ),
    "group": Key(
        type=Pattern(placeholders=("dtype", "block")),
        doc="names of the groups of variants that compute the same thing; when left out, the kernel's key, _{dtype}, "
        "and _{NAME} for each axis, with _group behind them where `name` says just that, as it may without blocks",
        example="softmax_{dtype}",
        unless=("function_table",),
    ),
    "signature": Key(
        type=Pattern(placeholders=("dtype",)),
        doc="types of the arguments in order, without constants: *fp16 for a pointer, :16 for what is divisible by 16, "
        ":1 for what is 1. A tuple is (*fp16, i32:16): callers pass its members, named after the parameter and their "
        "places (sizes_0, sizes_1). Arguments keep the names of the function's parameters; in structs, one that C, C++ "
        "or Rust keeps for itself has an underscore behind it: do_. In CUDA C++ i32 is int, i64 is long long, *fp16 is "
        "__half *; a pointer to a struct can be of any dtype",
        example='"*{dtype}:16, *{dtype}:16, i32, i32:1"',
        required=True,
        unless=("function_table",),
    ),
    "promises": Key(
        type=PromiseSets(),
        doc="one variant for each entry, in order of preference: what a caller guarantees of some arguments, beside "
        "what the signature says. 16: address or value is divisible by 16, 1: the value is 1. An entry's variants have "
        "its `tag` at the end of their names and, when it is left out, what it promises: stride16_n1. {} promises "
        "nothing, adds nothing to the name, and comes last. They share one argument struct, whose `specialize` tells "
        "the first that holds for its values",
        example="[{stride: 16}, {}]",
        default=(NO_PROMISES,),
    ),
    "options": Key(
        type=Section(keys=OPTIONS),
        doc="compiler options, over those of `defaults`",
        example='{num_warps: "4 if block <= 1024 else 8", num_stages: 3}',
        default={},
    ),
    "inputs": Key(
        type=MapOf(
            key=Text(words="a name", check=check_input),
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
    "strides": Key(
        type=MapOf(key=_PARAMETER, value=ListOf(item=_INT, maximum=8, unique=False)),
        doc="how many elements of a tensor lie from one index of each of its dimensions to the next; when left out, it "
        "has no gaps and its last dimension is innermost. A launch in Rust that takes slices checks that they are as "
        "long as shape and strides say",
        example="{x_ptr: [x_row_stride, 1]}",
        default={},
    ),
    "outputs": Key(
        type=ListOf(item=_PARAMETER),
        doc="the pointer arguments behind which the kernel writes, those too that it reads as well. A launch in Rust "
        "that takes slices wants a `&mut` for each, and takes a `&` for what is only read; when left out, it takes "
        "either for all, and is unsafe",
        example="[output_ptr]",
    ),
    "any_values": Key(
        type=ListOf(item=_PARAMETER),
        doc="integer arguments, launch inputs and pointers to integers of which any value is good: whatever it is, or "
        "lies behind the pointer, the kernel stays in its `tensors`, for it looks at indices before it uses them. A "
        "launch in Rust that takes slices is unsafe while a pointer to integers is not here, or an integer that no "
        "shape or stride uses",
        example="[index_ptr, n_programs]",
        default=(),
    ),
    "reference": Key(
        type=Text(words="path/to/file.py:function", check=check_reference),
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
        doc="largest error against the reference in float64, by dtype, as a share of the reference's largest magnitude",
        example="{fp32: 1e-5, fp16: 1e-3}",
        default={},
    ),
    "budgets": Key(
        type=Section(keys=budgets.KEYS),
        doc="the most that the kernel's images may use; each goes before that of the library's `budgets`, for the "
        "targets that it names",
        example="{registers: 128, spills: {sm_80: 0, gfx942: 64}}",
        default={},
    ),
    "entry_names": Key(
        type=Word(choices=ENTRY_NAMES),
        doc="as the library's `entry_names`, for this kernel; that of the library, when left out",
        example="variant",
    ),
    "debug": Key(
        type=Boolean(),
        doc="as the library's `debug`, for this kernel; that of the library, when left out",
        example="true",
    ),
    "bundle": Key(
        type=Word(choices=BUNDLES),
        doc="how the images of the kernel's variants go into packages, in place of the library's `bundle`",
        example=FATBIN,
    ),
    **cuda.KEYS,
}

ONNXRUNTIME: dict[str, Key] = {
    "target": Key(
        type=Text(words=f"the name of a target, native or {FATBIN}"),
        doc="the one that ONNX Runtime is to run on, of the library's: the format has no word for several. "
        f"{FATBIN} stands for all of NVIDIA's: each row names the fat binary of a variant, of kernels whose `bundle` "
        "says so; variants whose images are not launched alike are left out",
        example="sm_90a",
        required=True,
    ),
    "kernels": Key(
        type=ListOf(item=Text(words="the name of a kernel")),
        doc="the kernels that are meant: one that the format cannot say, such as one whose blocks form clusters or "
        "that needs scratch memory, is refused. When left out, all that are built for the target, but for those, which "
        "the build names",
        example="[softmax, layer_norm]",
    ),
}
"""What is made for ONNX Runtime."""

RELEASE: dict[str, Key] = {
    "size": Key(
        type=MapOf(key=Text(words="the name of a target"), value=Integer(minimum=0), minimum=1),
        doc="the most bytes that all images of a target may have together, for the targets that it names; a release "
        "that holds more is not made",
        example="{sm_90a: 1572864, gfx942: 917504}",
    ),
}
"""What a release is held to."""

TOP: dict[str, Key] = {
    "version": Key(
        type=Integer(minimum=VERSION, maximum=VERSION), doc="of the format", example=str(VERSION), required=True
    ),
    "library": Key(
        type=Text(words="a name", check=check_library_name),
        doc="the library's name: prefix of its archive, headers, symbols and crate",
        example="kernels",
        required=True,
    ),
    "library_version": Key(
        type=Text(words="a semantic version, such as 1.2.0", check=check_library_version),
        doc="the library's version, which its crate and its packages for CMake and pkg-config have",
        example="1.2.0",
        default=UNVERSIONED,
    ),
    "crate": Key(
        type=Section(keys=crate.KEYS),
        doc="what the Cargo.toml of the Rust crate says besides name and version",
        example="{license: Apache-2.0, repository: https://example.org/kernels.git}",
        default={},
    ),
    "targets": Key(
        type=TargetList(),
        doc="what every variant is built for; `kiln targets-docs` lists what there is. native, alone or in a list, "
        "stands for the GPUs of the machine that builds: for development, since another machine builds another library",
        example="[sm_80, sm_90a, compute_80, gfx942]",
        required=True,
    ),
    "host": Key(
        type=Word(choices=HOSTS),
        doc="the machine that links and loads the library. Where another one builds, objcopy, ar and gcc for it are "
        "those with its name in front, such as aarch64-linux-gnu-gcc, or what OBJCOPY, AR and CC name",
        example="aarch64-linux-gnu",
        default="x86_64-linux-gnu",
    ),
    "defaults": Key(
        type=Section(keys=OPTIONS),
        doc="compiler options of all kernels",
        example="{num_warps: 4, num_stages: 3}",
        default={},
    ),
    "budgets": Key(
        type=Section(keys=budgets.KEYS),
        doc="the most that the images of all kernels may use; one that uses more fails `validate`, and is not packaged",
        example="{spills: 0, size: 65536}",
        default={},
    ),
    "roots": Key(
        type=MapOf(key=Text(words="a name", check=check_root), value=Text(words=OUTER_RULE, check=check_outer_path)),
        doc="further folders that sources and imports are found in, each with a name: a kernel's `root`. Absolute "
        "imports are looked up in the importing file's own root, beside the file, in the manifest's folder, in the "
        "roots in their order, and in installed packages",
        example="{flash: ../third_party/flash}",
        default={},
    ),
    "environment": Key(
        type=MapOf(key=Text(words="the name of a variable", check=check_variable_name), value=TextOrNothing()),
        doc="what the code of kernels finds in the environment, null for a variable that is not set. The environment "
        "of the machine that builds is never read, and a kernel that asks for a variable which is not here is refused",
        example='{USE_EXP2: "1", DEBUG: null}',
        default={},
    ),
    "entry_names": Key(
        type=Word(choices=ENTRY_NAMES),
        doc="what an image calls its kernel, which is the name that profilers show: by the function, so that all "
        "variants of a Triton kernel are softmax_kernel, or by the variant, as in softmax_fp16_2048",
        example="variant",
        default="function",
    ),
    "debug": Key(
        type=Boolean(),
        doc="whether images have a line table, by which debuggers and profilers show the source, and the sources go "
        "with the package. The code is the same; an edit that moves lines of a kernel compiles it again",
        example="true",
        default=False,
    ),
    "build": Key(
        type=Text(words=OUTER_RULE, check=check_build),
        doc="the folder for all that is built; `doit --build-dir DIR` goes before it, and is relative to where doit is "
        "started. It holds nothing else",
        example="../out/kernels",
        default="build",
    ),
    "bundle": Key(
        type=Word(choices=BUNDLES),
        doc="how a variant's images for NVIDIA go into the archive of the whole library: `separate`, so that the "
        "library chooses one for a device; or `fatbin`, all in one fat binary, from which the driver chooses. That is "
        "made by the program fatbinary of a CUDA toolkit (pip install 'PATH/OF/KILN[cuda]'). Archives of one target, "
        "the crate and images for AMD are as ever",
        example=FATBIN,
        default="separate",
    ),
    "onnxruntime": Key(
        type=Section(keys=ONNXRUNTIME),
        doc="a header and an archive for ONNX Runtime's loader, in `onnxruntime/` of the build folder; none, when left "
        "out",
        example="{target: sm_90a, kernels: [softmax]}",
    ),
    "release": Key(
        type=Section(keys=RELEASE),
        doc="what `doit release` holds a release to; `budgets` are for each image",
        example="{size: {sm_90a: 1572864}}",
        default={},
    ),
    "include": Key(
        type=ListOf(item=Text(words=PATH_RULE, check=check_included)),
        doc="further files of the library, whose kernels come after this file's, in order. Each has `version`, and "
        "`kernels`, `defaults` (over those of the files that include it) and `include` of its own; paths in it are "
        "relative to its folder",
        example="[softmax/kernels.yaml, attention/kernels.yaml]",
        default=(),
    ),
    "kernels": Key(
        type=MapOf(key=Text(words="a name", check=check_kernel_key), value=Section(keys=KERNEL), minimum=1),
        doc="what is built: a kernel's name, and its declaration",
        example="{softmax: {source: kernels/softmax.py, function: softmax_kernel, dtypes: [fp32], blocks: [1024], "
        'name: "softmax_{dtype}_{block}", signature: "*{dtype}:16, i32", grid: [n_rows]}}',
        required=True,
        unless=("include",),
        beside=True,
    ),
}

INCLUDED = {name: TOP[name] for name in ("version", "defaults", "include", "kernels")}
"""the keys of a file that another one includes"""
