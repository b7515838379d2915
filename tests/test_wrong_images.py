"""Images that are not what was declared, or that no target can launch: made by real compilers, through doit.

Nothing of them is kept or packaged, and the message names the field with what was expected and what was found.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import cuda_project
from other_tritons import link, python_with
from project import KERNEL, MANIFEST, REPOSITORY, Project

# -- Triton with another ptxas, and with another mind about AMD's processors

PTXAS = """\
#!/bin/bash
# Does as it is told but for some kernels, of which it makes something else.
arguments=("$@")
for index in "${{!arguments[@]}}"; do
    [[ ${{arguments[index]}} == *.ptx ]] && input=${{arguments[index]}} && place=$index
done
[[ -z $input ]] && exec {real} "$@"
cp "$input" "$input.changed.ptx"
arguments[place]=$input.changed.ptx
case $(grep -o '\\.entry [a-z]*' "$input") in
*arch) arguments=("${{arguments[@]/sm_80/sm_86}}") ;;
*name) sed -i s/name_kernel/other_kernel/g "$input.changed.ptx" ;;
*parameters) sed -i -E 's/\\.param \\.u32 (parameters_kernel_param_2)/.param .u64 \\1/' "$input.changed.ptx" ;;
*count) sed -i -E 's/(\\.param .*count_kernel_param_0,)/.param .u64 more,\\n\\1/' "$input.changed.ptx" ;;
*threads) sed -i 's/\\.reqntid 128/.reqntid 512/' "$input.changed.ptx" ;;
esac
{real} "${{arguments[@]}}"
"""

MADE = {
    "arch": ["arch: the image is for another architecture", "expected: sm_80", "actual: sm_86"],
    "name": ["reports: entry", "expected: name_kernel, by the compiler", "actual: other_kernel, by the image"],
    "parameters": [r"parameters\[2\]\.size", "expected: 4 bytes", "actual: 8 bytes"],
    "count": ["number of parameters", "expected: 3 from the signature", "actual: 6"],
    "threads": ["threads: the image demands another number", "expected: 128: 4 warps of 32", "actual: 512"],
}


def other_triton(folder: Path) -> Path:
    """A folder with a Triton that is this Python's own but for its ptxas and its AMD backend."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    real, made = Path(spec.origin).parent, folder / "triton"
    link(real, made, {"backends/nvidia/bin/ptxas", "backends/amd/compiler.py"})
    ptxas = made / "backends/nvidia/bin/ptxas"
    ptxas.write_text(PTXAS.format(real=real / "backends/nvidia/bin/ptxas"))
    ptxas.chmod(0o755)
    text = (real / "backends/amd/compiler.py").read_text()
    asked = "args = {'arch': knobs.runtime.override_arch or self.target.arch}"
    assert asked in text
    (made / "backends/amd/compiler.py").write_text(text.replace(asked, "args = {'arch': 'gfx90a'}"))
    return folder


def test_a_compiler_that_makes_something_else_is_found_out(tmp_path: Path) -> None:
    """One that is asked for sm_80 and gfx942, ends with 0, and leaves a sound image of another kernel."""
    declared = MANIFEST.partition("kernels:\n")[2].replace("[128, 256]", "[128]")
    kernels = {name: KERNEL.replace("scale_kernel", f"{name}_kernel") for name in (*MADE, "sound")}
    manifest = (
        MANIFEST.partition("kernels:\n")[0]
        + "kernels:\n"
        + "".join(declared.replace("scale", name) + "    targets: [sm_80]\n" for name in kernels)
    )
    manifest += declared + "    targets: [gfx942]\n"
    project = Project.create(tmp_path / "scratch", manifest=manifest, scale=KERNEL, **kernels)
    python = python_with(other_triton(tmp_path / "packages"), tmp_path / "python")
    result = replace(project, python=python).doit("--continue", "compile").expect("1 built, 0 up to date", code=1)
    assert result.ran("compile") == ["sound_fp32_128@sm_80"]
    blocks = result.output.split("FAILED compile:")
    for name, words in MADE.items():
        (block,) = [each for each in blocks if each.startswith(f"{name}_fp32_128@sm_80")]
        replace(result, output=block).expect(*words, code=1)
    (block,) = [each for each in blocks if each.startswith("scale_fp32_128@gfx942")]
    replace(result, output=block).expect("arch: ", "expected: gfx942", "actual: gfx90a", code=1)
    assert project.files("build/images") == {f"sm_80/sound_fp32_128.{suffix}" for suffix in ("cubin", "facts.json")}
    # The real one makes them, for its content is another.
    project.doit("compile").expect(f"{len(kernels) + 1} built, 0 up to date, 0 failed")


# -- nvcc

