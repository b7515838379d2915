"""Runs launches of a plan in Triton's interpreter, without a GPU and without torch: launches in, their errors out.

TRITON_INTERPRET=1 python interpret_launches.py < launches, as JSON > of each: largest error, rows alone written
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from triton.runtime.interpreter import GridExecutor

from gpu import gpu_jobs, gpu_numbers
from project import REPOSITORY

TORCH_NAMES = {
    "fp32": "float32",
    "fp16": "float16",
    "fp8e4nv": "float8_e4m3fn",
    "i32": "int32",
    "i64": "int64",
}


class Memory:
    """An array, as the interpreter wants tensors to look."""

    def __init__(self, array: npt.NDArray[Any], dtype: str) -> None:
        self.array = array
        self.dtype = f"torch.{TORCH_NAMES[dtype]}"

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


class HostExecutor(GridExecutor):  # type: ignore[misc]  # Triton is not typed
    """Triton's own, less the copies between device and host: the arrays are here."""

    def _init_args_hst(self, args_dev: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        return list(args_dev), dict(kwargs)

    def _restore_args_dev(self, *args: Any) -> None:
        pass


def run(launch: dict[str, Any]) -> tuple[float, bool]:
    """The largest error of all outputs, and whether what lies between their rows was left alone."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    given: dict[str, Any] = dict(launch["constants"])
    for argument in launch["arguments"]:
        name = argument["name"]
        if argument["role"] == "scalar":
            given[name] = argument["value"]
            continue
        size = gpu_numbers.extent(argument["shape"], argument["strides"])
        bits = gpu_numbers.BITS[argument["dtype"]]
        if argument["role"] == "input":
            arrays[name] = gpu_jobs.make_input(argument, json.dumps([launch["kernel"], argument]))
        else:
            fill = 0xFF if argument["role"] == "output" else 0
            arrays[name] = np.full(size * np.dtype(bits).itemsize, fill, np.uint8).view(bits)
        given[name] = Memory(arrays[name], argument["dtype"])
    wanted = gpu_jobs.wanted(launch, arrays)
    function = getattr(importlib.import_module(launch["module"]), launch["function"])
    HostExecutor(function.rewrite(), function.arg_names, tuple(launch["grid"]))(**given)
    worst, is_whole = 0.0, True
    for argument, expected in zip(gpu_jobs.with_role(launch, "output"), wanted, strict=True):
        array, shape, strides = arrays[argument["name"]], argument["shape"], argument["strides"]
        got = gpu_numbers.decode(gpu_numbers.view(array, shape, strides), argument["dtype"])
        worst = max(worst, gpu_numbers.largest_error(got, expected))
        is_whole &= not gpu_jobs.touched_between(array, shape, strides)
    return worst, is_whole


if __name__ == "__main__":
    sys.path.append(str(REPOSITORY))
    print(json.dumps([run(launch) for launch in json.load(sys.stdin)]))
