"""What a compiler is asked for: each vendor's own options, and a PTX version that drivers in use accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.compilers.request import CompileRequest, components
from kiln.engine.state import State
from kiln.library import Library
from project import KERNEL, MANIFEST

OPTIONS = "    options: {num_warps: 8, maxnreg: 64, ptx_version: 83, waves_per_eu: 2, kpack: 1}\n"


def requests(folder: Path, manifest: str) -> dict[str, CompileRequest]:
    """Target -> the request for the first variant of a manifest."""
    (folder / "kernels").mkdir(parents=True, exist_ok=True)
    (folder / "kernels/scale.py").write_text(KERNEL)
    (folder / "kernels.yaml").write_text(manifest.replace("[sm_80, gfx942]", "[sm_80, compute_80, gfx942]"))
    library = Library.load(folder / "kernels.yaml", folder / "build", State(folder / "build/state.sqlite"))
    return {image.target: library.request(image) for image in library.images[:3]}


def test_options_go_to_the_vendor_that_knows_them(tmp_path: Path) -> None:
    found = {target: dict(request.options) for target, request in requests(tmp_path, MANIFEST + OPTIONS).items()}
    common = {"num_warps": 8, "enable_fp_fusion": True}
    assert found["sm_80"] == {**common, "maxnreg": 64}
    assert found["compute_80"] == {**common, "maxnreg": 64, "ptx_version": 83}
    assert found["gfx942"] == {**common, "waves_per_eu": 2, "kpack": 1}


def test_ptx_is_pinned_where_the_manifest_is_silent(tmp_path: Path) -> None:
    found = requests(tmp_path, MANIFEST)
    assert found["compute_80"].options["ptx_version"] == 80
    assert "ptx_version" not in found["sm_80"].options


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("[128, 256]", "[512]", {"constant BLOCK_SIZE"}),
        ("*{dtype}:16, i32", "*{dtype}:16, i64", {"arguments"}),
        ("*{dtype}:16, i32", "*{dtype}, i32", {"arguments"}),
        ("dtypes: [fp32]", "dtypes: [fp16]", {"arguments"}),
        ("    grid:", "    options: {num_stages: 2}\n    grid:", {"option num_stages"}),
        ("library: scratch", "library: other", set()),
        ("    grid:", "    # a comment\n    grid:", set()),
    ],
)
def test_components_name_what_changed(tmp_path: Path, old: str, new: str, names: set[str]) -> None:
    assert old in MANIFEST
    before = components(requests(tmp_path / "before", MANIFEST)["sm_80"])
    after = components(requests(tmp_path / "after", MANIFEST.replace(old, new))["sm_80"])
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == names
