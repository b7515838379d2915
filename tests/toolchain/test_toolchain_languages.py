"""Each language has its targets: what its compiler does not serve is refused up front, with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.library import read_manifest
from kiln.toolchain.targets import TARGETS
from other_tritons import BUILDABLE

KERNELS = {
    "triton": "source: k.py\n    function: f\n",
    "cuda": 'source: k.cu\n    function: "f<{T}>"\n    threads: 128\n',
}

TRITON_TOO = (
    f'  other:\n    {KERNELS["triton"]}    dtypes: [fp32]\n    name: "other_{{dtype}}"\n    signature: "*{{dtype}}"\n'
    "    grid: [1]\n"
)


def read(folder: Path, language: str, targets: str, narrowed: str = "") -> None:
    """Read a manifest with a kernel in one language."""
    for name in ("k.py", "k.cu"):
        (folder / name).touch()
    (folder / "kernels.yaml").write_text(
        f"version: 1\nlibrary: l\ntargets: [{targets}]\nkernels:\n  k:\n    {KERNELS[language]}    dtypes: [fp32]\n"
        f'    blocks: [64]\n    name: "k_{{dtype}}_{{block}}"\n    signature: "*{{dtype}}"\n    grid: [1]\n{narrowed}'
    )
    read_manifest(folder / "kernels.yaml")


@pytest.mark.parametrize("language", KERNELS)
def test_all_that_a_compiler_serves_are_taken(tmp_path: Path, language: str) -> None:
    nvidia = [name for name, target in TARGETS.items() if target.vendor == "nvidia"]
    fit = BUILDABLE if language == "triton" else nvidia
    read(tmp_path, language, ", ".join(fit))


@pytest.mark.parametrize(
    ("language", "targets", "narrowed", "words"),
    [
        (
            "cuda",
            "sm_80, gfx942",
            "",
            [":3:18: the kernel k is in CUDA C++", "for gfx942", "GPUs of NVIDIA only", "remove gfx942 from"],
        ),
        ("cuda", "sm_80, gfx942", TRITON_TOO, ["the kernel k is", "for gfx942", "give the kernel `targets: [sm_80]`"]),
        ("cuda", "gfx942", "", ["other targets: sm_75, "]),
        ("triton", "sm_90", "", [":3:11: the kernel k is in Triton", "for sm_90:", "write sm_90a", "compute_80"]),
        ("triton", "sm_100f", "", ["for sm_100f:", "one architecture exactly", "write sm_100a"]),
        ("triton", "sm_80, sm_88", "", ["Triton does not compile for it", "remove sm_88 from `targets`"]),
        ("triton", "sm_80, compute_90", "", ["PTX that Triton writes", "remove compute_90 from `targets`"]),
        ("triton", "sm_80, sm_90", "    targets: [sm_80, sm_90]\n", [":13:5: the kernel k", "write sm_90a"]),
    ],
)
def test_others_are_refused(tmp_path: Path, language: str, targets: str, narrowed: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, language, targets, narrowed)
    message = str(caught.value)
    print(message)
    assert [word for word in words if word not in message] == []