CHANGED = 'case "$*" in *-cubin*) sed -i -E "{change}" ../image.ptx;; esac; exec "$REAL" "$@"'
CUDA_MADE = {
    "name": (
        "s/_Z5scaleIfLi128EEvPT_S0_i/other/g",
        ["reports: entry", "expected: _Z5scaleIfLi128EEvPT_S0_i, by the compiler", "actual: other, by the image"],
    ),
    "parameters": (
        r"s/\\.param \\.u32 (_Z5scale\\w*param_2)/.param .u64 \\1/",
        [r"parameters\[2\]\.size", "expected: 4 bytes", "actual: 8 bytes"],
    ),
    "threads": (
        r"s/^\\{/.reqntid 512, 1, 1\\n{/",
        ["threads: ", "expected: 128, the `threads` of kernels.yaml", "actual: 512"],
    ),
}


@pytest.mark.parametrize("case", CUDA_MADE)
def test_an_nvcc_that_makes_something_else_is_found_out(tmp_path: Path, case: str) -> None:
    change, words = CUDA_MADE[case]
    project = cuda_project.create(tmp_path / "scratch")
    home = cuda_project.fake(tmp_path / "cuda", CHANGED.format(change=change))
    result = project.doit("compile", CUDA_HOME=home).expect(" 1 failed", code=1)
    result.expect("scale_fp32_128@sm_80", *words, code=1)
    assert project.files("build/images") == set()


# -- what a target cannot launch

MATMUL = """\
version: 1
library: scratch
targets: [sm_80, sm_90a, gfx942]
kernels:
  matmul:
    source: kernels/matmul.py
    function: matmul_kernel
    dtypes: [fp16]
    blocks: [{BLOCK_M: 128, BLOCK_N: 256, BLOCK_K: 64, num_warps: 8, num_stages: 5}]
    constants: {GROUP_M: 8, EVEN_K: true}
    name: matmul_{dtype}
    signature: >-
      *{dtype}:16, *{dtype}:16, *{dtype}:16, i32, i32:16, i32:16, i32:16, i32:1, i32:16, i32:1, i32:16, i32:1, fp32
    grid: ["cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"]
"""

SHARED = {"sm_80": (166912, 196608), "sm_90a": (232448, 245760), "gfx942": (65536, 196608)}
"""target -> bytes of shared memory that a block may have, and that this one has: 48 KiB for each stage in flight"""


def test_more_shared_memory_than_a_target_has(tmp_path: Path) -> None:
    """Triton compiles it without a word. It is not packaged, and nothing is without it."""
    files = {name: (REPOSITORY / f"kernels/{name}.py").read_text() for name in ("matmul", "tile_order")}
    project = Project.create(tmp_path / "scratch", manifest=MATMUL, **files)
    project.doit("--continue").expect(" 3 failed", "^the failure of .*, with other numbers, is also that of ", code=1)
    for target, (limit, used) in SHARED.items():
        project.doit(f"validate:matmul_fp16@{target}").expect(
            rf"FAILED validate:matmul_fp16@{target}\n"
            rf"  matmul_fp16@{target}: shared_static \+ shared_dynamic: a block needs more shared memory .*\n"
            rf"    expected: at most {limit} bytes on {target}\n"
            rf"    actual: {used} bytes: 0 static and {used} dynamic\n"
            r"    remedy: use smaller blocks",
            code=1,
        )
        assert json.loads(project.read(f"build/images/{target}/matmul_fp16.facts.json"))["shared_dynamic"] == used
    assert not [name for name in project.files() if name.startswith(("include/", "rust/")) or name.endswith(".a")]


def test_2048_threads_are_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    manifest = MANIFEST.replace("[128, 256]", "[{BLOCK_SIZE: 8192, num_warps: 64}]")
    project = Project.create(tmp_path / "scratch", manifest=manifest)
    result = project.doit().expect(
        r"^ERROR: kernels\.yaml:9:33: .*2048 threads",
        "expected: at most 1024 threads in a block on sm_80",
        "actual: num_warps: 64, with 32 threads a warp",
        "remedy: lower num_warps to 32",
        code=3,
    )
    assert len(result.output.splitlines()) < 8
    assert not (project.folder / "build").exists()


# -- an image in another's place


def test_images_and_facts_that_changed_places_are_built_again(built: Project) -> None:
    """Each is sound, and what its facts say; it is not what stood there."""
    images = built.folder / "build/images"
    before = {path: path.read_bytes() for path in images.rglob("*") if path.is_file()}
    for suffix in (".cubin", ".facts.json"):
        one, two = (images / f"sm_80/scale_fp32_{block}{suffix}" for block in (128, 256))
        shutil.move(one, images / "kept")
        shutil.move(two, one)
        shutil.move(images / "kept", two)
    built.run_python("-m", "kiln", "inspect", "build/images/sm_80/scale_fp32_128.cubin").expect("facts.json agrees")
    result = built.doit().expect("0 failed")
    assert set(result.ran("compile")) == {"scale_fp32_128@sm_80", "scale_fp32_256@sm_80"}
    assert before == {path: path.read_bytes() for path in images.rglob("*") if path.is_file()}
