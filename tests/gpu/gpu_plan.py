"""What is launched on the GPU machine, as plain data: each variant, on each of its kernel's problems that it serves.

Made from kernels.yaml, with these conventions. A reference's parameters are named like the kernel's arguments and
constants: pointers that it takes are inputs; the others, but for WORKSPACE, are outputs, and it returns them in order.
`tensors` has their shapes. A problem says the integers; strides follow from the shapes, and floating-point arguments
from SCALARS.
"""

from __future__ import annotations

import importlib.util
import inspect
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kiln.engine.state import State
from kiln.library import Library
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Kernel, Variant

FOREIGN = ("gfx942",)
"""targets that no NVIDIA driver is asked to load"""

STRIDES: dict[str, dict[str, tuple[str | None, ...]]] = {
    "softmax_kernel": {"input_ptr": ("input_row_stride", None), "output_ptr": ("output_row_stride", None)},
    "rms_norm_kernel": {"input_ptr": ("input_row_stride", None), "output_ptr": ("output_row_stride", None)},
    "layer_norm_kernel": {"input_ptr": ("input_row_stride", None), "output_ptr": ("output_row_stride", None)},
    "gather_rows_kernel": {"table_ptr": ("table_row_stride", None), "output_ptr": ("output_row_stride", None)},
    "matmul_kernel": {f"{x}_ptr": (f"stride_{x}{i}", f"stride_{x}{j}") for x, i, j in ("amk", "bkn", "cmn")},
    "matmul_persistent_kernel": {f"{x}_ptr": (f"stride_{x}{i}", None) for x, i in ("am", "bk", "cm")},
    "attention_kernel": {
        pointer: (f"stride_{x}b", f"stride_{x}h", f"stride_{x}{row}", None)
        for pointer, x, row in (("q_ptr", "q", "m"), ("k_ptr", "k", "n"), ("v_ptr", "v", "n"), ("output_ptr", "o", "m"))
    },
    "warp_reduce<{T}, {block}>": {"x": ("row_stride", None)},
}
"""function -> pointer -> the argument that is the stride of each dimension; None, and pointers left out: contiguous"""

WORKSPACE = ("partial_ptr", "arrived_ptr")
"""pointers to memory that a kernel works in: zero at launch, and nobody's business afterwards"""

SCALARS: dict[str, Callable[[Mapping[str, int]], float]] = {
    "eps": lambda values: 1e-5,
    "alpha": lambda values: values["K"] ** -0.5,
    "sm_scale": lambda values: values["HEAD_DIM"] ** -0.5,
}
"""floating-point arguments; products are scaled so that results are about 1"""

RANGES: dict[str, Callable[[Mapping[str, int]], tuple[int, int]]] = {
    "index_ptr": lambda values: (-values["n_rows_table"] - 2, values["n_rows_table"] + 2),
}
"""integer tensors: what their elements lie between"""


