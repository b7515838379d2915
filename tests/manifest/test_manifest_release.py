"""The section `release`: what it reads to, and each thing that can be wrong, with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.narrow import narrowed

HEAD = "version: 1\nlibrary: l\ntargets: TARGETS\n"
KERNELS = """\
kernels:
  soft:
    source: k.py
    function: f
    dtypes: [fp32]
    name: "soft_{dtype}"
    signature: "*{dtype}"
    grid: [1]
"""


def read(
    folder: Path,
    section: str,
    *,
    targets: str = "[sm_80, sm_90a, gfx942]",
    gpus: tuple[str, ...] = ("sm_86",),
    only: tuple[str, ...] | None = None,
) -> Manifest:
    (folder / "k.py").touch()
    own = f"release: {section}\n" if section else ""
    (folder / "kernels.yaml").write_text(HEAD.replace("TARGETS", targets) + own + KERNELS)

    def find(position: Position) -> tuple[str, ...]:
        return gpus

    return load(folder / "kernels.yaml", find_native=find, only=only)


@pytest.mark.parametrize("section", ["", "{}"])
def test_a_release_may_have_any_size_where_nothing_is_said(tmp_path: Path, section: str) -> None:
    assert read(tmp_path, section).release_sizes == {}


def test_each_size_knows_its_key(tmp_path: Path) -> None:
    """Some of the targets, in the library's order and with the place that a breach is told at."""
    sizes = read(tmp_path, "{size: {gfx942: 0x100000, sm_80: 0}}").release_sizes
    assert [(target, size.most, size.name) for target, size in sizes.items()] == [
        ("sm_80", 0, "release.size.sm_80"),
        ("gfx942", 1 << 20, "release.size.gfx942"),
    ]
    assert [(size.position.line, size.position.column) for size in sizes.values()] == [(4, 36), (4, 18)]
    below = read(tmp_path, "\n  size:\n    sm_90a: 7").release_sizes["sm_90a"]
    assert str(below.position) == f"{tmp_path / 'kernels.yaml'}:6:5"


def test_a_manifest_that_is_read_in_part_has_them_too(tmp_path: Path) -> None:
    assert read(tmp_path, "{size: {sm_80: 9}}", only=()).release_sizes["sm_80"].most == 9


def test_a_library_that_is_narrowed_keeps_those_of_its_targets(tmp_path: Path) -> None:
    whole = read(tmp_path, "{size: {gfx942: 1, sm_80: 2}}")
    found = narrowed(whole, ["sm_90a", "sm_80"], "--targets")
    assert found.release_sizes == {"sm_80": whole.release_sizes["sm_80"]}


def test_a_borrowed_manifest_may_name_other_targets(tmp_path: Path) -> None:
    sizes = read(tmp_path, "{size: {gfx942: 1, sm_86: 2}}", targets="native").release_sizes
    assert {target: size.most for target, size in sizes.items()} == {"sm_86": 2}


def test_it_stands_in_the_first_file(tmp_path: Path) -> None:
    read(tmp_path, "{size: {sm_80: 1}}")
    (tmp_path / "more.yaml").write_text(f"version: 1\nrelease: {{size: {{sm_80: 1}}}}\n{KERNELS}")
    (tmp_path / "kernels.yaml").write_text(HEAD.replace("TARGETS", "[sm_80]") + "include: [more.yaml]\n")
    with pytest.raises(ManifestError, match="'release' cannot stand in a file that another one includes"):
        load(tmp_path / "kernels.yaml")


@pytest.mark.parametrize(
    ("section", "place", "said"),
    [
        ("4", "4:10", ("wrong value for `release`", "a map with keys among size")),
        ("[size]", "4:10", ("wrong value for `release`", "actual: a list of 1")),
        ("{sizes: {}}", "4:11", ("unknown key 'sizes' in `release`", "did you mean 'size'")),
        ("{size: 4}", "4:17", ("wrong value for `release.size`", "a map from the name of a target", "number '4'")),
        ("{size: {}}", "4:17", ("an empty map", "write at least one entry under `release.size`")),
        ("{size: }", "4:17", ("actual: nothing", "write at least one entry")),
        ("{size: {sm_80: -1}}", "4:25", ("wrong value for `release.size.sm_80`", "at least 0", "actual: -1")),
        ("{size: {sm_80: 1.5}}", "4:25", ("wrong value for `release.size.sm_80`", "'1.5'", "write an integer")),
        ("{size: {sm_80: 1M}}", "4:25", ("wrong value for `release.size.sm_80`", "the text '1M'")),
        ("{size: {sm_80: '9'}}", "4:25", ("wrong value for `release.size.sm_80`", "remove the quotes")),
        ("{size: {sm_80: true}}", "4:25", ("wrong value for `release.size.sm_80`", "the truth value 'true'")),
        ("{size: {sm_80: no}}", "4:25", ("wrong value for `release.size.sm_80`", "the truth value 'no'")),
        ("{size: {sm_80: }}", "4:25", ("wrong value for `release.size.sm_80`", "actual: nothing")),
        ("{size: {sm_80: [1]}}", "4:25", ("wrong value for `release.size.sm_80`", "a list of 1")),
        ("{size: {sm_80: 9223372036854775808}}", "4:25", ("an integer has 64 bits",)),
        ("{size: {sm_80: 1, sm_80: 2}}", "4:28", ("sm_80",)),
        (
            "{size: {sm_90: 1}}",
            "4:18",
            ("`release.size` has the target 'sm_90', which the library is not built for", "did you mean 'sm_90a'"),
        ),
        ("{size: {compute_80: 1}}", "4:18", ("among sm_80, sm_90a, gfx942", "add the target to `targets`")),
        ("{size: {'': 1}}", "4:18", ("has the target ''",)),
        ("{size: {native: 1}}", "4:18", ("has the target 'native'",)),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, place: str, said: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ManifestError) as caught:
        read(Path(), section)
    print(caught.value)
    assert str(caught.value).startswith(f"kernels.yaml:{place}: ")
    assert [words for words in said if words not in str(caught.value)] == []
