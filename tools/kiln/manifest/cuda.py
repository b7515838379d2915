"""What CUDA C++ has of its own in kernels.yaml: its keys, and what may stand in `function` and `options`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.compound_types import Key, ListOf, MapOf
from kiln.manifest.constant_types import ConstantOrComputed
from kiln.manifest.constants import FunctionConstant, written
from kiln.manifest.model import Cuda
from kiln.manifest.names import CPP_KEYWORDS
from kiln.manifest.pattern import check_no_block, check_pattern, fill
from kiln.manifest.value_types import Computed, Either, Integer, Text, Word
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Entry, List, Map

SUFFIX = ".cu"
"""of its files"""

OPTIONS = ("maxnreg", "ptx_version", "num_ctas", "launch_cooperative_grid", "launch_pdl")
"""the compiler options that mean something for it"""

TRITON_OPTIONS = (
    "num_warps",
    "num_stages",
    "enable_fp_fusion",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
)
"""the others"""

FLAGS = (
    "--use_fast_math",
    "--fmad=true",
    "--fmad=false",
    "--ftz=true",
    "--ftz=false",
    "--prec-div=true",
    "--prec-div=false",
    "--prec-sqrt=true",
    "--prec-sqrt=false",
    "--std=c++14",
    "--std=c++17",
    "--std=c++20",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    "--extra-device-vectorization",
    "--restrict",
)
"""Flags of nvcc that change what is computed or understood, and nothing else. Source: NVIDIA, "NVIDIA CUDA Compiler
Driver NVCC", chapter "NVCC Command Options"."""

_REFUSED = (
    (r"-{1,2}(?:gpu-)?(?:arch|code|gencode|generate-code).*", "remove it: `targets` say what code is built for"),
    (r"-D.*|--define-macro.*", "use `defines`, as in {NAME: 1}"),
    (r"-{1,2}maxrregcount.*", "use the option maxnreg"),
    (r"-{1,2}(?:generate-)?line-?info", "use `debug: true`, which keeps the paths of this machine out of images"),
    (r"-[gG]|--(?:device-)?debug", "remove it: `debug: true` gives images a line table, and leaves the code as it is"),
    (
        r"-{1,2}(?:dc|dw|rdc|dlink|device-c|device-w|device-link|relocatable-device-code).*",
        "remove it: a kernel is compiled whole, and code that is linked later has symbols made of paths",
    ),
    (
        r"-o.*|--output.*|-{1,2}(?:c|cubin|ptx|fatbin|lib|link|run|keep|dryrun).*",
        "remove it: Kiln says that",
    ),
    (r"-I.*|--include-path.*|-include.*", "write the path in the source's #include, relative to the source"),
)

_FUNCTION = re.compile(r"(?:[A-Za-z_]\w*::)*(?P<name>[A-Za-z_]\w*)(?:\s*<[\w\s:,<>*+-]*>)?", re.ASCII)
_PLACEHOLDERS = ("T", "dtype", "block")
"""of `function`, beside one for each axis and constant; {T} is the dtype in C++"""


def _suggest_flag(text: str, known: Sequence[str]) -> str | None:
    remedy = next((remedy for form, remedy in _REFUSED if re.fullmatch(form, text, re.DOTALL)), None)
    return did_you_mean(text, known) if f"-{text}" in known else remedy or did_you_mean(text, known) or "remove it"


def _check_macro(text: str, position: Position, what: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) or text in CPP_KEYWORDS or text.startswith("__"):
        raise ManifestError(
            f"{show(text)} cannot be a macro's name",
            where=position,
            expected="letters, digits and underscores, all ASCII; no keyword of C++, and no two underscores in front",
            actual=show(text),
            remedy="choose another name",
        )


KEYS: dict[str, Key] = {
    "threads": Key(
        type=Either(literal=Integer(minimum=1, maximum=1024), computed=Computed(result="int")),
        doc="threads of a block, in x; CUDA C++ only, and needed there",
        example="256",
    ),
    "shared": Key(
        type=Computed(result="int"),
        doc="bytes of dynamic shared memory of a block, over block, constants and axes; CUDA C++ only",
        example="BLOCK_SIZE * 4",
    ),
    "defines": Key(
        type=MapOf(
            key=Text(words="the name of a macro", check=_check_macro),
            value=ConstantOrComputed(
                expression=Key(
                    type=Computed(result=None), doc="over block, constants and axes", example="BLOCK_SIZE // 32"
                )
            ),
        ),
        doc="macros of the source; CUDA C++ only. null defines one without a value, {dtype: fp16} is the type in C++",
        example="{UNROLL: 4, ACCUMULATE: {dtype: fp32}}",
        default={},
    ),
    "flags": Key(
        type=ListOf(item=Word(choices=FLAGS, suggest=_suggest_flag)),
        doc="flags of nvcc; CUDA C++ only",
        example="[--use_fast_math]",
        default=(),
    ),
}
"""Keys of a kernel that a source in CUDA C++ has and one in Triton does not."""

