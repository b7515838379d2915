"""Damaged images cost an ImageError, never another exception, memory or time, and none passes for what it was."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from binaries_images import USER_SIZES, Built
from binaries_mutate import mutate, originals_of

from kiln.binaries.checks import check_clean
from kiln.binaries.measure import measure
from kiln.errors import ImageError
from softmax_images import in_child

IMAGES = ["sm_80", "sm_90a", "sm_120a", "compute_80", "gfx942"]
MUTATED = [*IMAGES, "lines_compute_80", "cluster", "hidden", "xnack", "gfx90a", "gfx950", "gfx1100", "gfx1201"]
COUNT = 3000


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


@pytest.fixture(scope="module")
def originals(images: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images of every kind and generation, and their facts."""
    folder = tmp_path_factory.mktemp("originals")
    for name in MUTATED:
        built = images[name]
        (folder / built.path.name).write_bytes(built.data)
        (folder / f"{name}.facts.json").write_text(built.facts.to_json())
    return folder


def test_3000_mutated_images_are_refused_and_none_breaks_the_reader(originals: Path) -> None:
    """Bytes, headers, section tables, symbols, notes, lines and numbers changed, cut, extended and joined.

    In a process of its own, so that its memory can be told: none takes a second or 200 MB. Most are refused by reading
    them alone; the digest has the others, which say the same as the original or are sound images themselves.
    """
    program = Path(__file__).with_name("binaries_mutate.py")
    result = json.loads(in_child(program, str(originals), str(COUNT)))
    assert result["wrong"] == []
    assert result["made"] == COUNT
    assert {kind.partition(":")[0] for kind in result["kinds"]} == {"cubin", "ptx", "hsaco"}
    for kind, counts in result["kinds"].items():
        assert counts["made"] >= 20, kind
    for kind in ("cubin: cut", "hsaco: cut", "cubin: extended", "hsaco: extended"):
        assert result["kinds"][kind]["unread"] == result["kinds"][kind]["made"], kind
    assert sum(counts["unread"] for counts in result["kinds"].values()) > COUNT / 2


def test_a_mutation_can_be_made_again_by_its_number(originals: Path) -> None:
    found = originals_of(originals)
    for number in (3, 4, 5):
        one, two = (mutate(found, "seed", number) for _ in range(2))
        assert one == two
        assert one[2] != mutate(found, "other seed", number)[2]


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
