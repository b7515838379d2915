"""Every release of Triton in the supported range builds the same library: what changes between them changes no fact
that a caller relies on, and what one of them cannot do is refused before anything is built."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kiln.compilers.request import AMD_ONLY, NVIDIA_ONLY
from kiln.digests import FileDigests
from kiln.manifest.schema import OPTIONS
from kiln.toolchain.fp8 import fp8_dtypes
from kiln.toolchain.targets import TARGETS
from kiln.toolchain.tools import Triton
from kiln.toolchain.triton_releases import RELEASES
from other_tritons import HERE, INSTALLED, REPOSITORY, folder_of, python_of, python_with
from project import KERNEL, MANIFEST, Project

LIBRARY = """\
version: 1
library: scratch
targets: [sm_80, sm_90a, compute_80, gfx942]
defaults: {num_warps: 4}
kernels:
  row_sum:
    source: kernels/row_sum.py
    function: row_sum_kernel
    dtypes: [fp16]
    blocks: [1024]
    name: row_sum_{dtype}
    signature: "*fp32:16, *{dtype}:16, i32, fp32, i1"
    grid: [n_rows, 1, 1]
    inputs: {n_rows: i32}
  square:
    source: kernels/square.py
    function: square_kernel
    dtypes: [fp16]
    blocks: [64]
    name: square_{dtype}
    signature: "*fp32:16, *{dtype}:16, i64:1, i64"
    grid: [1]
  copy_tile:
    source: kernels/copy_tile.py
    function: copy_tile_kernel
    dtypes: [fp32]
    targets: [sm_90a]
    blocks: [64]
    name: copy_tile_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32, i32"
    grid: [1]
  pair:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp16]
    targets: [sm_90a]
    blocks: [2048]
    options: {num_ctas: 2, num_warps: 8}
    name: pair_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""
ROW_SUM = """\
import triton
import triton.language as tl


@triton.jit
def scaled(x, factor):
    return x * factor


@triton.jit
def row_sum_kernel(output_ptr, input_ptr, n_columns, factor, negate, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK_SIZE)
    x = tl.load(input_ptr + row * n_columns + columns, mask=columns < n_columns, other=0.0)
    total = scaled(tl.sum(x.to(tl.float32), axis=0), factor)
    tl.store(output_ptr + row, -total if negate else total)
"""
SQUARE = """\
import triton
import triton.language as tl


@triton.jit
def square_kernel(output_ptr, input_ptr, column_stride, row_stride, BLOCK_SIZE: tl.constexpr):
    rows = tl.arange(0, BLOCK_SIZE)[:, None]
    columns = tl.arange(0, BLOCK_SIZE)[None, :]
    x = tl.load(input_ptr + rows * row_stride + columns * column_stride)
    tl.store(output_ptr + rows * BLOCK_SIZE + columns, tl.dot(x, x))
"""
COPY_TILE = """\
import triton
import triton.language as tl


@triton.jit
def copy_tile_kernel(output_ptr, input_ptr, n_rows, n_columns, BLOCK_SIZE: tl.constexpr):
    tile = tl.make_tensor_descriptor(input_ptr, [n_rows, n_columns], [BLOCK_SIZE, 1], [BLOCK_SIZE, BLOCK_SIZE])
    places = tl.arange(0, BLOCK_SIZE)
    tl.store(output_ptr + places[:, None] * BLOCK_SIZE + places[None, :], tile.load([0, 0]))
"""

KERNELS = {"row_sum": ROW_SUM, "square": SQUARE, "copy_tile": COPY_TILE, "scale": KERNEL}

WITHOUT_REFUSAL = """\
import sys
from doit.__main__ import main
from kiln.toolchain import refusals

refusals.check_release = lambda *given: None
sys.exit(main())
"""
"""doit that tries what the installed Triton is said to lack"""

# Offset and size of each parameter, from the signatures: a promised 1 is none, i1 is a byte; then what Triton adds.
POINTER = 8
LAYOUTS = {
    "row_sum_fp16": [(0, 8), (8, 8), (16, 4), (20, 4), (24, 1)],
    "square_fp16": [(0, 8), (8, 8), (16, 8)],
    "copy_tile_fp32": [(0, 8), (8, 8), (16, 4), (20, 4)],
    "pair_fp16": [(0, 8), (8, 8), (16, 4)],
}
ENTRIES = {
    "row_sum_fp16": "row_sum_kernel",
    "square_fp16": "square_kernel",
    "copy_tile_fp32": "copy_tile_kernel",
    "pair_fp16": "scale_kernel",
}


@dataclass(frozen=True, kw_only=True)
class Built:
    """The library as one release of Triton builds it."""

    release: str
    python: str
    project: Project
    facts: dict[tuple[str, str], dict[str, Any]]
    """by variant and target"""


