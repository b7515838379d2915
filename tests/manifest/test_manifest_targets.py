"""The targets of a library and of its kernels, with the word native in place of those of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import fastjsonschema
import pytest

from kiln.errors import ManifestError, Position
from kiln.library import read_manifest
from kiln.manifest.json_schema import json_schema
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.targets import NativeTargets

MANIFEST = """\
version: 1
library: l
targets: TARGETS
kernels:
  k:
    source: k.py
    function: f
    dtypes: [fp32]
    name: "k_{dtype}"
    signature: "*{dtype}"
    grid: [1]
"""


def found(position: Position) -> tuple[str, ...]:
    return ("sm_86", "sm_90a")


def read(folder: Path, targets: str, own: str = "", find: NativeTargets | None = found) -> Manifest:
    (folder / "k.py").touch()
    text = MANIFEST.replace("TARGETS", targets) + (f"    targets: {own}\n" if own else "")
    (folder / "kernels.yaml").write_text(text)
    return load(folder / "kernels.yaml", find_native=find)


@pytest.mark.parametrize(
    ("targets", "own", "names", "kernels", "columns"),
    [
        ("native", "", "sm_86 sm_90a", "sm_86 sm_90a", [10, 10]),
        ('"native"', "", "sm_86 sm_90a", "sm_86 sm_90a", [10, 10]),
        ("[native]", "native", "sm_86 sm_90a", "sm_86 sm_90a", [11, 11]),
        ("[sm_90a, native, gfx942]", "", "sm_90a sm_86 gfx942", "sm_90a sm_86 gfx942", [11, 19, 27]),
        ("[native, sm_90a, gfx942]", "[gfx942, native]", "sm_86 sm_90a gfx942", "sm_86 sm_90a gfx942", [11, 11, 27]),
    ],
)
def test_native_is_replaced(
    tmp_path: Path, targets: str, own: str, names: str, kernels: str, columns: list[int]
) -> None:
    """In its place, once each, and each at the place of the word or of its own name."""
    manifest = read(tmp_path, targets, own)
    assert manifest.native
    assert manifest.targets == tuple(names.split())
    assert manifest.kernels[0].targets == tuple(kernels.split())
    assert [position.column for position in manifest.target_positions.values()] == columns
    assert [image.target for image in manifest.images] == kernels.split()


def test_names_alone_ask_nobody(tmp_path: Path) -> None:
    def fail(position: Position) -> tuple[str, ...]:
        raise AssertionError("nothing here is native")

    manifest = read(tmp_path, "[sm_80, gfx942]", find=fail)
    assert not manifest.native
    assert manifest.targets == ("sm_80", "gfx942")


@pytest.mark.parametrize(
    ("targets", "own", "find", "words"),
    [
        ("native", "", None, [":3:10: the word native stands for the GPUs", "targets by name"]),
        ("[sm_80]", "native", found, [":12:14: `kernels.k.targets` holds 'native'", "the library is not built for"]),
        ("native", "[sm_80]", found, [":12:15: ", "targets among sm_86, sm_90a, native"]),
        ("[native, sm_80]", "native", found, [":3:19: no kernel is built for 'sm_80'"]),
        ("[native, native]", "", found, [":3:19: `targets` holds 'native' twice"]),
        ("natve", "", found, [":3:10: wrong value for `targets`", "or the word native", "did you mean 'native'?"]),
        ("sm_80", "", found, ["put brackets around it"]),
        ("{native: 1}", "", found, [":3:10: wrong value for `targets`"]),
    ],
)
def test_refusals(tmp_path: Path, targets: str, own: str, find: NativeTargets | None, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, targets, own, find)
    print(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(("targets", "fits"), [("native", True), (["native", "sm_80"], True), ("sm_80", False)])
def test_the_schema_knows_the_word(targets: object, fits: bool) -> None:
    check = fastjsonschema.compile(json.loads(json_schema())["properties"]["targets"])
    try:
        check(targets)
    except fastjsonschema.JsonSchemaValueException:
        assert not fits
    else:
        assert fits


def test_a_name_that_is_no_target_is_told_before_kernels_are_held_against_it(tmp_path: Path) -> None:
    (tmp_path / "k.py").touch()
    text = MANIFEST.replace("TARGETS", "[sm_9O]") + "    targets: [sm_90]\n"
    (tmp_path / "kernels.yaml").write_text(text)
    with pytest.raises(ManifestError) as caught:
        read_manifest(tmp_path / "kernels.yaml")
    assert str(caught.value).startswith(f"{tmp_path}/kernels.yaml:3:11: ")
    assert "'sm_9O'" in str(caught.value) and "kernels.k" not in str(caught.value)
