"""A budget that nothing can be held against is refused where it stands: a PTX has no registers, spills or stack."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from kiln.errors import ManifestError
from kiln.library import read_manifest
from kiln.manifest.model import Manifest

KERNEL = """\
  {key}:
    source: k.py
    function: f
    dtypes: [fp32]
    name: "{key}_{{dtype}}"
    signature: "*{{dtype}}"
    grid: [1]
"""


def read(
    folder: Path, targets: str, library: str, kernel: str, narrowed: str = "", only: Collection[str] | None = None
) -> Manifest:
    """A library of `budgets`, with a kernel `k` that has its own, and may have fewer targets, and another one `l`."""
    (folder / "k.py").touch()
    lines = ["version: 1", "library: l", f"targets: [{targets}]", *([f"budgets: {library}"] if library else [])]
    own = "".join(f"    {line}\n" for line in (f"budgets: {kernel}" if kernel else "", narrowed) if line)
    text = "\n".join([*lines, "kernels:\n"]) + KERNEL.format(key="k") + own + KERNEL.format(key="l")
    (folder / "kernels.yaml").write_text(text)
    return read_manifest(folder / "kernels.yaml", only)


@pytest.mark.parametrize(
    ("targets", "library", "kernel", "narrowed", "words"),
    [
        (
            "sm_80, compute_80",
            "{registers: {sm_80: 64, compute_80: 64}}",
            "",
            "",
            [
                ":4:46: the budget budgets.registers.compute_80 is held against nothing",
                "a PTX has no registers until a driver compiles it",
                "it is for compute_80",
                "remove it",
            ],
        ),
        ("sm_80, compute_80", "", "{spills: {compute_80: 0}}", "", [":12:36: ", "kernels.k.budgets.spills.compute_80"]),
        (
            "sm_80, compute_75, compute_80",
            "",
            "{stack: 0}",
            "targets: [compute_75, compute_80]",
            [":12:22: the budget kernels.k.budgets.stack ", "it is for compute_75, compute_80"],
        ),
        ("compute_80", "{spills: 0}", "", "", [":4:19: the budget budgets.spills ", "it is for compute_80"]),
    ],
)
def test_refusals(tmp_path: Path, targets: str, library: str, kernel: str, narrowed: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, targets, library, kernel, narrowed)
    print(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("library", "kernel"),
    [
        ("{registers: 64, spills: 0, stack: 0}", ""),
        ("{spills: {sm_80: 0}}", "{stack: {sm_80: 0}}"),
        ("", "{registers: 64}"),
        ("{size: {compute_80: 9}}", "{shared: {compute_80: 9}, size: 9}"),
    ],
)
def test_what_some_image_is_held_against_is_taken(tmp_path: Path, library: str, kernel: str) -> None:
    read(tmp_path, "sm_80, compute_80", library, kernel)


@pytest.mark.parametrize("only", [None, ["k"]])
def test_a_budget_of_the_library_may_leave_a_kernel_out(tmp_path: Path, only: list[str] | None) -> None:
    """Of a library whose other kernels it is for, also where these are not loaded."""
    found = read(tmp_path, "sm_80, compute_80", "{registers: 64}", "", "targets: [compute_80]", only)
    assert found.kernels[0].targets == ("compute_80",)
