"""What is printed of an image file, with the facts beside it and without, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from binaries_images import SOFTMAX, Built

from kiln.binaries.show import Shown, show
from kiln.errors import ImageError


def put(folder: Path, built: Built, *, facts: bool = True) -> Path:
    """The image in a folder, under a name that says nothing, with its facts."""
    path = folder / "an image"
    path.write_bytes(built.data)
    if facts:
        (folder / "an image.facts.json").write_text(built.facts.to_json())
    return path


def rows(shown: Shown) -> dict[str, str]:
    """Label -> text of what is printed below the file's name."""
    lines = shown.lines()
    assert lines[0] == str(shown.path)
    found = {line[:19].strip(): line[19:] for line in lines[1:]}
    assert len(found) == len(lines) - 1
    return found


@pytest.mark.parametrize("name", ["sm_80", "sm_120a", "compute_80", "gfx1100", "cluster"])
def test_lines_say_what_facts_say(images: dict[str, Built], tmp_path: Path, name: str) -> None:
    built = images[name]
    facts, found = built.facts, rows(show(put(tmp_path, built)))
    assert (found["kind"], found["arch"], found["entry"]) == (built.kind, facts.arch, "softmax_kernel")
    assert (found["size"], found["sha256"]) == (f"{facts.size} bytes", facts.sha256)
    assert found["parameters"] == "7, in a buffer of 48 bytes"
    roles = [*["user"] * 5, "global_scratch", "profile_scratch"]
    for index, ((offset, size), role) in enumerate(zip(SOFTMAX, roles, strict=True)):
        assert found[str(index)] == f"{size} bytes at offset {offset}, {role}"
    assert found["threads"] == str(facts.threads)
    assert found["facts"] == "an image.facts.json agrees"
    assert found.get("registers") == (None if facts.registers is None else f"{facts.registers} a thread")
    assert found.get("stack") == (None if facts.stack is None else f"{facts.stack} bytes a thread")
    assert found.get("cluster") == ("2 x 1 x 1 blocks" if name == "cluster" else None)
    assert found.get("warp size") == ("32" if built.kind == "hsaco" else None)
    assert found.get("PTX ISA") == (
        "8.0, which needs CUDA 12.0 (driver 525) or newer" if name == "compute_80" else None
    )
    assert ("made by" in found) == (built.kind == "cubin")


def test_an_image_alone(images: dict[str, Built], tmp_path: Path) -> None:
    found = rows(show(put(tmp_path, images["gfx942"], facts=False)))
    assert found["facts"] == "no an image.facts.json"
    assert found["0"] == "8 bytes at offset 0"


@pytest.mark.parametrize("name", ["sm_90a", "compute_80", "gfx942"])
def test_plain_data(images: dict[str, Built], tmp_path: Path, name: str) -> None:
    """As JSON reads it back: every fact that the image shows under the name that facts have for it."""
    built = images[name]
    plain = json.loads(json.dumps(show(put(tmp_path, built)).plain()))
    facts = json.loads(built.facts.to_json())
    assert [(each["offset"], each["size"]) for each in plain["parameters"]] == SOFTMAX
    for field in ("kind", "size", "sha256", "arch", "entry", "parameter_bytes", "threads", "registers", "ptx_isa"):
        assert plain[field] == facts[field], field
    assert plain["oldest_driver"] == ("CUDA 12.0 (driver 525)" if built.kind == "ptx" else None)
    assert plain["facts"] == str(tmp_path / "an image.facts.json")


def refused(path: Path, *words: str) -> None:
    """Showing the file must fail, with its name and each text, a regular expression."""
    with pytest.raises(ImageError) as caught:
        show(path)
    text = str(caught.value)
    assert text.startswith(str(path.parent))
    for word in (*words, "expected: |remedy: "):
        assert re.search(word, text), text


def test_what_cannot_be_read(images: dict[str, Built], tmp_path: Path) -> None:
    refused(tmp_path / "missing", "cannot be read: No such file or directory", "remedy: name an image")
    refused(tmp_path, "this is no image", "actual: a folder")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "this is no image", "actual: no plain file")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    refused(tmp_path / "large", "this is no image", "actual: 1073741824 bytes")
    (tmp_path / "empty").touch()
    refused(tmp_path / "empty", "the file is empty")
    (tmp_path / "cut").write_bytes(images["sm_80"].data[:-9])
    refused(tmp_path / "cut", "cut short", r"expected: \d+ bytes, by its own header", r"actual: \d+ bytes")


def test_an_image_that_its_facts_do_not_fit(images: dict[str, Built], tmp_path: Path) -> None:
    path = put(tmp_path, images["sm_90a"])
    path.write_bytes(images["gfx942"].data)
    refused(path, "checks failed", "kind: ", "expected: cubin, by the facts", "actual: hsaco, by the image", "sha256: ")
    path.write_bytes(images["sm_90a"].data[:-1])
    refused(path, "checks failed", "size: ", "image: the file is cut short")
    path.write_bytes(b"")
    refused(path, "size: ", "image: the file is empty")


FACTS = {
    "empty": "",
    "truncated": '{\n "arch": "sm_80",\n',
    "a list": "[]",
    "of another schema": '{"schema": 1}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("case", FACTS)
def test_facts_that_cannot_be_read(images: dict[str, Built], tmp_path: Path, case: str) -> None:
    path = put(tmp_path, images["sm_80"])
    (tmp_path / "an image.facts.json").write_text(FACTS[case])
    refused(path, r"an image\.facts\.json: the facts beside the image cannot be read", "actual: .")


def test_facts_with_values_of_other_types(images: dict[str, Built], tmp_path: Path) -> None:
    """Each costs a refusal, and never another exception."""
    path = put(tmp_path, images["sm_80"])
    recorded = json.loads(images["sm_80"].facts.to_json())
    for field in recorded:
        if field in ("schema", *NOT_SHOWN):
            continue
        for value in (None, "x", -1, [], {}, [[]], True):
            if value == recorded[field]:
                continue
            (tmp_path / "an image.facts.json").write_text(json.dumps({**recorded, field: value}))
            refused(path)


NOT_SHOWN = {
    "cooperative",
    "pdl",
    "warps",
    "warp_size",
    "cluster",
    "shared_dynamic",
    "scalar_registers",
    "ptx_isa",
    "spills",
}
NOT_SHOWN |= {f"{kind}_scratch_{what}" for kind in ("global", "profile") for what in ("bytes", "align")}
"""what a cubin of a kernel without a cluster leaves to its compiler, or what is null for it"""


def test_the_facts_that_are_not_shown_are_named_so(images: dict[str, Built]) -> None:
    assert {field.name for field in dataclasses.fields(images["sm_80"].facts)} > NOT_SHOWN
