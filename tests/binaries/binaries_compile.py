"""Compiles the images that the tests of binaries read. Runs as a process of its own.

    python binaries_compile.py OUT

Each image goes to OUT/<name>.<kind>, what the compiler reported to OUT/<name>.json, and for AMD the assembly text, with
LLVM's own account of the kernel in it, to OUT/<name>.amdgcn.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import amd
from triton.backends.amd import compiler as amd_compiler
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kiln.compilers.triton import compile_kernel
from kiln.manifest.model import Image
from kiln.toolchain.targets import TARGETS
from other_tritons import BUILDABLE
from softmax_images import make_kernel, make_variant, softmax_request

JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name, target in BUILDABLE.items() if target.kind != "ptx"},
    "compute_80": ("compute_80", {}),
    "cluster": ("sm_90a", {"num_ctas": 2}),
    "threads": ("sm_80", {"num_warps": 64}),
    "threads_amd": ("gfx942", {"num_warps": 32}),
}
"""name -> target and options of an image of softmax in fp16"""

LINE_INFO = ("sm_90a", "sm_120a", "compute_80", "gfx942")


def keep_assembly(keep: Callable[[str], object]) -> None:
    """Call `keep` with the assembly text of each AMD image that is made from now on."""
    assemble = amd_compiler.assemble_amdgcn

    def assemble_and_keep(text: str, *rest: str) -> bytes:
        keep(text)
        return assemble(text, *rest)

    amd_compiler.assemble_amdgcn = assemble_and_keep


def assemble_amd(text: str, features: str = "") -> bytes:
    """An hsaco from assembly text."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "in.o"), Path(folder, "out.hsaco")
        source.write_bytes(amd_compiler.assemble_amdgcn(text, "gfx942", features))
        amd.link_hsaco(str(source), str(output))
        return output.read_bytes()


def write_changed(out: Path, name: str, changes: tuple[tuple[str, str], ...], features: str = "") -> None:
    """The image for gfx942 again, with each `old` of its assembly text, which must be there, made `new`."""
    text = (out / "gfx942.amdgcn").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (out / f"{name}.amdgcn").write_text(text)
    (out / f"{name}.hsaco").write_bytes(assemble_amd(text, features))
    (out / f"{name}.json").write_text((out / "gfx942.json").read_text())


def write_with_lines(out: Path, name: str) -> None:
    """What Triton itself makes of the file for a target, with line information."""
    kernel = make_kernel()
    spec = importlib.util.spec_from_file_location("softmax", kernel.source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, kernel.function)
    types = dict(zip(function.arg_names, ["*fp16", "*fp16", "i32", "i32", "i32", "constexpr"], strict=True))
    target = TARGETS[name]
    made = triton.compile(
        ASTSource(function, types, {"BLOCK_SIZE": 2048}),
        target=GPUTarget("cuda" if target.vendor == "nvidia" else "hip", target.arch, target.warp_size),
        options={"num_warps": 4},
    )
    data = made.asm[target.kind]
    (out / f"lines_{name}.{target.kind}").write_bytes(data.encode() if isinstance(data, str) else data)
    (out / f"lines_{name}.json").write_text((out / f"{name}.json").read_text())


def main(out: Path) -> None:
    texts: list[str] = []
    keep_assembly(texts.append)
    plain = make_variant(make_kernel(), "fp16", 2048, 4)
    for name, (target, options) in JOBS.items():
        variant = replace(plain, options={**plain.options, **options})
        made = compile_kernel(softmax_request(Image(variant=variant, target=target)))
        kind = TARGETS[target].kind
        (out / f"{name}.{kind}").write_bytes(made.data)
        (out / f"{name}.json").write_text(json.dumps(asdict(made.metadata)))
        if kind == "hsaco":
            (out / f"{name}.amdgcn").write_text(texts.pop())

    # Arguments that the runtime fills in, and LDS that is not dynamic.
    hidden = "".join(
        f"      - .offset: {offset}\n        .size: {size}\n        .value_kind: {kind}\n"
        for offset, size, kind in ((48, 4, "hidden_block_count_x"), (52, 4, "hidden_block_count_y"))
    )
    write_changed(
        out,
        "hidden",
        (
            ("    .group_segment_fixed_size: 0\n", hidden + "    .group_segment_fixed_size: 4096\n"),
            (".amdhsa_group_segment_fixed_size 0", ".amdhsa_group_segment_fixed_size 4096"),
            (".kernarg_segment_size: 48", ".kernarg_segment_size: 56"),
            (".amdhsa_kernarg_size 48", ".amdhsa_kernarg_size 56"),
        ),
    )
    # Fixed to GPUs that do not replay page faults.
    write_changed(
        out,
        "xnack",
        (
            ("unknown-gfx942", "unknown-gfx942:xnack-"),
            (".amdhsa_reserve_xnack_mask 1", ".amdhsa_reserve_xnack_mask 0"),
        ),
        features="-xnack",
    )
    triton.knobs.compilation.disable_line_info = False
    for name in LINE_INFO:
        write_with_lines(out, name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
