"""A program that prints what NVIDIA's driver says of this machine's GPUs, as one line of JSON.

It needs Python's own library alone, and is run in a process of its own: one that has called the driver has threads and
open devices, and a build forks. The line has one of: `gpus`, a list of [name, major, minor] in the driver's order, all
of compute capability major.minor; `absent`, why there is no driver; `failed`, what the driver refused.

Source of the calls: NVIDIA, "CUDA Driver API", Initialization, Device Management and Error Handling.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable

LIBRARY = "libcuda.so.1"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE: there is a driver, and no GPU that this process may use"""
MAJOR, MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR"""


class Refused(Exception):
    """A call of the driver did not return 0."""

    def __init__(self, function: str, code: int, name: str) -> None:
        super().__init__(f"{function} returned {code}{f' ({name})' if name else ''}")
        self.code = code


def report() -> dict[str, object]:
    """What is printed."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {"absent": str(error)}
    try:
        return {"gpus": gpus(driver)}
    except AttributeError as error:
        return {"failed": str(error)}
    except Refused as refused:
        return {"gpus": []} if refused.code == NO_DEVICE else {"failed": str(refused)}


def gpus(driver: ctypes.CDLL) -> list[tuple[str, int, int]]:
    """Each GPU's name, major and minor. Raises Refused, and AttributeError for a library that lacks a function."""
    _called(driver, "cuInit", ctypes.c_uint(0))
    count = _integer(driver, "cuDeviceGetCount")
    found = []
    for ordinal in range(count):
        device = _integer(driver, "cuDeviceGet", ctypes.c_int(ordinal))
        name = ctypes.create_string_buffer(256)
        _called(driver, "cuDeviceGetName", name, ctypes.c_int(len(name)), ctypes.c_int(device))
        major, minor = (
            _integer(driver, "cuDeviceGetAttribute", ctypes.c_int(attribute), ctypes.c_int(device))
            for attribute in (MAJOR, MINOR)
        )
        found.append((name.value.decode("utf-8", "replace"), major, minor))
    return found


def _integer(driver: ctypes.CDLL, function: str, *arguments: object) -> int:
    """The int that a function writes through its first parameter."""
    value = ctypes.c_int()
    _called(driver, function, ctypes.byref(value), *arguments)
    return value.value


def _called(driver: ctypes.CDLL, function: str, *arguments: object) -> None:
    call: Callable[..., int] = getattr(driver, function)
    code = call(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        known = driver.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text)) == 0
        raise Refused(function, code, text.value.decode("ascii", "replace") if known and text.value else "")


if __name__ == "__main__":
    print(json.dumps(report()))
