"""What read_hsaco says of real hsacos, against LLVM's own account in the assembly text."""

from __future__ import annotations

import struct

import pytest
from binaries_images import SOFTMAX, Built

from kiln.binaries.elf import open_elf
from kiln.binaries.hsaco import MACHINES, read_hsaco
from kiln.errors import ImageError
from kiln.toolchain.targets import TARGETS


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "hidden", "threads_amd", "xnack"])
def test_equals_what_llvm_says(images: dict[str, Built], name: str) -> None:
    reading, kernel = read_hsaco(images[name].data), images[name].llvm_kernel
    arguments = [
        (argument[".offset"], argument[".size"])
        for argument in kernel[".args"]
        if argument[".value_kind"] in ("by_value", "global_buffer")
    ]
    assert [(span.offset, span.size) for span in reading.parameters] == arguments == SOFTMAX
    assert reading.entry == kernel[".name"] == "softmax_kernel"
    assert reading.parameter_bytes == kernel[".kernarg_segment_size"]
    assert reading.threads == kernel[".max_flat_workgroup_size"]
    assert reading.warp_size == kernel[".wavefront_size"]
    assert reading.shared_static == kernel[".group_segment_fixed_size"]
    assert reading.stack == kernel[".private_segment_fixed_size"]
    assert reading.registers == kernel[".vgpr_count"]
    assert reading.scalar_registers == kernel[".sgpr_count"]
    assert reading.spills == 4 * kernel[".vgpr_spill_count"]


def test_arguments_of_the_runtime_are_no_parameters(images: dict[str, Built]) -> None:
    """They count in the buffer's size, and in nothing else."""
    reading = read_hsaco(images["hidden"].data)
    assert len(images["hidden"].llvm_kernel[".args"]) == len(SOFTMAX) + 2
    assert len(reading.parameters) == len(SOFTMAX)
    assert reading.parameter_bytes == 56
    assert reading.shared_static == 4096


@pytest.mark.parametrize(("name", "arch"), [("gfx942", "gfx942"), ("gfx1100", "gfx1100"), ("xnack", "gfx942:xnack-")])
def test_architecture_with_its_features(images: dict[str, Built], name: str, arch: str) -> None:
    """Code that is fixed to a feature loads only where the feature is so; that shows in the arch."""
    assert read_hsaco(images[name].data).arch == arch


def test_every_amd_target_is_known() -> None:
    assert {target.name for target in TARGETS.values() if target.vendor == "amd"} <= set(MACHINES.values())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (0x541, "contradicts itself on its architecture"),
        (0x74C, "contradicts itself on its architecture"),
        (0x501, "a processor that Kiln does not know"),
    ],
    ids=["other processor", "xnack on", "unknown processor"],
)
def test_header_and_metadata_must_agree(images: dict[str, Built], flags: int, message: str) -> None:
    data = bytearray(images["gfx942"].data)
    assert struct.unpack_from("<I", data, 48)[0] == 0x54C
    struct.pack_into("<I", data, 48, flags)
    with pytest.raises(ImageError, match=message):
        read_hsaco(bytes(data))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (0, 64, "on its group segment"),
        (4, 16, "on its private segment"),
        (8, 40, "on its kernel arguments"),
        (16, 0x100, "leads to other code"),
        (56, 0x0408, "on its wavefront size"),
    ],
)
def test_descriptor_and_metadata_must_agree(images: dict[str, Built], field: int, value: int, message: str) -> None:
    """The runtime launches by the descriptor, and callers by the metadata."""
    data = bytearray(images["gfx942"].data)
    descriptor = open_elf(bytes(data)).section(".rodata")
    assert descriptor is not None
    assert descriptor.size == 64
    struct.pack_into("<H", data, descriptor.offset + field, value)
    with pytest.raises(ImageError, match=message) as caught:
        read_hsaco(bytes(data))
    assert caught.value.expected
    assert caught.value.actual


def test_a_cubin_is_refused(images: dict[str, Built]) -> None:
    with pytest.raises(ImageError, match="holds no AMD device code") as caught:
        read_hsaco(images["sm_90a"].data)
    assert caught.value.actual == "machine 190"
