"""The tables of the interpreter agree with what is installed: Triton's names, number formats, versions."""

from __future__ import annotations

import importlib
import struct

import pytest
from closure_worlds import TRITON

from kiln.closure import triton_names
from kiln.closure.interpret.number_formats import FORMATS, FloatFormat, IntegerFormat
from kiln.closure.interpret.values import VersionValue

MODULES = ["triton", "triton.language", "triton.runtime", "triton.language.extra.libdevice", "triton.language.math"]


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_triton_is_found(module: str) -> None:
    path = tuple(module.split("."))[1:]
    names = [name for name in dir(importlib.import_module(module)) if not name.startswith("__")]
    found = {name: triton_names.has(TRITON, (*path, name)) for name in names}
    assert len(found) > 10
    # Modules that somebody has imported are there by chance; what code asks for are names.
    assert [name for name, known in found.items() if known is False] == []


@pytest.mark.parametrize(
    "name",
    [
        "no_such",
        "language.no_such",
        "language.no_such.dot",
        "language.extra.ascend",
        "language.extra.libdevice.no_such",
        "language.extra.cuda.no_such",
        "runtime.no_such",
        "nothing.at.all",
        "libdevice",
    ],
)
def test_what_triton_does_not_have_is_told(name: str) -> None:
    assert triton_names.has(TRITON, tuple(name.split("."))) is False


def test_what_lies_inside_an_object_is_not_told() -> None:
    assert triton_names.has(TRITON, ("runtime", "driver", "active")) is None


@pytest.mark.parametrize(
    ("name", "word", "largest", "smallest", "above_one"),
    [
        ("float16", "e", 0x7BFF, 0x0400, 0x3C01),
        ("float32", "f", 0x7F7FFFFF, 0x00800000, 0x3F800001),
        ("float64", "d", 0x7FEFFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000001),
    ],
)
def test_limits_of_floats(name: str, word: str, largest: int, smallest: int, above_one: int) -> None:
    """Held against the bit patterns, as Python reads them."""
    size = struct.calcsize(f"<{word}")

    def number(bits: int) -> float:
        value = struct.unpack(f"<{word}", bits.to_bytes(size, "little"))[0]
        assert isinstance(value, float)
        return value

    known = FORMATS[name]
    assert isinstance(known, FloatFormat)
    assert (known.bits, known.max, known.min) == (8 * size, number(largest), -number(largest))
    assert known.tiny == known.smallest_normal == number(smallest)
    assert known.eps == number(above_one) - 1


def test_limits_of_bfloat16() -> None:
    known = FORMATS["bfloat16"]
    assert isinstance(known, FloatFormat)
    # It is the upper half of fp32.
    assert known.max == struct.unpack("<f", (0x7F7F0000).to_bytes(4, "little"))[0]
    assert known.eps == struct.unpack("<f", (0x3F810000).to_bytes(4, "little"))[0] - 1


@pytest.mark.parametrize("name", [name for name, known in FORMATS.items() if isinstance(known, IntegerFormat)])
def test_limits_of_integers(name: str) -> None:
    known = FORMATS[name]
    assert isinstance(known, IntegerFormat)
    for value in (known.min, known.max):
        value.to_bytes(known.bits // 8, "little", signed=known.signed)
    for value in (known.min - 1, known.max + 1):
        with pytest.raises(OverflowError):
            value.to_bytes(known.bits // 8, "little", signed=known.signed)


def test_versions_are_in_order() -> None:
    texts = ["2.9", "3.0.0.dev1", "3.0.0a2", "3.0.0rc1", "3.0", "3.0.0.post1", "3.1", "3.10.0+git1"]
    versions = [VersionValue.parse(text) for text in texts]
    assert versions == sorted(versions)
    assert VersionValue.parse("3.0.0+cu12") == VersionValue.parse("v3.0")
    with pytest.raises(ValueError, match="no version"):
        VersionValue.parse("main")
