"""A kernel with blocks as maps, axes, constants and exclude, and one for fewer targets: built and packaged."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kiln.engine.state import State
from kiln.errors import ManifestError
from kiln.library import Library
from project import Project

TILE = """\
import triton
import triton.language as tl


@triton.jit
def tile_kernel(
    output_ptr, input_ptr, n_rows, n_cols,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SCALE: tl.constexpr, NEGATE: tl.constexpr, MODE: tl.constexpr,
    EVEN: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offsets = rows[:, None] * n_cols + columns[None, :]
    mask = (rows < n_rows)[:, None] & (columns < n_cols)[None, :]
    x = tl.load(input_ptr + offsets, mask=mask).to(tl.float32) * SCALE
    if NEGATE:
        x = -x
    if MODE == "relu":
        x = tl.maximum(x, 0.0)
    if EVEN:
        x += 1.0
    tl.store(output_ptr + offsets, x, mask=mask)
"""

ONE = """\
import triton
import triton.language as tl


@triton.jit
def one_kernel(output_ptr, BLOCK_SIZE: tl.constexpr):
    tl.store(output_ptr + tl.arange(0, BLOCK_SIZE), 1.0)
"""

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, gfx942]
kernels:
  one:
    source: kernels/one.py
    function: one_kernel
    dtypes: [fp32]
    blocks: [64]
    targets: [gfx942]
    name: one_{dtype}
    group: ones
    signature: "*{dtype}:16"
    grid: [1]
  tile:
    source: kernels/tile.py
    function: tile_kernel
    dtypes: [fp16, fp32]
    axes: {NEGATE: {negated: true, plain: false}, SPLIT: [1, 2]}
    blocks:
      - {tag: wide, BLOCK_M: 16, BLOCK_N: 64, num_warps: 4}
      - {BLOCK_N: 32, BLOCK_M: 32, num_warps: "2 * SPLIT"}
    constants: {MODE: relu, SCALE: 0.5, EVEN: {expression: "BLOCK_M == BLOCK_N"}}
    exclude: [{dtype: fp32, SPLIT: 2}, {NEGATE: true, block: wide}, {dtype: fp16, NEGATE: false, BLOCK_N: 32}]
    name: tile_{dtype}_{NEGATE}_{SPLIT}_{block}
    signature: "*{dtype}:16, *{dtype}:16, i32, i32"
    grid: ["cdiv(n_rows, BLOCK_M)", "cdiv(n_cols, BLOCK_N) * SPLIT"]
    select: n_cols % SPLIT == 0
"""

TILES = [
    "tile_fp16_negated_1_32x32",
    "tile_fp16_negated_2_32x32",
    "tile_fp16_plain_1_wide",
    "tile_fp16_plain_2_wide",
    "tile_fp32_negated_1_32x32",
    "tile_fp32_plain_1_wide",
    "tile_fp32_plain_1_32x32",
]
IMAGES = ["one_fp32@gfx942", *(f"{tile}@{target}" for tile in TILES for target in ("sm_80", "gfx942"))]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("variants") / "scratch", manifest=MANIFEST, tile=TILE, one=ONE)
    project.doit().expect(" 0 failed")
    return project


def facts(project: Project, image: str) -> dict[str, object]:
    variant, target = image.split("@")
    found: dict[str, object] = json.loads(project.read(f"build/images/{target}/{variant}.facts.json"))
    return found


def test_every_combination_that_is_left_is_built_and_no_other(project: Project) -> None:
    built = {name for name in project.files("build/images") if not name.endswith(".json")}
    suffixes = {"sm_80": "cubin", "gfx942": "hsaco"}
    pairs = [image.split("@") for image in IMAGES]
    assert built == {f"{target}/{variant}.{suffixes[target]}" for variant, target in pairs}
    project.doit().expect("^0 built")


