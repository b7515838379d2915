"""What the Rust crate has written down of the drivers is what the vendors' headers say, which come with Triton."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from kiln.packaging.rust_names import RUNTIME

HEADERS = {"cuda": ("nvidia", "cuda.h"), "hip": ("amd", "hip/hip_runtime_api.h")}


def include(driver: str) -> Path:
    found = importlib.util.find_spec("triton")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "backends" / HEADERS[driver][0] / "include"


def source(driver: str) -> str:
    return (RUNTIME / "driver" / f"{driver}.rs").read_text()


def header_name(driver: str, name: str) -> str:
    """HIP_ERROR_OUT_OF_MEMORY is called hipErrorOutOfMemory there; CUDA's names are in capitals themselves."""
    return name if driver == "cuda" else "hip" + "".join(word.capitalize() for word in name.split("_")[1:])


def check(driver: str, checks: list[str]) -> None:
    text = f"#include <{HEADERS[driver][1]}>\n#include <stddef.h>\n" + "\n".join(
        f'_Static_assert({condition}, "");' for condition in checks
    )
    command = ["gcc", "-std=gnu11", "-w", "-D__HIP_PLATFORM_AMD__", "-isystem", str(include(driver))]
    done = subprocess.run(
        [*command, "-fsyntax-only", "-x", "c", "-"], input=text, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("driver", HEADERS)
def test_numbers_are_those_of_the_header(driver: str) -> None:
    numbers = dict(re.findall(r"^const ((?:CU|HIP)\w+): c_int = (\d+);$", source(driver), re.MULTILINE))
    assert len(numbers) > 10
    check(driver, [f"{header_name(driver, name)} == {value}" for name, value in numbers.items()])


def test_structs_are_those_of_the_header() -> None:
    """Sizes and offsets that the crate asserts of its own."""
    members = {
        "shared_mem_bytes": "sharedMemBytes",
        "stream": "hStream",
        "attrs": "attrs",
        "num_attrs": "numAttrs",
        "value": "value",
    }
    text = source("cuda")
    sizes = re.findall(r"size_of::<(CU\w+)>\(\) == (\d+)", text)
    offsets = re.findall(r"offset_of!\((CU\w+), (\w+)\) == (\d+)", text)
    assert len(sizes) == 2 and len(offsets) == 5
    checks = [f"sizeof({type}) == {size}" for type, size in sizes]
    checks += [f"offsetof({type}, {members[name]}) == {offset}" for type, name, offset in offsets]
    checks += ["offsetof(CUlaunchConfig, gridDimX) == 0", "offsetof(CUlaunchConfig, blockDimX) == 12"]
    check("cuda", checks)
    assert "offset_of!(Properties, gcn_arch_name) == 1160" in source("hip")
    assert "size_of::<Properties>() == 4096" in source("hip")
    assert "offset_of!(PointerAttributes, is_managed) == 24" in source("hip")
    assert "size_of::<PointerAttributes>() == 32" in source("hip")
    check(
        "hip",
        [
            "offsetof(hipDeviceProp_tR0600, gcnArchName) == 1160",
            "sizeof(hipDeviceProp_tR0600) <= 4096",
            "offsetof(hipPointerAttribute_t, device) == 4",
            "offsetof(hipPointerAttribute_t, isManaged) == 24",
            "sizeof(hipPointerAttribute_t) == 32",
        ],
    )


@pytest.mark.parametrize("driver", HEADERS)
def test_functions_are_those_of_the_header(driver: str) -> None:
    """By name and by how many things they take."""
    header = (include(driver) / HEADERS[driver][1]).read_text()
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)
    functions = re.findall(r'c"((?:cu|hip)\w+)": fn\((.*?)\)(?: -> [^;]+)?;', source(driver), re.DOTALL)
    assert len(functions) > 20
    # The header renames what has a newer version: such a name must not be resolved without it.
    renamed = dict(re.findall(r"^\s*#define ((?:cu|hip)\w+)\s+((?:cu|hip)\w+)$", header, re.MULTILINE))
    assert [name for name, _ in functions if name in renamed] == []
    plain = {name: short for short, name in renamed.items()}
    for name, types in functions:
        declared = re.search(rf"\b{plain.get(name, name)}\s*\(([^;]*?)\)\s*;", header, re.DOTALL)
        assert declared, name
        taken = [word for word in declared[1].split(",") if word.strip() not in ("", "void")]
        assert len(taken) == len([word for word in types.split(",") if word.strip()]), name
