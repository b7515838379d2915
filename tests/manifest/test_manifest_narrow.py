"""A manifest for some of its targets is what it would be if the others were taken out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.manifest.loader import load
from kiln.manifest.model import Manifest
from kiln.manifest.narrow import narrowed
from project import MANIFEST

MORE = """\
  grown:
    source: kernels/scale.py
    function: scale_kernel
    targets: [gfx942]
    dtypes: [fp32]
    blocks: [128]
    name: grown_{dtype}_{block}
    group: grown_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""


def manifest(folder: Path, text: str) -> Manifest:
    (folder / "kernels").mkdir(exist_ok=True)
    (folder / "kernels/scale.py").touch()
    (folder / "kernels.yaml").write_text(text)
    return load(folder / "kernels.yaml")


def test_images_kernels_and_targets_are_those_that_are_left(tmp_path: Path) -> None:
    whole = manifest(tmp_path, MANIFEST.replace("[sm_80, gfx942]", "[sm_80, compute_80, gfx942]") + MORE)
    found = narrowed(whole, ["compute_80", "sm_80"], "--targets")
    assert found.targets == ("sm_80", "compute_80")
    assert [kernel.key for kernel in found.kernels] == ["scale"]
    assert found.images == tuple(image for image in found.images if image.variant in found.variants)
    assert [image.id for image in found.images] == [
        f"scale_fp32_{block}@{target}" for block in (128, 256) for target in ("sm_80", "compute_80")
    ]
    assert all(variant.kernel is found.kernels[0] for variant in found.variants)
    assert narrowed(whole, whole.targets, "--targets") == whole


def test_what_is_for_onnx_runtime_goes_with_its_target(tmp_path: Path) -> None:
    whole = manifest(tmp_path, MANIFEST.replace("kernels:\n", "onnxruntime: {target: sm_80}\nkernels:\n", 1))
    assert narrowed(whole, ["sm_80"], "--targets").onnxruntime == whole.onnxruntime is not None
    assert narrowed(whole, ["gfx942"], "--targets").onnxruntime is None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["gfx94"], "--targets: .*does not have the target 'gfx94'\n  expected: names of sm_80, gfx942"),
        (["sm_80", ""], "--targets: a target without a name"),
    ],
)
def test_another_name_is_refused(tmp_path: Path, names: list[str], said: str) -> None:
    whole = manifest(tmp_path, MANIFEST)
    with pytest.raises(ManifestError) as failure:
        narrowed(whole, names, "--targets")
    assert re.search(said, str(failure.value)), str(failure.value)
