"""Compiles softmax by driving Triton's stages, in a process of its own so that the tests' process stays clean.

    python compile_softmax.py FOLDER < [[file name, vendor, arch, warp size, last stage, types, block, options], ...]

It writes each image into FOLDER and prints what the compiler says of it, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def compile_images(folder: Path, requests: list[list[Any]]) -> list[dict[str, Any]]:
    """Write each request's image into `folder`; return its metadata."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import ASTSource, make_backend

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))
    from softmax import softmax_kernel

    reports = []
    for name, vendor, arch, warp_size, last, signature, block, wanted in requests:
        target = GPUTarget(vendor, arch, warp_size)
        backend = make_backend(target)
        options = backend.parse_options(wanted)
        metadata = dict(vars(options))
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, Language.TRITON)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        arguments = dict(zip(softmax_kernel.arg_names, [*signature, "constexpr"], strict=True))
        aligned = {(index,): [["tt.divisibility", 16]] for index in (0, 1)}
        module: Any = ASTSource(softmax_kernel, arguments, {"BLOCK_SIZE": block}, aligned).make_ir(
            target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
        for stage, run in stages.items():
            module = run(module, metadata)
            if stage == last:
                break
        (folder / name).write_bytes(module.encode() if isinstance(module, str) else module)
        fields = ("name", "num_warps", "warp_size", "shared")
        reports.append({field: metadata[field] for field in fields})
    return reports


if __name__ == "__main__":
    print(json.dumps(compile_images(Path(sys.argv[1]), json.load(sys.stdin))))