def load_reference(root: Path, reference: str) -> Callable[..., Any]:
    """The function that a kernel's `reference` names, `file.py:function`."""
    file, _, name = reference.partition(":")
    spec = importlib.util.spec_from_file_location(Path(file).stem, root / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function


def make_plan(root: Path) -> dict[str, Any]:
    """All launches of the library that `root`/kernels.yaml declares, and of each variant the NVIDIA targets."""
    library = Library.load(root / "kernels.yaml", root / "build", State(root / "build" / "unused.sqlite"))
    variants: dict[str, Any] = {}
    launches = []
    interfaces = {image.variant.id: library.interface(image) for image in library.images}
    for variant in library.manifest.variants:
        kernel, interface = variant.kernel, interfaces[variant.id]
        targets = [target for target in kernel.targets if target not in FOREIGN]
        variants[variant.id] = {"kernel": kernel.key, "dtype": variant.dtype, "targets": targets}
        for number, problem in enumerate(kernel.problems):
            values = {**_integers(interface.known), **problem}
            arguments = plan_arguments(variant, interface, values, number, root)
            values |= {each["name"]: each["value"] for each in arguments if type(each.get("value")) is int}
            if kernel.select is None or kernel.select.evaluate(values):
                launches.append(
                    {
                        "variant": variant.id,
                        "kernel": kernel.key,
                        "group": variant.group,
                        "dtype": variant.dtype,
                        "problem": dict(problem),
                        "grid": [expression.evaluate(values) for expression in kernel.grid],
                        "arguments": arguments,
                        "inputs": {name: _bytes(values[name], type).hex() for name, type in kernel.inputs.items()},
                        "constants": dict(interface.constants),
                        "reference": kernel.reference,
                        "tolerance": kernel.tolerance[variant.dtype],
                    }
                )
    return {"variants": variants, "launches": launches}


def plan_arguments(
    variant: Variant, interface: Interface, values: Mapping[str, int], number: int, root: Path
) -> list[dict[str, Any]]:
    """The arguments of one launch, in order: scalars with value and bytes, pointers with what lies behind them."""
    kernel = variant.kernel
    pointers = [argument for argument in interface.arguments if argument.type.startswith("*")]
    promises = {argument.name: argument.promise for argument in interface.arguments}
    known = dict(values)
    tensors = {}
    for pointer in pointers:
        shape = [expression.evaluate(known) for expression in kernel.tensors[pointer.name]]
        names = STRIDES.get(kernel.function, {}).get(pointer.name, (None,) * len(shape))
        strides = lay_out(shape, names, promises, number)
        known |= {name: stride for name, stride in zip(names, strides, strict=True) if name is not None}
        dtype = pointer.type.removeprefix("*")
        role = pointer_role(kernel, pointer.name, root)
        tensors[pointer.name] = {"role": role, "dtype": dtype, "shape": shape, "strides": strides}
        if pointer.name in RANGES:
            tensors[pointer.name]["range"] = RANGES[pointer.name](known)
    return [
        {"name": argument.name, **(tensors.get(argument.name) or plan_scalar(argument, known))}
        for argument in interface.arguments
    ]


def pointer_role(kernel: Kernel, pointer: str, root: Path) -> str:
    """input, output or workspace."""
    assert kernel.reference is not None, f"{kernel.key} has no reference"
    if pointer in inspect.signature(load_reference(root, kernel.reference)).parameters:
        return "input"
    return "workspace" if pointer in WORKSPACE else "output"


def lay_out(
    shape: Sequence[int], names: Sequence[str | None], promises: Mapping[str, int | None], number: int
) -> list[int]:
    """The strides of a tensor, in elements: padded wherever an argument says them, so that a kernel has to use them.

    Odd problems lie otherwise than even ones where arguments allow it: columns innermost or rows, heads or rows.
    """
    order = list(range(len(shape)))
    folded = [index for index in order if promises.get(names[index] or "") == 1]
    if folded:
        order.append(order.pop(order.index(folded[0])))
    elif number % 2 and names[-1] is not None:
        order.reverse()
    if number % 2 and len(shape) == 4 and None not in names[:3]:
        order[1], order[2] = order[2], order[1]
    strides = [1] * len(shape)
    step = 1
    for index in reversed(order):
        name = names[index]
        if name is not None and index != order[-1]:
            step = -(-step // 16) * 16 + 16 if promises[name] == 16 else step + 3
        strides[index] = step
        step *= shape[index]
    return strides


def plan_scalar(argument: Argument, known: Mapping[str, int]) -> dict[str, Any]:
    """A scalar's value, as the kernel and the reference get it, and its bytes in the parameter buffer."""
    assert not argument.type.startswith("*")
    if argument.type == "fp32":
        data = struct.pack("<f", SCALARS[argument.name](known))
        return {"role": "scalar", "value": struct.unpack("<f", data)[0], "hex": data.hex()}
    value = known[argument.name]
    return {"role": "scalar", "value": value, "hex": _bytes(value, argument.type).hex()}


def _bytes(value: int, type: str) -> bytes:
    """An integer as the machine has it."""
    return value.to_bytes(DTYPES[type].size, "little", signed=type.startswith("i"))


def _integers(values: Mapping[str, object]) -> dict[str, int]:
    return {name: int(value) for name, value in values.items() if isinstance(value, int)}
