"""Damaged images cost an ImageError or a wrong fact, never another exception, memory or time."""

from __future__ import annotations

import random
import time

import pytest
from binaries_images import USER_SIZES, Built

from kiln.binaries.checks import check_clean
from kiln.binaries.measure import measure
from kiln.errors import ImageError

IMAGES = ["sm_80", "sm_90a", "sm_120a", "compute_80", "gfx942"]
FLIPS = 250


def read(built: Built, data: bytes) -> bool:
    """Whether the image was taken. Anything but ImageError fails the test."""
    taken = True
    try:
        measure(data, kind=built.kind, user_parameters=len(USER_SIZES), compiled=built.compiled)
    except ImageError as error:
        assert str(error).strip()
        taken = False
    try:
        check_clean(data, built.kind)
    except ImageError:
        assert not taken
    return taken


@pytest.mark.parametrize("name", IMAGES)
def test_changed_bytes(images: dict[str, Built], name: str) -> None:
    """One to eight bytes set at random, half of the time among those that hold structure."""
    built = images[name]
    chance = random.Random(name)
    edges = [*range(64), *range(max(64, len(built.data) - 1500), len(built.data))]
    refused = 0
    started = time.monotonic()
    for round_number in range(FLIPS):
        data = bytearray(built.data)
        for _ in range(chance.choice((1, 1, 2, 8))):
            place = chance.choice(edges) if round_number % 2 else chance.randrange(len(data))
            data[place] = chance.choice((0, 0xFF, 0x80, data[place] ^ 1 << chance.randrange(8), chance.randrange(256)))
        refused += not read(built, bytes(data))
    assert refused > FLIPS // 20
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("name", IMAGES)
def test_cut_short(images: dict[str, Built], name: str) -> None:
    """At any place: a full disk cuts where it likes."""
    built = images[name]
    end = len(built.data.rstrip())
    chance = random.Random(name)
    for size in {0, 1, 4, 63, 64, 4096, end // 2, end - 2, end - 1, *(chance.randrange(end) for _ in range(60))}:
        if size < end:
            assert not read(built, built.data[:size]), size


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("more", [b"\0", b"x", b"\0" * 4096, b"}"])
def test_with_bytes_added(images: dict[str, Built], name: str, more: bytes) -> None:
    assert not read(images[name], images[name].data + more)


@pytest.mark.parametrize("name", IMAGES)
def test_hostile_sizes(images: dict[str, Built], name: str) -> None:
    """Each aligned word of an ELF's headers and tables set to the largest number."""
    built = images[name]
    if built.kind == "ptx":
        digits = b"9" * 5000
        for old in (b".reqntid 128", b".version 8.0", b".target sm_80", b".address_size 64"):
            assert old in built.data
            assert not read(built, built.data.replace(old, old + digits)), old
        assert not read(built, built.data.replace(b"_param_2,", b"_param_2[" + digits + b"],"))
        return
    for place in [*range(16, 64, 4), *range(len(built.data) - 1024, len(built.data), 8)]:
        data = bytearray(built.data)
        data[place : place + 8] = b"\xff" * min(8, len(data) - place)
        read(built, bytes(data))
