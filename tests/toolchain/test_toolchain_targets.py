"""The table of targets: each can be built, and what is not in it is refused with what to write instead."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kiln.errors import ManifestError, Position
from kiln.toolchain.nvcc import find_nvcc
from kiln.toolchain.targets import TARGETS, find
from kiln.toolchain.targets_page import targets_page
from other_tritons import BUILDABLE
from project import MANIFEST, REPOSITORY, Project

HERE = Position(file="kernels.yaml", line=3, column=11)


def test_every_target_of_triton_builds_and_passes_every_check(tmp_path: Path) -> None:
    """A kernel that shares memory between warps, for all targets at once, with the real compilers."""
    manifest = MANIFEST.replace("[sm_80, gfx942]", f"[{', '.join(BUILDABLE)}]").replace("[128, 256]", "[1024]")
    source = """\
        import triton
        import triton.language as tl


        @triton.jit
        def scale_kernel(output_ptr, input_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
            offsets = tl.arange(0, BLOCK_SIZE)
            x = tl.load(input_ptr + offsets, mask=offsets < n_elements, other=0.0)
            tl.store(output_ptr + offsets, x / tl.sum(x, axis=0), mask=offsets < n_elements)
        """
    project = Project.create(tmp_path / "targets", manifest=manifest, scale=source)
    project.doit("validate").expect(f"{2 * len(BUILDABLE)} built, 0 up to date, 0 failed")
    for name, target in BUILDABLE.items():
        facts = json.loads(project.read(f"build/images/{name}/scale_fp32_1024.facts.json"))
        assert facts["arch"] == name
        assert facts["kind"] == target.kind
        assert facts["warp_size"] == target.warp_size
        assert facts["threads"] == 4 * target.warp_size


def test_nvcc_knows_every_target_of_nvidia() -> None:
    """By its number; tests of kernels in CUDA C++ build for each kind of letter behind it."""
    listing = [find_nvcc().nvcc, "--list-gpu-arch"], [find_nvcc().nvcc, "--list-gpu-code"]
    known = [word for command in listing for word in subprocess.check_output(command, text=True).split()]
    assert {name.rstrip("af") for name, target in TARGETS.items() if target.vendor == "nvidia"} == set(known)


AMD = [target.name for target in TARGETS.values() if target.vendor == "amd"]


@pytest.mark.parametrize("name", AMD)
def test_amds_own_compiler_enforces_the_same_local_memory(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Of one work-group: it takes the limit, and names it for a byte more."""
    from triton.backends.amd import compiler

    def say(size: int) -> str:
        ir = (
            'target triple = "amdgcn-amd-amdhsa"\n'
            f"@local = internal addrspace(3) global [{size} x i8] poison\n"
            "define amdgpu_kernel void @kernel(i32 %i) {\n"
            "  %at = getelementptr i8, ptr addrspace(3) @local, i32 %i\n"
            "  store volatile i8 1, ptr addrspace(3) %at\n"
            "  ret void\n}\n"
        )
        switches = dict.fromkeys(("disable_optimization", "canonicalize_gep", "dump_ir", "enable_timing"), False)
        triple = compiler.get_amd_codegen_target_triple(name)
        compiler.compile_amdgpu(ir, triple, name, "", flags=[], disabled_passes="", enable_fp_fusion=False, **switches)
        return capfd.readouterr().err

    limit = TARGETS[name].limits.max_shared
    assert say(limit) == ""
    assert f"local memory ({limit + 1}) exceeds limit ({limit})" in say(limit + 1)


def test_the_page_in_the_repository_is_fresh() -> None:
    """`kiln targets-docs > docs/targets.md` makes it anew."""
    assert (REPOSITORY / "docs/targets.md").read_text("utf-8") == targets_page()


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("sm_8", ["unknown target", "kiln targets-docs", "did you mean", "sm_8"]),
        ("SM_80", ["unknown target", "sm_80"]),
        ("h100", ["unknown target 'h100'", "remedy: write its architecture: an H100 is sm_90a"]),
        ("sm_101", ["its number is 110 now", "write sm_110a"]),
        ("compute_101", ["write compute_110"]),
    ],
)
def test_other_targets_are_refused(name: str, texts: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        find(name, HERE)
    message = str(caught.value)
    assert message.startswith("kernels.yaml:3:11: ")
    for text in texts:
        assert text in message