_TRITON_KEYS = ("package", "promises", "function_table")


def read_cuda(key: str, values: Mapping[str, Any], entries: Mapping[str, Entry]) -> Cuda | None:
    """What a kernel declares for CUDA C++, or None for one in Triton; `entries` are the kernel's own.

    Raises ManifestError for a key, an option or a function's name of the other language.
    """
    if "source" not in entries or not values["source"].endswith(SUFFIX):
        for name in KEYS:
            if name in entries:
                raise _foreign(
                    f"`kernels.{key}.{name}` is for CUDA C++",
                    entries[name],
                    "a source that ends with .cu",
                    "set the option num_warps instead" if name == "threads" else "remove it",
                )
        return None
    for name in _TRITON_KEYS:
        if name in entries:
            raise _foreign(f"`kernels.{key}.{name}` is for Triton", entries[name], "a source that ends with .py")
    if values["blocks"] is None:
        raise _foreign(
            f"`kernels.{key}.blocks: autotune` is for Triton", entries["blocks"], "blocks that are written out"
        )
    for section in ("options", "blocks"):
        _check_options(f"kernels.{key}.{section}", entries.get(section))
    if "threads" not in entries:
        raise ManifestError(
            f"`kernels.{key}` lacks the key `threads`",
            where=entries["source"].key.position,
            expected=f"`threads`: {KEYS['threads'].doc}",
            actual="a source in CUDA C++ without it",
            remedy=f"add `threads:`, {KEYS['threads'].type.words}",
        )
    names = [*_PLACEHOLDERS, *values["axes"], *values["blocks"][0].constants, *values["constants"]]
    if "blocks" not in entries:
        check_no_block(values["function"], entries["function"].value.position, f"kernels.{key}.function")
    _check_function(values["function"], list(dict.fromkeys(names)), entries["function"].value.position)
    for name, value in values["defines"].items():
        if isinstance(value, tuple | FunctionConstant):
            raise ManifestError(
                f"the macro {name} of `kernels.{key}.defines` cannot be that",
                where=entries["defines"].value.position,
                expected="true, false, null, a number, text, {dtype: ...} or {expression: ...}",
                actual=written(value),
                remedy="write what the macro stands for as a text",
            )
    return Cuda(threads=values["threads"], shared=values["shared"], defines=values["defines"], flags=values["flags"])


def _foreign(what: str, entry: Entry, expected: str, remedy: str = "remove it") -> ManifestError:
    return ManifestError(what, where=entry.key.position, expected=expected, actual=show(entry.key.text), remedy=remedy)


def _check_options(what: str, entry: Entry | None) -> None:
    """Refuse Triton's compiler options in a map, or in one of the maps of a list."""
    nodes = () if entry is None else entry.value.items if isinstance(entry.value, List) else (entry.value,)
    for node in nodes:
        for own in node.entries if isinstance(node, Map) else ():
            if own.key.text in TRITON_OPTIONS:
                raise ManifestError(
                    f"the option {own.key.text} in `{what}` is for Triton",
                    where=own.key.position,
                    expected=f"options among {', '.join(OPTIONS)}",
                    actual=own.key.text,
                    remedy="set `threads` instead" if own.key.text == "num_warps" else "remove it",
                )


def _check_function(text: str, placeholders: Sequence[str], position: Position) -> None:
    """A name, in a namespace if need be, with template arguments in which placeholders stand."""
    check_pattern(text, placeholders, position)
    match = _FUNCTION.fullmatch(fill(text, dict.fromkeys(placeholders, "x")))
    if match is None or match["name"] in CPP_KEYWORDS or text.count("<") != text.count(">"):
        raise ManifestError(
            f"{show(text)} cannot be a function of CUDA C++",
            where=position,
            expected='the name of an extern "C" function, or a template with its arguments: reduce<{T}, {block}>',
            actual=show(text),
        )