def test_options_of_blocks_reach_the_images(project: Project) -> None:
    warps = {"wide": 4, "1_32x32": 2, "2_32x32": 4}
    for image in IMAGES[1:]:
        expected = next(number for end, number in warps.items() if image.split("@")[0].endswith(end))
        found = facts(project, image)
        assert found["threads"] == expected * (32 if image.endswith("sm_80") else 64), image


def test_constants_reach_the_images(project: Project) -> None:
    """Each image differs where a constant does, and equals another's where only an axis for the launch differs."""

    def digest(variant: str) -> object:
        return facts(project, f"{variant}@sm_80")["sha256"]

    assert digest("tile_fp16_plain_1_wide") == digest("tile_fp16_plain_2_wide")
    different = [tile for tile in TILES if tile != "tile_fp16_plain_2_wide"]
    assert len({digest(tile) for tile in different}) == len(different)


def test_each_image_equals_one_whose_constants_stand_in_its_source(project: Project, tmp_path: Path) -> None:
    """The same kernel with defaults in the place of declared constants, and one plain block."""
    source = TILE.replace("SCALE: tl.constexpr", "SCALE: tl.constexpr = 0.5")
    source = source.replace("NEGATE: tl.constexpr", "NEGATE: tl.constexpr = True")
    source = source.replace("MODE: tl.constexpr", 'MODE: tl.constexpr = "relu"')
    source = source.replace("EVEN: tl.constexpr", "EVEN: tl.constexpr = True")
    source = (
        source.replace("BLOCK_M", "BLOCK_SIZE").replace(" BLOCK_N: tl.constexpr,", "").replace("BLOCK_N", "BLOCK_SIZE")
    )
    plain = """\
        version: 1
        library: scratch
        targets: [sm_80, gfx942]
        kernels:
          tile:
            source: kernels/tile.py
            function: tile_kernel
            dtypes: [fp16]
            blocks: [32]
            name: tile_{dtype}_{block}
            signature: "*{dtype}:16, *{dtype}:16, i32, i32"
            grid: [1]
            options: {num_warps: 2}
        """
    other = Project.create(tmp_path / "scratch", manifest=plain, tile=source)
    other.doit("compile").expect()
    for target in ("sm_80", "gfx942"):
        found = facts(project, f"tile_fp16_negated_1_32x32@{target}")["sha256"]
        assert found == facts(other, f"tile_fp16_32@{target}")["sha256"]


def test_records_give_constants_grid_and_order_in_c(project: Project, tmp_path: Path) -> None:
    """A program that links all: each archive holds its target's images, and constants are what was compiled in."""
    program = r"""
#include <scratch/scratch.h>
#include <stdio.h>
int main(void) {
    const struct scratch_image *image = &scratch_tile_fp16_negated_2_32x32__sm_80;
    for (uint32_t i = 0; i < image->constant_count; i++) {
        const struct scratch_constant *constant = &scratch_image_constants(image)[i];
        printf("%s=%s/%d ", scratch_constant_name(constant), scratch_constant_text(constant), (int)constant->value);
    }
    struct scratch_tile_fp16_negated_2_32x32_args args = {0};
    args.n_rows = 33;
    args.n_cols = 65;
    uint32_t grid[3];
    int status = (int)scratch_tile_fp16_negated_2_32x32_grid(&args, grid);
    printf("%s %s ", scratch_image_block(image), scratch_image_group(image));
    printf("%d %u %u %u %d\n", status, grid[0], grid[1], grid[2],
           (int)scratch_tile_fp16_negated_2_32x32_selects(&args));
    printf("%zu %zu\n", scratch__sm_80.count, scratch__gfx942.count);
    for (size_t i = 0; i < scratch__gfx942.count; i++) printf("%s\n", scratch_image_id(scratch__gfx942.images[i]));
    return 0;
}
"""
    (tmp_path / "main.c").write_text(program)
    build = project.folder / "build"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-I", build / "include"]
    command = ["gcc", *flags, tmp_path / "main.c", build / "lib/libscratch.a", "-o", tmp_path / "main"]
    subprocess.run(command, check=True)
    lines = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == (
        "BLOCK_M=32/32 BLOCK_N=32/32 SCALE=0.5/0 NEGATE=True/1 MODE=relu/0 EVEN=True/1 "
        "32x32 tile_fp16_negated_2 0 2 6 1 0"
    )
    assert lines[1] == "7 8"
    assert lines[2:] == [image.partition("@")[0] + "@gfx942" for image in IMAGES if image.endswith("gfx942")]
    header = project.read("build/include/scratch/scratch.h")
    assert re.findall(r"^extern const struct scratch_table (\w+);", header, re.M) == [
        "scratch__sm_80",
        "scratch__gfx942",
    ]
    assert "Axes: SPLIT = 2" in header
    assert "scratch_one_fp32__sm_80" not in header
    for target, count in (("sm_80", 7), ("gfx942", 8)):
        archive = build / f"lib/libscratch_{target}.a"
        members = subprocess.run(["ar", "t", archive], capture_output=True, text=True, check=True).stdout.split()
        assert len([member for member in members if member.endswith(".data.o")]) == count


