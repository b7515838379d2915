"""What nvcc is asked for: one kernel of a CUDA C++ source, instantiated for one variant and one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kiln.closure.cuda_source import CudaSource
from kiln.compilers.request import with_ptx_version
from kiln.digests import digest_json
from kiln.errors import ManifestError, Position
from kiln.manifest.constants import DTypeConstant, Value, written
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Interface
from kiln.manifest.model import Image, Variant
from kiln.manifest.pattern import fill
from kiln.toolchain.nvcc import Nvcc
from kiln.toolchain.targets import Target

ENVIRONMENT = {"SOURCE_DATE_EPOCH": "0"}
"""gcc's __DATE__ and __TIME__: with the clock's own an image would be another one each time"""

CPP = {
    "i1": "bool",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "fp32": "float",
    "fp64": "double",
    "fp8e4nv": "__nv_fp8_e4m3",
    "fp8e5": "__nv_fp8_e5m2",
}
"""The dtypes in CUDA C++. Source: NVIDIA, "CUDA Math API", data types of cuda_fp16.h, cuda_bf16.h and cuda_fp8.h."""


@dataclass(frozen=True, kw_only=True)
class CudaRequest:
    """Everything that one image is compiled from, as data for a child process. `components` has what can change it."""

    image_id: str
    target: Target
    source: CudaSource
    interface: Interface
    function: str
    """with its template arguments: reduce<float, 256>"""
    defines: Mapping[str, str]
    """macro -> what it stands for; an empty text for one that only is defined"""
    flags: tuple[str, ...]
    threads: int
    """of a block"""
    shared: int | None
    """bytes of dynamic shared memory; None where kernels.yaml does not say, which means 0"""
    options: Mapping[str, int]
    entry: str | None
    """the symbol that the kernel gets; None: the one that the compiler gives the instance"""
    debug: bool
    """whether the image gets a line table"""
    declared: Position
    """of `function` in kernels.yaml, for messages"""
    nvcc: Nvcc


def cuda_request(image: Image, target: Target, source: CudaSource, interface: Interface, nvcc: Nvcc) -> CudaRequest:
    """The request for one image. Raises ManifestError for what the target or the language has no form for."""
    variant, cuda = image.variant, image.variant.kernel.cuda
    assert cuda is not None and variant.threads is not None
    values = _integers(variant)
    return CudaRequest(
        image_id=image.id,
        target=target,
        source=source,
        interface=interface,
        function=fill(variant.kernel.function, _words(variant)),
        defines={name: _macro(name, value, values, variant) for name, value in cuda.defines.items()},
        flags=cuda.flags,
        threads=variant.threads,
        shared=variant.shared,
        options=with_ptx_version(variant.options, target),
        entry=variant.entry_name,
        debug=variant.kernel.debug,
        declared=variant.kernel.positions.get("function", variant.kernel.position),
        nvcc=nvcc,
    )


def components(request: CudaRequest) -> dict[str, str]:
    """The request's own named parts for the action digest, without what only nvcc can tell that it reads."""
    source = request.source
    return {
        f"source {source.name}": source.digests[source.name],
        "function": request.function,
        "arguments": digest_json([[item.name, item.type, item.promise] for item in request.interface.arguments]),
        **{f"define {name}": value for name, value in request.defines.items()},
        "flags": " ".join(request.flags),
        **{f"option {name}": repr(value) for name, value in request.options.items()},
        "threads": str(request.threads),
        "shared": "none" if request.shared is None else str(request.shared),
        "roots": digest_json(list(source.roots)),
        "entry": "the instance's own" if request.entry is None else request.entry,
        "line table": str(request.debug),
        "target": request.target.name,
    }


def _integers(variant: Variant) -> dict[str, int]:
    """What the expressions of a variant know."""
    values = {name: value for name, value in {**variant.axes, **variant.constants}.items() if isinstance(value, int)}
    return {**values, "block": int(variant.block)} if variant.block_entry.is_integer else values


def _words(variant: Variant) -> dict[str, str]:
    """What stands for the placeholders of `function`."""
    used = {**variant.axes, **variant.constants}
    words = {name: text for name, value in used.items() if (text := in_cpp(value)) is not None}
    words |= {"dtype": variant.dtype, "block": variant.block}
    if "{T}" in variant.kernel.function:
        words["T"] = _type(variant.dtype, variant.kernel.positions["function"], f"{variant.id} is built for")
    missing = [name for name in used if name not in words and f"{{{name}}}" in variant.kernel.function]
    if missing:
        raise ManifestError(
            f"`function` of {variant.kernel.key} has {{{missing[0]}}}, for which CUDA C++ has no word",
            where=variant.kernel.positions["function"],
            expected="a number, a truth value, a text or {dtype: ...} that CUDA C++ has",
            actual=written(used[missing[0]]),
            remedy="use another constant",
        )
    return words


def in_cpp(value: Value) -> str | None:
    """A value in C++, a text as it is; None for one that has no form there."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DTypeConstant):
        return CPP.get(value.name)
    return str(value) if isinstance(value, int | float | str) else None


def _type(dtype: str, where: Position, what: str) -> str:
    if dtype not in CPP:
        raise ManifestError(
            f"{what} {dtype}, for which CUDA C++ has no type",
            where=where,
            expected=f"one of {', '.join(CPP)}",
            actual=dtype,
            remedy="take the bits, as in u8, or another dtype",
        )
    return CPP[dtype]


def _macro(name: str, value: Value | Expression, values: Mapping[str, int], variant: Variant) -> str:
    where = variant.kernel.positions["defines"]
    if isinstance(value, Expression):
        return str(int(value.evaluate(values)))
    if isinstance(value, DTypeConstant):
        filled = fill(value.name, {"dtype": variant.dtype, **{key: str(axis) for key, axis in variant.axes.items()}})
        return _type(filled, where, f"the macro {name} is")
    text = "" if value is None else in_cpp(value) or ""
    if "\n" in text or text.endswith("\\"):
        raise ManifestError(
            f"the macro {name} of {variant.kernel.key} goes over several lines",
            where=where,
            expected="one line",
            actual=repr(text),
            remedy="write it in the source, and define there only what varies",
        )
    return text
