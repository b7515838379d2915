"""What the default library's kernels.yaml says of its kernels so that launches on slices are safe holds: offsets that a
kernel computes in 32 bits fit them wherever `select` holds, and what it writes is what is declared as such.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpu.gpu_plan import WORKSPACE, load_reference
from kiln.engine.state import State
from kiln.errors import ManifestError
from kiln.library import Library
from kiln.manifest.dtypes import is_integer
from kiln.manifest.expression import Expression
from project import REPOSITORY

Values = Mapping[str, int]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("unused")
    return Library.load(REPOSITORY / "kernels.yaml", folder / "build", State(folder / "state.sqlite"))


def holds(select: Expression | None, values: Values) -> bool:
    """What C and Rust make of it: one without a value does not hold."""
    try:
        return select is None or bool(select.evaluate(values))
    except ManifestError:
        return False


def up(value: int, block: int) -> int:
    """Up to the end of the last block: where a loop's counter ends, and the largest index of a masked element."""
    return -(-value // block) * block


def matmul(v: Values) -> list[int]:
    return [up(v["M"], v["BLOCK_M"]), up(v["N"], v["BLOCK_N"]), up(v["K"], v["BLOCK_K"])]


def matmul_offsets(v: Values) -> list[int]:
    """A pointer to a tile of A or B is moved by BLOCK_K rows; strides that are 1 are no numbers in an image."""
    return [*matmul(v), v["BLOCK_K"] * v["stride_ak"], v["BLOCK_K"] * v["stride_bk"]]


IN_32_BITS: dict[str, Callable[[Values], list[int]]] = {
    "softmax": lambda v: [up(v["n_cols"], v["BLOCK_SIZE"])],
    "rms_norm": lambda v: [up(v["n_cols"], v["BLOCK_SIZE"])],
    "layer_norm": lambda v: [up(v["n_cols"], v["BLOCK_SIZE"])],
    "group_norm": lambda v: [
        up(v["n_pixels"], v["BLOCK_HW"]),
        v["n_pixels"] * v["CHANNELS"],
        (v["BLOCK_HW"] - 1) * v["n_channels"] + v["n_channels"] - v["CHANNELS"] + v["BLOCK_C"],
    ],
    **dict.fromkeys(("matmul", "matmul_large", "matmul_cluster", "matmul_any", "matmul_fp8"), matmul_offsets),
    "matmul_persistent": lambda v: [
        *matmul(v),
        up(v["M"], v["BLOCK_M"]) // v["BLOCK_M"] * (up(v["N"], v["BLOCK_N"]) // v["BLOCK_N"]) + v["n_programs"],
    ],
    "attention": lambda v: [
        up(v["n_queries"], v["BLOCK_M"]),
        up(v["n_keys"] + v["BLOCK_M"], v["BLOCK_N"]),
        *((v["BLOCK_M"] - 1) * v[f"stride_{name}m"] + v["HEAD_DIM"] for name in "qo"),
        *((v["BLOCK_N"] - 1) * v[f"stride_{name}n"] + v["HEAD_DIM"] for name in "kv"),
    ],
    "gather_rows": lambda v: [up(v["n_cols"], v["BLOCK_SIZE"])],
    "l2_normalize": lambda v: [v["n_programs"]],
    "vector_add": lambda v: [up(v["n"], v["BLOCK_SIZE"])],
    "warp_reduce": lambda v: [v["n_cols"] + v["BLOCK_SIZE"]],
}
"""kernel -> what it computes in 32 bits that grows with its arguments: see its source"""

PROBES = sorted(
    {2**power - step for power in (24, 25, 26, 28, 31, 32, 40) for step in (0, 1, 8, 16, 64, 96, 128, 256, 4096)}
)


@pytest.mark.parametrize("name", IN_32_BITS)
def test_offsets_of_32_bits_fit_where_a_launch_is_served(library: Library, name: str) -> None:
    """Each integer in turn is large, and all others are as in a problem that is served."""
    variants = {image.variant.id: image for image in library.images if image.variant.kernel.key == name}
    refused = set()
    for image in variants.values():
        kernel, interface = image.variant.kernel, library.interface(image)
        types = {**{each.name: each.type for each in interface.arguments}, **kernel.inputs}
        promised = {each.name: each.promise for each in interface.arguments}
        integers = {each: 1 if promised.get(each) == 1 else 16 for each, type in types.items() if is_integer(type)}
        (first, *_) = [
            values
            for problem in kernel.problems
            if holds(kernel.select, values := {**interface.known, **integers, **problem})
        ] or [{}]
        if not first:
            continue
        assert max(IN_32_BITS[name](first)) < 2**31
        for integer, probe in ((each, probe) for each in integers for probe in PROBES):
            fits = probe < 2 ** (31 if types[integer] == "i32" else 63)
            if fits and promised.get(integer) != 1:
                values = {**first, integer: probe}
                if holds(kernel.select, values):
                    assert max(IN_32_BITS[name](values)) < 2**31, (image.id, integer, probe)
                elif max(IN_32_BITS[name](values)) >= 2**31:
                    refused.add(integer)
    # Else the test would show nothing.
    assert refused or name in ("softmax", "rms_norm", "l2_normalize")


def test_every_kernel_has_its_offsets(library: Library) -> None:
    assert IN_32_BITS.keys() == {kernel.key for kernel in library.manifest.kernels}


def test_heads_are_shared_evenly(library: Library) -> None:
    (kernel,) = [kernel for kernel in library.manifest.kernels if kernel.key == "attention"]
    for image in (image for image in library.images if image.variant.kernel is kernel):
        known = library.interface(image).known
        integers = [each.name for each in library.interface(image).arguments if is_integer(each.type)]
        values = {**known, **dict.fromkeys(integers, 16), "n_batch": 1, "n_heads": 6}
        served = [count for count in range(-6, 8) if holds(kernel.select, {**values, "heads_per_kv": count})]
        assert served == [1, 2, 3, 6]


def test_what_is_written_is_what_no_reference_is_given(library: Library) -> None:
    for kernel in library.manifest.kernels:
        assert kernel.reference is not None
        given = inspect.signature(load_reference(Path(REPOSITORY), kernel.reference)).parameters
        assert kernel.outputs == tuple(name for name in kernel.tensors if name not in given), kernel.key
    written = {name for kernel in library.manifest.kernels for name in kernel.outputs or ()}
    assert set(WORKSPACE) <= written
