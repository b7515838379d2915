"""measure joins an image with its compiler's report, and believes neither when they contradict each other."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from binaries_images import SOFTMAX, USER_SIZES, Built, compiled

from kiln.binaries.facts import SCHEMA, Facts
from kiln.binaries.measure import measure
from kiln.errors import ImageError

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


@pytest.mark.parametrize(
    ("name", "arch", "threads", "ptxas"),
    [
        ("sm_80", "sm_80", 128, "12.9"),
        ("sm_90a", "sm_90a", 128, "13.4.59"),
        ("sm_120a", "sm_120a", 128, "13.4.59"),
        ("compute_80", "compute_80", 128, None),
        ("gfx942", "gfx942", 256, None),
        ("gfx1100", "gfx1100", 128, None),
    ],
)
def test_facts_of_softmax(images: dict[str, Built], name: str, arch: str, threads: int, ptxas: str | None) -> None:
    built = images[name]
    facts = built.facts
    assert (facts.kind, facts.arch, facts.entry) == (built.kind, arch, "softmax_kernel")
    assert (facts.sha256, facts.size) == (hashlib.sha256(built.data).hexdigest(), len(built.data))
    assert [(parameter.offset, parameter.size) for parameter in facts.parameters] == SOFTMAX
    roles = ["user"] * 5 + ["global_scratch", "profile_scratch"]
    assert [parameter.role for parameter in facts.parameters] == roles
    assert (facts.threads, facts.warps * facts.warp_size) == (threads, threads)
    assert facts.shared_dynamic == built.compiled.shared_dynamic > 0
    assert facts.tools.get("ptxas") == ptxas
    assert (facts.registers is None, facts.stack is None) == (built.kind == "ptx", built.kind == "ptx")
    assert (facts.scalar_registers is None, facts.spills) == (built.kind != "hsaco", None if built.kind == "ptx" else 0)
    assert facts.ptx_isa == ("8.0" if built.kind == "ptx" else None)


@pytest.mark.parametrize("name", ["sm_90a", "compute_80", "gfx942", "cluster"])
def test_facts_survive_their_file(images: dict[str, Built], name: str) -> None:
    facts = images[name].facts
    text = facts.to_json()
    assert Facts.from_json(text) == facts
    assert Facts.from_json(text).to_json() == text


def test_a_file_of_another_shape_is_no_facts(images: dict[str, Built]) -> None:
    data = json.loads(images["sm_90a"].facts.to_json())
    wrong: list[Any] = [
        [],
        {},
        {**data, "schema": SCHEMA + 1},
        {**data, "more": 1},
        {**data, "parameters": 3},
        {**data, "parameters": [{"offset": 0}]},
        {**data, "cluster": None},
        {name: value for name, value in data.items() if name != "arch"},
    ]
    for shape in wrong:
        with pytest.raises(ValueError, match="facts"):
            Facts.from_json(json.dumps(shape))


@pytest.mark.parametrize(
    ("user", "hidden"), [(7, []), (6, ["global_scratch"]), (5, ["global_scratch", "profile_scratch"])]
)
def test_hidden_parameters_are_counted_off_the_image(images: dict[str, Built], user: int, hidden: list[str]) -> None:
    """Their number depends on Triton's version: 0, 1 or 2."""
    built = images["sm_90a"]
    facts = measure(built.data, kind="cubin", user_parameters=user, compiled=built.compiled)
    assert [parameter.role for parameter in facts.parameters] == ["user"] * user + hidden


@pytest.mark.parametrize("name", ["sm_80", "compute_80", "gfx942"])
@pytest.mark.parametrize("user", [4, 8])
def test_more_or_fewer_parameters_than_any_version_adds(images: dict[str, Built], name: str, user: int) -> None:
    built = images[name]
    with pytest.raises(ImageError, match="number of parameters that does not fit") as caught:
        measure(built.data, kind=built.kind, user_parameters=user, compiled=built.compiled)
    assert caught.value.expected == f"{user} from the signature, and none, one or two for scratch memory"
    assert caught.value.actual == "7"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sm_90a", {"entry": "other"}, "entry"),
        ("gfx942", {"warp_size": 32}, "warp size"),
        ("cluster", {"cluster": (1, 1, 1)}, "cluster"),
        ("sm_90a", {"tools": {"ptxas": "13.3"}}, "ptxas version"),
        ("sm_80", {"tools": {"ptxas": "13.4"}}, "ptxas version"),
    ],
)
def test_image_and_compiler_must_agree(
    images: dict[str, Built], name: str, change: dict[str, Any], message: str
) -> None:
    built = images[name]
    with pytest.raises(ImageError, match=f"not what its compiler reports: {message}") as caught:
        measure(
            built.data,
            kind=built.kind,
            user_parameters=len(USER_SIZES),
            compiled=replace(built.compiled, **change),
        )
    assert caught.value.expected
    assert caught.value.actual


@pytest.mark.parametrize(
    ("name", "reported", "kept"),
    [("sm_90a", "13.4", "13.4.59"), ("sm_90a", "13.4.59", "13.4.59"), ("sm_80", "12.9.86", "12.9.86")],
)
def test_the_more_precise_version_is_kept(images: dict[str, Built], name: str, reported: str, kept: str) -> None:
    built = images[name]
    report = replace(built.compiled, tools={"triton": "3.9.0", "ptxas": reported})
    facts = measure(built.data, kind="cubin", user_parameters=5, compiled=report)
    assert facts.tools == {"triton": "3.9.0", "ptxas": kept}


def test_threads_where_the_image_names_none() -> None:
    text = f"{HEAD}.visible .entry k()\n{{ ret; }}".encode()
    assert measure(text, kind="ptx", user_parameters=0, compiled=compiled(warps=8)).threads == 256


def test_threads_beyond_the_bound_of_the_image() -> None:
    text = f"{HEAD}.visible .entry k()\n.maxntid 128\n{{ ret; }}".encode()
    assert measure(text, kind="ptx", user_parameters=0, compiled=compiled(warps=4)).threads == 128
    with pytest.raises(ImageError, match="launched with as many threads") as caught:
        measure(text, kind="ptx", user_parameters=0, compiled=compiled(warps=5))
    assert (caught.value.expected, caught.value.actual) == ("at most 128, by the image", "160, by the compiler")
