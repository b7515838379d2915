"""What a release is called, where files go in it, and that knowing so much costs the parent of a build nothing."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from kiln.errors import ReleaseError
from kiln.release.names import LEVELS, PACKAGES, Names, check_paths, level_of, placed
from kiln.release.plan import ReleasePlan
from project import REPOSITORY, Project
from release_project import in_child, plan_of


def test_names_of_a_whole_and_of_a_part() -> None:
    whole = Names(library="kernels", version="1.2.0+cu13")
    assert whole.folder == "release/kernels-1.2.0+cu13"
    assert whole.tar == "release/kernels-1.2.0+cu13.tar"
    part = Names(library="kernels", version="1.2.0", part=("sm_90a", "gfx942"))
    assert part.statement == "release/kernels-1.2.0-sm_90a-gfx942.intoto.json"
    assert (part.envelope, part.sizes) == (
        "release/kernels-1.2.0-sm_90a-gfx942.dsse.json",
        "release/kernels-1.2.0-sm_90a-gfx942.sizes.txt",
    )


def test_outputs_are_sorted_whatever_the_order_of_the_plan() -> None:
    names = Names(library="k", version="1.0.0")
    assert names.outputs(["lib/libk.a", "include/k/k.h"]) == names.outputs(["include/k/k.h", "lib/libk.a"])
    assert names.outputs([])[-3:] == ("release/k-1.0.0.tar", "release/k-1.0.0.intoto.json", "release/k-1.0.0.sizes.txt")


@pytest.mark.parametrize(
    ("output", "path", "level"),
    [
        ("images/sm_90a/softmax.cubin", "images/sm_90a/softmax.cubin", "device"),
        ("images/sm_90a/softmax.facts.json", None, None),
        ("reports/sm_90a/softmax.json", None, None),
        ("objects/softmax__sm_90a.data.o", None, None),
        ("bundles/softmax.fatbin", "bundles/softmax.fatbin", "device"),
        ("include/kernels/kernels.h", "include/kernels/kernels.h", "device"),
        ("lib/libkernels.a", "lib/libkernels.a", "host"),
        ("lib/pkgconfig/kernels.pc", "lib/pkgconfig/kernels.pc", "device"),
        ("src/launch.c", "share/kernels/src/launch.c", "device"),
        ("share/kernels/source_map.json", "share/kernels/source_map.json", "device"),
        ("onnxruntime/triton_kernel_infos.a", "onnxruntime/triton_kernel_infos.a", "host"),
        ("onnxruntime/triton_kernel_infos.h", "onnxruntime/triton_kernel_infos.h", "device"),
        ("rust/kernels/src/lib.rs", "rust/kernels/src/lib.rs", "device"),
    ],
)
def test_where_outputs_go(output: str, path: str | None, level: str | None) -> None:
    assert placed(output, "kernels") == path
    assert path is None or level_of(path) == level


@pytest.mark.parametrize(
    "paths",
    [
        ["/a"],
        ["a/../b"],
        ["./a"],
        ["a//b"],
        ["a/"],
        [""],
        ["a\\b"],
        ["ü"],
        ["a\nb"],
        ["a\x7fb"],
        ["a", "b", "a"],
        ["a", "a/b/c"],
        ["manifest.json/x", "manifest.json"],
    ],
)
def test_paths_that_a_release_cannot_hold(paths: list[str]) -> None:
    with pytest.raises(ReleaseError):
        check_paths(paths)


def test_paths_that_it_can() -> None:
    check_paths(["a b/c (1)", "a b/d%C3", "a", "b/c/d", "b/c.d"])


def test_a_plan_comes_to_a_child_with_paths(release_library: Project, plan: ReleasePlan) -> None:
    own = plan_of(release_library)
    assert pickle.loads(pickle.dumps(own)).files == own.files
    build = release_library.folder / "build"
    assert all(file.file.is_file() for file in in_child(own, build).files)
    assert {file.level for file in plan.files} == set(LEVELS)


def test_knowing_names_and_plans_imports_nothing_heavy() -> None:
    """The parent of a build makes the plan, and its child the release: only that one reads what PACKAGES bring."""
    code = "import sys, kiln.release.plan, kiln.release_jobs; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(REPOSITORY / "tools")},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {*PACKAGES.values(), "google", "in_toto_attestation", "triton", "tarfile", "uuid"}
    assert heavy & set(done.stdout.split()) == set()
