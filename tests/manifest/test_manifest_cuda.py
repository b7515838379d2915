"""The keys of kernels in CUDA C++: what they read to, and that neither language takes the other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest.constants import DTypeConstant
from kiln.manifest.cuda import FLAGS, OPTIONS, TRITON_OPTIONS
from kiln.manifest.expression import Expression
from kiln.manifest.loader import load
from kiln.manifest.model import Kernel
from kiln.manifest.schema import OPTIONS as EVERY_OPTION

CUDA = {
    "source": "k.cu",
    "function": "reduce<{T}, {block}>",
    "dtypes": "[fp32]",
    "blocks": "[256]",
    "name": "k_{dtype}_{block}",
    "signature": '"*{dtype}, i32"',
    "grid": "[1]",
    "threads": "block",
}
TRITON = {**CUDA, "source": "k.py", "function": "f"}
del TRITON["threads"]


def load_kernel(folder: Path, keys: dict[str, str]) -> Kernel:
    for name in ("k.py", "k.cu"):
        (folder / name).touch()
    text = "version: 1\nlibrary: l\ntargets: [sm_80]\ndefaults: {num_warps: 8}\nkernels:\n  k:\n"
    text += "".join(f"    {name}: {value}\n" for name, value in keys.items())
    (folder / "kernels.yaml").write_text(text)
    (kernel,) = load(folder / "kernels.yaml").kernels
    return kernel


def refusal(folder: Path, keys: dict[str, str]) -> str:
    with pytest.raises(ManifestError) as caught:
        load_kernel(folder, keys)
    message = str(caught.value).removeprefix(f"{folder}/")
    print(message)
    return message


def test_everything_of_cuda(tmp_path: Path) -> None:
    kernel = load_kernel(
        tmp_path,
        {
            **CUDA,
            "shared": "BLOCK_SIZE * 4 + 16",
            "defines": "{UNROLL: 4, T: {dtype: '{dtype}'}, EMPTY: null, HALF: {expression: block // 2}, NAME: a b}",
            "flags": "[--use_fast_math, --std=c++17]",
            "options": "{maxnreg: 64, ptx_version: 83, launch_pdl: true}",
        },
    )
    assert kernel.cuda is not None
    assert isinstance(kernel.cuda.threads, Expression)
    assert kernel.cuda.threads.text == "block"
    assert kernel.cuda.shared is not None
    assert kernel.cuda.shared.evaluate({"BLOCK_SIZE": 256}) == 1040
    half = kernel.cuda.defines["HALF"]
    assert isinstance(half, Expression)
    assert {**kernel.cuda.defines, "HALF": half.text} == {
        "UNROLL": 4,
        "T": DTypeConstant(name="{dtype}"),
        "EMPTY": None,
        "HALF": "block // 2",
        "NAME": "a b",
    }
    assert kernel.cuda.flags == ("--use_fast_math", "--std=c++17")
    assert kernel.function == "reduce<{T}, {block}>"


@pytest.mark.parametrize(
    "function", ["reduce", "ns::reduce", "reduce<float>", "reduce<{T}, {block}, 4>", "r<a<b>, -1>"]
)
def test_functions(tmp_path: Path, function: str) -> None:
    assert load_kernel(tmp_path, {**CUDA, "function": f'"{function}"'}).function == function


def test_threads_may_be_a_number(tmp_path: Path) -> None:
    cuda = load_kernel(tmp_path, {**CUDA, "threads": "128"}).cuda
    assert cuda is not None
    assert (cuda.threads, cuda.shared, cuda.defines, cuda.flags) == (128, None, {}, ())


def test_triton_has_none_of_it(tmp_path: Path) -> None:
    assert load_kernel(tmp_path, TRITON).cuda is None


def test_every_option_belongs_to_both_or_to_triton() -> None:
    assert {*OPTIONS, *TRITON_OPTIONS} == EVERY_OPTION.keys()


@pytest.mark.parametrize("flag", FLAGS)
def test_flags(tmp_path: Path, flag: str) -> None:
    cuda = load_kernel(tmp_path, {**CUDA, "flags": f"[{flag}]"}).cuda
    assert cuda is not None
    assert cuda.flags == (flag,)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("-arch=sm_80", ["`targets` say what code is built for"]),
        ("-gencode=arch=compute_80,code=sm_80", ["`targets` say"]),
        ("--generate-code=arch=compute_80", ["`targets` say"]),
        ("-o", ["Kiln says that"]),
        ("-dc", ["a kernel is compiled whole"]),
        ("-c", ["Kiln says that"]),
        ("--keep", ["Kiln says that"]),
        ("-G", ["`debug: true` gives images a line table"]),
        ("-lineinfo", ["use `debug: true`"]),
        ("-DN=4", ["use `defines`"]),
        ("-I/usr/include", ["#include"]),
        ("--maxrregcount=64", ["the option maxnreg"]),
        ("-use_fast_math", ["did you mean '--use_fast_math'"]),
        ("--std=c++71", ["did you mean '--std=c++"]),
        ("--fmad=maybe", ["did you mean '--fmad="]),
        ("--use_fast_math; rm -rf x", ["did you mean '--use_fast_math'"]),
        ("$(id)", ["remove it"]),
        ("-Xcompiler", ["remove it"]),
    ],
)
def test_flags_that_are_not_passed_on(tmp_path: Path, flag: str, words: list[str]) -> None:
    message = refusal(tmp_path, {**CUDA, "flags": f'["{flag}"]'})
    assert message.startswith("kernels.yaml:15:13: wrong value for `kernels.k.flags[0]`")
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize(
    ("keys", "place", "words"),
    [
        (
            {**TRITON, "threads": "128"},
            "14:5",
            ["`kernels.k.threads` is for CUDA C++", "a source that ends with .cu", "set the option num_warps"],
        ),
        ({**TRITON, "shared": "4"}, "14:5", ["`kernels.k.shared` is for CUDA C++"]),
        ({**TRITON, "defines": "{A: 1}"}, "14:5", ["`kernels.k.defines` is for CUDA C++"]),
        ({**TRITON, "flags": "[--restrict]"}, "14:5", ["`kernels.k.flags` is for CUDA C++"]),
        ({**TRITON, "function": "reduce<{T}>"}, "8:15", ["cannot be a function's name in Python"]),
        ({**CUDA, "promises": "[{n: 16}]"}, "15:5", ["`kernels.k.promises` is for Triton"]),
        (
            {**{key: value for key, value in CUDA.items() if key != "blocks"}, "name": "k_{dtype}"},
            "8:15",
            ["`kernels.k.function` uses {block}, and the kernel has no `blocks`"],
        ),
        ({**CUDA, "blocks": "autotune"}, "10:5", ["`kernels.k.blocks: autotune` is for Triton"]),
        (
            {**CUDA, "options": "{num_stages: 2}"},
            "15:15",
            ["the option num_stages in `kernels.k.options` is for Triton"],
        ),
        ({**CUDA, "options": "{num_warps: 2}"}, "15:15", ["set `threads` instead"]),
        ({**CUDA, "blocks": "[{tag: a, num_warps: 2}]"}, "10:23", ["the option num_warps in `kernels.k.blocks`"]),
        ({**CUDA, "threads": "1025"}, "14:14", ["from 1 to 1024"]),
        ({**CUDA, "threads": "blok"}, "14:14", ["`kernels.k.threads` uses the unknown name 'blok'", "'block'"]),
        ({**CUDA, "shared": "N"}, "15:13", ["`kernels.k.shared` uses the unknown name 'N'"]),
        ({**CUDA, "defines": "{A: {expression: N}}"}, "15:31", ["`kernels.k.defines.A` uses the unknown name 'N'"]),
        ({**CUDA, "defines": "{1A: 1}"}, "15:15", ["'1A' cannot be a macro's name"]),
        ({**CUDA, "defines": "{class: 1}"}, "15:15", ["'class' cannot be a macro's name"]),
        ({**CUDA, "defines": "{A: [1]}"}, "15:14", ["the macro A", "as a text"]),
        ({**CUDA, "function": "reduce<{U}>"}, "8:15", ["unknown placeholder '{U}'"]),
        ({**CUDA, "function": "2reduce"}, "8:15", ["cannot be a function of CUDA C++"]),
        ({**CUDA, "function": '"reduce<4"'}, "8:15", ["cannot be a function of CUDA C++"]),
        ({**CUDA, "function": "reduce; f"}, "8:15", ["cannot be a function of CUDA C++"]),
        ({**CUDA, "function": "while"}, "8:15", ["cannot be a function of CUDA C++"]),
        ({name: value for name, value in CUDA.items() if name != "threads"}, "7:5", ["lacks the key `threads`"]),
    ],
)
def test_refused_with_position(tmp_path: Path, keys: dict[str, str], place: str, words: list[str]) -> None:
    message = refusal(tmp_path, keys)
    assert message.startswith(f"kernels.yaml:{place}: ")
    assert [word for word in words if word not in message] == []
