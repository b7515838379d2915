"""Compiles kernels with `triton.compile` in one process, one after another: `triton_loop.py JOBS [NUMBER...]`.

What people write who have no Kiln; it stands apart so that it imports nothing of Kiln's. The kernels' modules are
imported from the current folder.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_kernel


def target_of(name: str) -> GPUTarget:
    """Triton's word for `sm_90a` or `gfx942`."""
    if name.startswith("gfx"):
        return GPUTarget("hip", name, 64)
    return GPUTarget("cuda", int(name.removeprefix("sm_").rstrip("a")), 32)


def compile_job(job: dict[str, Any]) -> None:
    """Make one image, and do nothing with it."""
    function = getattr(importlib.import_module(job["module"]), job["function"])
    constants = job["constants"] | {name: 1 for name, _, promise in job["arguments"] if promise == 1}
    types = {name: type for name, type, _ in job["arguments"]}
    signature = {name: "constexpr" if name in constants else types[name] for name in function.arg_names}
    places = {name: (place,) for place, name in enumerate(function.arg_names)}
    promises = {places[name]: [["tt.divisibility", 16]] for name, _, promise in job["arguments"] if promise == 16}
    source = ASTSource(function, signature, constants, promises)
    made = compile_kernel(source, target=target_of(job["target"]), options=job["options"])
    assert made.asm["hsaco" if job["target"].startswith("gfx") else "cubin"]


def main(jobs: str, *numbers: str) -> None:
    """Compile all jobs, or those of some numbers."""
    listed = json.loads(Path(jobs).read_text("utf-8"))
    sys.path.insert(0, str(Path.cwd()))
    for number in map(int, numbers) if numbers else range(len(listed)):
        compile_job(listed[number])


if __name__ == "__main__":
    main(*sys.argv[1:])