@pytest.mark.parametrize("features", ["sm_80,gfx942", "sm_80", "gfx942", ""])
def test_the_crate_is_clean_for_every_set_of_targets(project: Project, tmp_path: Path, features: str) -> None:
    """Clippy with warnings as errors: a variant with no image for the chosen target leaves nothing unused behind."""
    command = ["cargo", "clippy", "--offline", "--no-default-features", "--features", features]
    done = subprocess.run(
        [*command, "--", "-D", "warnings"],
        cwd=project.folder / "build/rust/scratch",
        env={**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    variant = project.read("build/rust/scratch/src/variants/tile_fp16_negated_2_32x32.rs")
    assert 'crate::Constant { name: "MODE", value: crate::Value::Text("relu") }' in variant
    assert 'crate::Constant { name: "SCALE", value: crate::Value::Float(0.5) }' in variant
    assert "//! - Axes: `SPLIT = 2`" in variant


def test_an_edit_of_one_block_rebuilds_its_images_only(project: Project) -> None:
    project.edit("kernels.yaml", "BLOCK_N: 64, num_warps: 4", "BLOCK_N: 64, num_warps: 8")
    try:
        ran = project.doit().expect().ran("compile")
        assert set(ran) == {image for image in IMAGES if "wide" in image}
    finally:
        project.edit("kernels.yaml", "BLOCK_N: 64, num_warps: 8", "BLOCK_N: 64, num_warps: 4")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("SPLIT: [1, 2]", "SPLT: [1, 2]", [r"kernels\.yaml:\d+:\d+: .*SPLIT", "did you mean 'SPLT'"]),
        ("MODE: relu", "MOD: relu", [r"kernels\.yaml:\d+:17: .*MOD\b", "did you mean 'MODE'"]),
        ("tag: wide, BLOCK_M: 16", "tag: wide, BLOCKM: 16", [r"kernels\.yaml:\d+:\d+: ", "BLOCK_M"]),
        ("targets: [gfx942]\n", "targets: [gfx90a]\n", [r"kernels\.yaml:10:15: .*gfx90a", "did you mean 'gfx942'"]),
    ],
)
def test_slips_are_told_before_anything_is_built(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    for name in ("one", "tile"):
        (tmp_path / "kernels").mkdir(exist_ok=True)
        (tmp_path / f"kernels/{name}.py").write_text({"one": ONE, "tile": TILE}[name])
    assert MANIFEST.count(old) == 1
    (tmp_path / "kernels.yaml").write_text(MANIFEST.replace(old, new))
    with pytest.raises(ManifestError) as caught:
        library = Library.load(tmp_path / "kernels.yaml", tmp_path / "build", State(tmp_path / "build/state.sqlite"))
        for image in library.images:
            library.request(image)
    message = str(caught.value)
    print(message)
    assert [word for word in words if not re.search(word, message)] == []
