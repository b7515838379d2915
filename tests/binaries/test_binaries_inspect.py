"""An image's kind is told by its content, and every field that its bytes show is held against its facts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from binaries_images import Built

from kiln.binaries.checks import require
from kiln.binaries.facts import Facts, Parameter
from kiln.binaries.inspect import check_against, inspect, kind_of
from kiln.errors import ImageError

SOUND = ["sm_80", "sm_90a", "sm_120a", "compute_80", "gfx942", "gfx1100", "cluster", "hidden", "xnack"]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_image_is_what_its_facts_say(images: dict[str, Built], name: str) -> None:
    built = images[name]
    assert kind_of(built.data) == built.kind == inspect(built.data).kind
    assert check_against(built.data, built.facts) == []


def other(value: Any) -> Any:
    """A value of the same type."""
    if isinstance(value, tuple):
        return (*value[:-1], other(value[-1]))
    if isinstance(value, Parameter):
        return replace(value, size=value.size + 1)
    if isinstance(value, dict):
        return {**value, "ptxas": "1.2.3"}
    return value + 1 if isinstance(value, int) else f"{value}x"


EVERY = ("kind", "sha256", "size", "arch", "entry", "parameters", "parameter_bytes", "threads", "shared_static")
SHOWN = {
    "sm_80": (*EVERY, "registers", "stack", "tools"),
    "cluster": (*EVERY, "registers", "stack", "tools", "cluster"),
    "compute_80": (*EVERY, "ptx_isa"),
    "gfx942": (*EVERY, "registers", "stack", "scalar_registers", "spills", "warp_size"),
}
"""image -> the facts that its bytes show"""


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in SHOWN.items() for field in fields])
def test_each_field_that_differs_is_told(images: dict[str, Built], name: str, field: str) -> None:
    built = images[name]
    recorded = getattr(built.facts, field)
    changed: Facts = replace(built.facts, **{field: other(recorded)})
    (finding,) = check_against(built.data, changed)
    assert finding.field.startswith(field)
    assert finding.expected.endswith(", by the facts")
    assert finding.actual.endswith(", by the image")
    assert finding.expected.partition(",")[0] != finding.actual.partition(",")[0]


@pytest.mark.parametrize("field", ["registers", "stack", "scalar_registers", "ptx_isa"])
def test_what_a_kind_cannot_show_cannot_be_a_fact_of_it(images: dict[str, Built], field: str) -> None:
    name = "sm_80" if field in ("scalar_registers", "ptx_isa") else "compute_80"
    (finding,) = check_against(images[name].data, replace(images[name].facts, **{field: 8}))
    assert (finding.field, finding.actual) == (field, "None, by the image")


def test_what_only_a_compiler_knows_is_not_held_against_an_image(images: dict[str, Built]) -> None:
    facts = replace(images["sm_80"].facts, shared_dynamic=512, cooperative=True, pdl=True, spills=64, warps=7)
    assert check_against(images["sm_80"].data, facts) == []


def test_another_image_is_refused_with_all_that_differs(images: dict[str, Built]) -> None:
    with pytest.raises(ImageError) as caught:
        require(check_against(images["sm_90a"].data, images["sm_80"].facts), "softmax.cubin")
    text = str(caught.value)
    assert text.startswith("softmax.cubin: ")
    for words in ("arch: ", "expected: sm_80, by the facts", "actual: sm_90a, by the image", "sha256: ", "size: "):
        assert words in text
    assert "entry: " not in text


def test_an_image_that_cannot_be_read_is_a_finding(images: dict[str, Built]) -> None:
    built = images["gfx942"]
    findings = check_against(built.data[:-1], built.facts)
    assert [finding.field for finding in findings] == ["size", "sha256", "image"]
    assert findings[2].check == "the file is cut short"
    assert [finding.field for finding in check_against(b"", built.facts)] == ["size", "sha256", "image"]


def test_a_ptx_as_packages_hold_it(images: dict[str, Built]) -> None:
    """With the NUL that drivers read up to; two are damage."""
    built = images["compute_80"]
    assert inspect(built.data + b"\0") == inspect(built.data)
    with pytest.raises(ImageError, match="holds a NUL"):
        inspect(built.data + b"\0\0")


HOST = bytes.fromhex("7f454c4602010100") + bytes(10)
FOREIGN = {
    "nothing": (b"", "0 bytes"),
    "one byte": (b"x", "text without a line"),
    "the start of an ELF file": (b"\x7fELF\x02", "5 bytes that start with 7f 45 4c 46"),
    "a host object": (HOST + b"\x3e\0" + bytes(44), r"an ELF file for x86_64-linux-gnu \(ELF machine 62\)"),
    "an object of an unknown machine": (HOST + b"\x99\x09" + bytes(44), "machine 2457"),
    "an archive with a PTX": (b"!<arch>\n" + bytes(60) + b"\n.version 8.0\n", "an archive of host objects"),
    "a fat binary": (bytes.fromhex("50ed55ba") + bytes(60), "a fat binary"),
    "bitcode": (b"BC\xc0\xde" + bytes(60), "LLVM bitcode"),
    "facts": (b'{\n "arch": "sm_80"\n}\n', "text without a line .version"),
    "assembly": (b"\t.text\n\t.globl x\n", "text without a line .version"),
    "noise": (bytes(range(256)), "256 bytes that start with 00 01 02 03"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_no_image_is_told_for_what_it_is(case: str) -> None:
    data, actual = FOREIGN[case]
    with pytest.raises(ImageError) as caught:
        kind_of(data)
    assert caught.value.expected == "a cubin (NVIDIA), a PTX, or an hsaco (AMD)"
    assert caught.value.actual is not None
    assert caught.value.remedy
    assert re.search(actual, caught.value.actual)
