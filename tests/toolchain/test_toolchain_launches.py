"""What kernels.yaml says that a target cannot have is refused before anything is built, where it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import cuda_project
from kiln.errors import ManifestError
from kiln.library import read_manifest
from kiln.manifest.model import Manifest
from project import KERNEL, MANIFEST, Project


def read(folder: Path, targets: str, lines: str, manifest: str = MANIFEST, old: str = "", new: str = "") -> Manifest:
    """Read the scratch manifest for other targets, with lines of a kernel added and something replaced."""
    (folder / "kernels").mkdir()
    (folder / "kernels/scale.py").write_text(KERNEL)
    (folder / "kernels/scale.cu").touch()
    for before, after in (("[sm_80, gfx942]", f"[{targets}]"), ("[sm_80]", f"[{targets}]"), (old, new)):
        manifest = manifest.replace(before, after) if before else manifest
    (folder / "kernels.yaml").write_text(manifest + (f"    {lines}\n" if lines else ""))
    return read_manifest(folder / "kernels.yaml")


BLOCKS = "[128, 256]"


@pytest.mark.parametrize(
    ("targets", "lines", "old", "new", "words"),
    [
        (
            "sm_80, gfx942",
            "options: {num_warps: 32}",
            "",
            "",
            [
                ":14:15: scale_fp32_128 cannot be built for gfx942: a block would have 2048 threads",
                "at most 1024 threads in a block on gfx942",
                "num_warps: 32, with 64 threads a warp",
                "num_warps to 16 or less; or give the kernel `targets: [sm_80]`",
            ],
        ),
        ("sm_80", 'options: {num_warps: "block // 4"}', "", "", [":14:15: scale_fp32_256", "lower num_warps to 32"]),
        ("gfx1100", "", BLOCKS, "[{BLOCK_SIZE: 128, num_warps: 64}]", [":9:32: scale_fp32_128 ", "32 or less"]),
        ("sm_80", "", "kernels:", "defaults: {num_warps: 64}\nkernels:", [":6:3: ", "num_warps: 64, from `defaults`"]),
        (
            "sm_80, sm_90a",
            "options: {num_ctas: 2}",
            "",
            "",
            [
                ":14:15: ",
                "for sm_80: it has no clusters",
                "from 9.0 on",
                "leave num_ctas out; or",
                "`targets: [sm_90a]`",
            ],
        ),
        ("gfx942", "options: {num_ctas: 2}", "", "", ["for gfx942: it has no clusters", "remedy: leave num_ctas out"]),
        ("sm_80", "", BLOCKS, "[{BLOCK_SIZE: 128, num_ctas: 2}]", [":9:32: scale_fp32_128 "]),
        ("sm_90a", "options: {num_ctas: 3}", "", "", ["Triton makes no clusters of 3 blocks", "a power of two"]),
        ("sm_90a, sm_120a", "options: {num_ctas: 16}", "", "", ["no clusters of 16 blocks", "at most 8 on sm_120a"]),
        ("sm_89", "options: {launch_pdl: true}", "", "", ["no programmatic dependent launch", "launch_pdl: true"]),
        ("gfx942", "options: {launch_pdl: true}", "", "", ["leave launch_pdl out"]),
        (
            "compute_80, compute_89",
            "options: {ptx_version: 70}",
            "",
            "",
            ["for compute_89: PTX ISA 7.0 does not know it yet", "at least 78", "raise it to 78; or", "[compute_80]"],
        ),
    ],
)
def test_refusals(tmp_path: Path, targets: str, lines: str, old: str, new: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, targets, lines, old=old, new=new)
    print(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("targets", "lines"),
    [
        ("sm_80, gfx1100", "options: {num_warps: 32}"),
        ("gfx90a, gfx942", "options: {num_warps: 16}"),
        ("sm_90a, sm_100a", "options: {num_ctas: 16, launch_pdl: true}"),
        ("sm_80, gfx942", "options: {num_ctas: 1, launch_pdl: false, launch_cooperative_grid: true}"),
        ("compute_75, compute_80, sm_89, gfx942", "options: {ptx_version: 70}"),
    ],
)
def test_what_every_target_has_is_taken(tmp_path: Path, targets: str, lines: str) -> None:
    read(tmp_path, targets, lines)


@pytest.mark.parametrize(
    ("targets", "lines", "words"),
    [
        (
            "sm_80, sm_90",
            "shared: 170000",
            [
                ":15:5: scale_fp32_128 cannot be built for sm_80: ",
                "a block would have 170000 bytes of dynamic shared memory",
                "at most 166912 bytes on sm_80",
                "`targets: [sm_90]`",
            ],
        ),
        ("sm_86", "shared: block * 1000", ["128000 bytes", "at most 101376 bytes", "remedy: use smaller blocks"]),
        ("sm_80", "shared: 0 - block", [":15:13: `kernels.scale.shared` is negative for scale_fp32_128", "-128"]),
        ("sm_86, sm_90", "options: {num_ctas: 2}", ["for sm_86: it has no clusters"]),
        ("compute_80, compute_88", "options: {ptx_version: 80}", ["for compute_88: PTX ISA 8.0 does not know it"]),
    ],
)
def test_refusals_in_cuda(tmp_path: Path, targets: str, lines: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, targets, lines, cuda_project.MANIFEST)
    print(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []


def test_threads_that_are_computed_are_checked_before_a_build(tmp_path: Path) -> None:
    manifest = cuda_project.MANIFEST.replace("threads: block", "threads: block * 16")
    with pytest.raises(ManifestError, match=r":14:14: .*from 1 to 1024|2048, from 'block \* 16'"):
        read(tmp_path, "sm_80", "", manifest)


def test_a_cluster_of_three_is_cuda_cpps_own_affair(tmp_path: Path) -> None:
    read(tmp_path, "sm_90", "options: {num_ctas: 3}", cuda_project.MANIFEST)


def test_a_build_stops_before_it_begins(tmp_path: Path) -> None:
    """Exit code 3, as doit has for errors before a run; nothing is compiled, for other targets neither."""
    project = Project.create(tmp_path / "p")
    project.edit("kernels.yaml", "    grid:", "    options: {num_warps: 32}\n    grid:")
    for command in ((), ("list",), ("compile:scale_fp32_128@sm_80",)):
        project.doit(*command).expect(r"^ERROR: kernels\.yaml:13:15: .* for gfx942: a block would have 2048", code=3)
    assert project.files() == set()
