"""Compiles the images that the tests of binaries read, with Triton's own stages. Runs as a process of its own.

    python binaries_compile.py KERNELS OUT

KERNELS is the folder with softmax.py. Each image goes to OUT/<name>.<kind>, what the compiler reported to
OUT/<name>.json, and for AMD the assembly text, which holds LLVM's own account of the kernel, to OUT/<name>.amdgcn.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import triton
from triton._C.libtriton import amd, ir
from triton.backends.amd.compiler import assemble_amdgcn
from triton.backends.compiler import GPUTarget, Language
from triton.compiler.compiler import ASTSource, make_backend

CUDA = {number: GPUTarget("cuda", number, 32) for number in (80, 90, 120)}
HIP = GPUTarget("hip", "gfx942", 64)

JOBS: dict[str, tuple[GPUTarget, str, dict[str, Any]]] = {
    "sm_80": (CUDA[80], "cubin", {}),
    "sm_90a": (CUDA[90], "cubin", {}),
    "sm_120a": (CUDA[120], "cubin", {}),
    "compute_80": (CUDA[80], "ptx", {"ptx_version": 80}),
    "gfx942": (HIP, "hsaco", {}),
    "gfx1100": (GPUTarget("hip", "gfx1100", 32), "hsaco", {}),
    "cluster": (CUDA[90], "cubin", {"num_ctas": 2}),
    "threads": (CUDA[80], "cubin", {"num_warps": 64}),
    "threads_amd": (HIP, "hsaco", {"num_warps": 32}),
}
LINE_INFO = {
    "lines_sm_90a": (CUDA[90], "cubin", {}),
    "lines_sm_120a": (CUDA[120], "cubin", {}),
    "lines_compute_80": (CUDA[80], "ptx", {}),
    "lines_gfx942": (HIP, "hsaco", {}),
}


def build(function: Any, target: GPUTarget, kind: str, options: dict[str, Any]) -> tuple[bytes, dict[str, Any], str]:
    """Image, the compiler's report, and the last text stage before the image."""
    types = ["*fp16", "*fp16", "i32", "i32", "i32", "constexpr"]
    source = ASTSource(
        function,
        dict(zip(function.arg_names, types, strict=True)),
        {"BLOCK_SIZE": 2048},
        {(index,): [["tt.divisibility", 16]] for index in (0, 1)},
    )
    backend = make_backend(target)
    parsed = backend.parse_options({"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True, **options})
    metadata = dict(vars(parsed))
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, Language.TRITON)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
    )
    text = ""
    for stage, run in stages.items():
        module = run(module, metadata)
        text = module if isinstance(module, str) else text
        if stage == kind:
            break
    return module.encode() if isinstance(module, str) else bytes(module), metadata, text


def assemble_amd(text: str, features: str = "") -> bytes:
    """An hsaco from assembly text."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "in.o"), Path(folder, "out.hsaco")
        source.write_bytes(assemble_amdgcn(text, "gfx942", features))
        amd.link_hsaco(str(source), str(output))
        return output.read_bytes()


def main(kernels: str, out: Path) -> None:
    sys.path.insert(0, kernels)
    from softmax import softmax_kernel

    def write(name: str, target: GPUTarget, kind: str, options: dict[str, Any]) -> str:
        data, metadata, text = build(softmax_kernel, target, kind, options)
        (out / f"{name}.{kind}").write_bytes(data)
        if kind == "hsaco":
            (out / f"{name}.amdgcn").write_text(text)
        words = ("name", "num_warps", "warp_size", "num_ctas", "shared")
        (out / f"{name}.json").write_text(json.dumps({word: metadata[word] for word in words}))
        return text

    for name, job in JOBS.items():
        write(name, *job)

    # The same kernel with arguments that the runtime fills in, and with LDS that is not dynamic.
    text = (out / "gfx942.amdgcn").read_text()
    hidden = "".join(
        f"      - .offset: {offset}\n        .size: {size}\n        .value_kind: {kind}\n"
        for offset, size, kind in ((48, 4, "hidden_block_count_x"), (52, 4, "hidden_block_count_y"))
    )
    for old, new in (
        ("    .group_segment_fixed_size: 0\n", hidden + "    .group_segment_fixed_size: 4096\n"),
        (".amdhsa_group_segment_fixed_size 0", ".amdhsa_group_segment_fixed_size 4096"),
        (".kernarg_segment_size: 48", ".kernarg_segment_size: 56"),
        (".amdhsa_kernarg_size 48", ".amdhsa_kernarg_size 56"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (out / "hidden.amdgcn").write_text(text)
    (out / "hidden.hsaco").write_bytes(assemble_amd(text))
    (out / "hidden.json").write_text((out / "gfx942.json").read_text())

    # The same kernel, fixed to GPUs that do not replay page faults.
    text = (out / "gfx942.amdgcn").read_text()
    for old, new in (
        ("unknown-gfx942", "unknown-gfx942:xnack-"),
        (".amdhsa_reserve_xnack_mask 1", ".amdhsa_reserve_xnack_mask 0"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    (out / "xnack.amdgcn").write_text(text)
    (out / "xnack.hsaco").write_bytes(assemble_amd(text, "-xnack"))
    (out / "xnack.json").write_text((out / "gfx942.json").read_text())

    triton.knobs.compilation.disable_line_info = False
    for name, job in LINE_INFO.items():
        write(name, *job)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