@pytest.fixture(scope="module", params=HERE)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp(f"triton-{request.param}")
    python = python_of(request.param, folder / "python")
    project = replace(Project.create(folder / "project", manifest=LIBRARY, **KERNELS), python=python)
    project.doit("validate").expect(r"^20 built, 0 up to date, 0 failed")
    images = project.folder / "build" / "images"
    facts = {
        (path.name.removesuffix(".facts.json"), path.parent.name): json.loads(path.read_text("utf-8"))
        for path in images.rglob("*.facts.json")
    }
    return Built(release=request.param, python=python, project=project, facts=facts)


def test_the_installed_release_is_among_them_and_each_is_what_it_is_called(built: Built) -> None:
    triton = Triton(folder=folder_of(built.release))
    assert triton.version.startswith(f"{built.release}.")
    said = {facts["tools"]["triton"] for facts in built.facts.values()}
    assert said == {triton.version}


def test_parameters_are_those_of_the_signature_and_two_for_scratch(built: Built) -> None:
    for (variant, target), facts in built.facts.items():
        layout = LAYOUTS[variant]
        end = layout[-1][0] + layout[-1][1]
        hidden = -(-end // POINTER) * POINTER
        assert [(one["offset"], one["size"], one["role"]) for one in facts["parameters"]] == [
            *((offset, size, "user") for offset, size in layout),
            (hidden, POINTER, "global_scratch"),
            (hidden + POINTER, POINTER, "profile_scratch"),
        ], (variant, target)


def test_launches_are_the_same_whichever_release_built(built: Built) -> None:
    for (variant, target), facts in built.facts.items():
        warp_size = 64 if target == "gfx942" else 32
        warps = 8 if variant == "pair_fp16" else 4
        assert facts["entry"] == ENTRIES[variant]
        assert facts["arch"] == target
        assert (facts["warps"], facts["warp_size"], facts["threads"]) == (warps, warp_size, warps * warp_size)
        assert facts["cluster"] == ([2, 1, 1] if variant == "pair_fp16" else [1, 1, 1])
        # All kernels but the last share values between warps, or tiles.
        assert (facts["shared_dynamic"] > 0, facts["shared_static"]) == (variant != "pair_fp16", 0), (variant, target)
        scratch = (128, 128) if variant == "copy_tile_fp32" else (0, 1)
        assert (facts["global_scratch_bytes"], facts["global_scratch_align"]) == scratch, (variant, target)
        assert (facts["profile_scratch_bytes"], facts["cooperative"], facts["pdl"]) == (0, False, False)


def test_ptx_is_of_the_isa_that_drivers_in_use_read(built: Built) -> None:
    isas = {target: facts["ptx_isa"] for (_, target), facts in built.facts.items()}
    assert isas == {"sm_80": None, "sm_90a": None, "compute_80": "8.0", "gfx942": None}
    assert ".version 8.0\n.target sm_80\n" in built.project.read("build/images/compute_80/square_fp16.ptx")


def test_the_ptxas_that_is_digested_is_the_one_that_assembles(built: Built) -> None:
    """For every capability: Triton itself says which file it calls, and what its version is."""
    program = (
        "import json, sys\n"
        "from triton.backends.nvidia.compiler import get_ptxas\n"
        "found = {arch: get_ptxas(int(arch)) for arch in sys.argv[1:]}\n"
        "print(json.dumps({arch: [tool.path, str(tool.version)] for arch, tool in found.items()}))\n"
    )
    targets = [target for target in TARGETS.values() if target.kind == "cubin" and target.triton]
    command = [built.python, "-c", program, *(str(target.arch) for target in targets)]
    found = json.loads(subprocess.check_output(command, cwd=built.project.folder, text=True))
    triton, digests = Triton(folder=folder_of(built.release)), FileDigests({})
    for target in targets:
        path, _ = found[str(target.arch)]
        assert triton.components(target, digests)["ptxas"] == digests.of(Path(path)), target.name
    for variant, target in built.facts:
        if TARGETS[target].kind == "cubin":
            # Newer ones write more of their version into what they make than they answer.
            version = found[str(TARGETS[target].arch)][1]
            assert re.match(rf"{re.escape(version)}(\.|$)", built.facts[variant, target]["tools"]["ptxas"])


def test_the_table_of_differences_is_what_the_package_says(built: Built) -> None:
    program = (
        "import dataclasses, json, sys\n"
        "from triton.backends.amd.compiler import HIPBackend, HIPOptions\n"
        "from triton.backends.compiler import GPUTarget\n"
        "from triton.backends.nvidia.compiler import CUDABackend, CUDAOptions, get_ptxas, ptx_get_version\n"
        "def fp8(arch, warp_size):\n"
        "    kinds = (CUDABackend, 'cuda') if isinstance(arch, int) else (HIPBackend, 'hip')\n"
        "    return kinds[0](GPUTarget(kinds[1], arch, warp_size)).parse_options({}).supported_fp8_dtypes\n"
        "names = [[field.name for field in dataclasses.fields(kind)] for kind in (CUDAOptions, HIPOptions)]\n"
        "dtypes = [fp8(*target) for target in json.loads(sys.argv[1])]\n"
        "print(json.dumps([ptx_get_version(get_ptxas(80).version), dtypes, *names]))\n"
    )
    release = Triton(folder=folder_of(built.release)).release
    targets = [target for name, target in TARGETS.items() if target.triton and name not in release.lacks]
    asked = json.dumps([[target.arch, target.warp_size] for target in targets])
    output = subprocess.check_output([built.python, "-c", program, asked], cwd=built.project.folder, text=True)
    newest_ptx, dtypes, nvidia, amd = json.loads(output)
    assert newest_ptx == release.newest_ptx
    for target, known in zip(targets, dtypes, strict=True):
        assert set(known) == set(fp8_dtypes(target)), target.name
    # Every option that kernels.yaml has is one of each release: an unknown one would be ignored.
    for option in OPTIONS:
        assert option in AMD_ONLY or option in nvidia, option
        assert option in NVIDIA_ONLY or option in amd, option


def test_targets_that_a_release_lacks_are_those_that_it_cannot_build(built: Built) -> None:
    """Refused before a build; and tried, with the refusal set aside."""
    release = Triton(folder=folder_of(built.release)).release
    every = [name for name in TARGETS if any(name in other.lacks for other in RELEASES.values())]
    lacks = [name for name in every if name in release.lacks]
    manifest = MANIFEST.replace("sm_80, gfx942", ", ".join(every)).replace("[128, 256]", "[128]")
    project = Project.create(built.project.folder.with_name("lacks"), manifest=manifest)
    project = replace(project, python=built.python)
    if lacks:
        project.doit("list").expect(
            rf"^ERROR: kernels.yaml:3:\d+: the kernel scale cannot be built for {lacks[0]}: Triton {built.release}\.\d+"
            ", which is installed, does not know it$",
            rf"^  remedy: install Triton .*, or take {lacks[0]} out of `targets`$",
            code=3,
        )
    result = project.run_python("-c", WITHOUT_REFUSAL, "--continue", "compile")
    result.expect(f"{len(every) - len(lacks)} built, 0 up to date, {len(lacks)} failed", code=1 if lacks else 0)
    assert sorted(result.ran("compile")) == sorted(f"scale_fp32_128@{name}" for name in every if name not in lacks)


@pytest.mark.parametrize("release", [release for release in HERE if release != INSTALLED])
def test_what_triton_visits_is_watched(tmp_path: Path, release: str) -> None:
    """The check of the closure hooks into Triton's front end, whose insides are no interface: its own tests say."""
    done = subprocess.run(
        [
            python_of(release, tmp_path / "python"),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/compilers/test_compilers_triton_visits.py",
        ],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and " passed in " in done.stdout, done.stdout


def test_names_that_a_release_lacks_say_so_at_their_line(tmp_path: Path) -> None:
    """Triton's language grows: what an older release does not have yet is an error with the line and the release."""
    text = KERNEL.replace("x * 2", "tl.name_of_a_later_release(x)")
    manifest = MANIFEST.replace("[sm_80, gfx942]", "[sm_80]").replace("[128, 256]", "[128]")
    project = Project.create(tmp_path / "project", manifest=manifest, scale=text)
    replace(project, python=python_of(HERE[0], tmp_path / "python")).doit("compile").expect(
        r"^  kernels/scale\.py:10:36: AttributeError: .*'triton\.language' has no attribute 'name_of_a_later_release'$",
        rf"^    remedy: Triton {HERE[0]}\.\d+ is installed: correct the name, or use a release that has it$",
        r"^  stage: front end$",
        code=1,
    )


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0.0"])
def test_other_releases_are_refused_with_the_range(tmp_path: Path, version: str) -> None:
    """By a package that holds nothing but its version: none of it is imported."""
    package = tmp_path / "packages" / "triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = '{version}'\nraise SystemExit('imported')\n")
    project = replace(Project.create(tmp_path / "project"), python=python_with(package.parent, tmp_path / "python"))
    project.doit().expect(
        rf"^ERROR: {package}: Kiln does not build with the Triton that is installed$",
        r"^  expected: Triton 3\.6 to 3\.9$",
        rf"^  actual: Triton {version}$",
        r'^  remedy: install one of them into the Python that runs Kiln: pip install "triton>=3\.6,<3\.10"$',
        code=3,
    )


def test_an_isa_that_its_ptxas_does_not_know_is_refused(built: Built) -> None:
    newest = Triton(folder=folder_of(built.release)).release.newest_ptx
    text = LIBRARY.replace("{num_warps: 4}", f"{{num_warps: 4, ptx_version: {newest + 1}}}")
    project = Project.create(built.project.folder.with_name("isa"), manifest=text, **KERNELS)
    isa = f"{(newest + 1) // 10}\\.{(newest + 1) % 10}"
    replace(project, python=built.python).doit("list").expect(
        rf"^ERROR: kernels.yaml:6:3: row_sum_fp16 cannot be built for compute_80: the ptxas of Triton {built.release}\."
        rf"\d+, which is installed, knows no PTX ISA {isa}$",
        rf"^  expected: ptx_version of at most {newest} with that Triton$",
        code=3,
    )
