"""What `compile` and `validate` do, each in a child of its own: plain data in, files below `staging` out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kiln.binaries.checks import (
    check_budgets,
    check_clean,
    check_image,
    check_limits,
    check_lines,
    registers_of_block,
    require,
)
from kiln.binaries.expected import Expected
from kiln.binaries.facts import Facts
from kiln.binaries.lines import line_table
from kiln.binaries.measure import measure
from kiln.closure.virtual_names import virtual_name
from kiln.compilers.cuda_request import CudaRequest
from kiln.compilers.nvcc import compile_cuda
from kiln.compilers.request import Compiled, CompileRequest
from kiln.engine.child import LOG_VARIABLE
from kiln.errors import CompileError, ImageError, ToolchainError
from kiln.manifest.model import Budget
from kiln.stages import timed
from kiln.toolchain.targets import Target


def compile_image(
    request: CompileRequest, expected: Expected, triton: Path, image: str, facts: str, staging: Path
) -> None:
    """Compile one image, measure it, hold it against its declaration, and write it with its facts.

    Nothing is written unless it is what was declared, for an exit code of 0 is no proof: compilers have returned empty
    and truncated files, and images with an error on standard error, with it. `triton` is the folder of the Triton whose
    content the step's digest has.
    """
    from kiln.compilers.diagnostics import printed_errors
    from kiln.compilers.triton import FOLDER, compile_kernel

    if not FOLDER.samefile(triton):
        raise ToolchainError(
            "another Triton would compile than the one that was looked at",
            expected=str(triton),
            actual=str(FOLDER),
            remedy="install Triton once, into the Python that runs doit",
        )
    log = Path(os.environ[LOG_VARIABLE])
    try:
        compiled = compile_kernel(request)
    except CompileError as error:
        raise error.filled(actual=printed_errors(log)) from error
    if printed := printed_errors(log):
        raise CompileError(
            "the compiler printed an error, and made an image all the same; it is refused",
            where=request.closure.position,
            actual=printed,
            remedy="look for code that the target does not have, such as inline assembly for another machine",
        )
    written = [(module.file, module.text) for module in request.closure.modules] if request.debug else None
    with timed("check"):
        _keep(compiled, expected, written, image, facts, staging)


def compile_cuda_image(
    request: CudaRequest, expected: Expected, image: str, facts: str, staging: Path
) -> Mapping[str, Sequence[str]]:
    """The same for an image in CUDA C++. Returns what nvcc read; see compilers.nvcc_found."""
    done = compile_cuda(request, Path(os.environ[LOG_VARIABLE]))
    written = [(name, file.text) for name, file in request.source.files.items()] if request.debug else None
    with timed("check"):
        _keep(done.compiled, expected, written, image, facts, staging)
    return done.found


def _keep(
    compiled: Compiled,
    expected: Expected,
    written: Sequence[tuple[str, str]] | None,
    image: str,
    facts: str,
    staging: Path,
) -> None:
    """Measure an image, check it, and write it with its facts.

    `written` are the sources, name and text, that its line table may speak of; None: it has none.
    """
    kind = expected.target.kind
    try:
        measured = measure(
            compiled.data, kind=kind, user_parameters=len(expected.parameters), compiled=compiled.metadata
        )
        unclean = check_clean(compiled.data, kind, debug=written is not None)
        if written is not None:
            unclean += check_lines(
                line_table(compiled.data, kind), {virtual_name(name): _lines(text) for name, text in written}
            )
    except ImageError as error:
        raise error.filled(where=expected.image_id) from error
    require([*check_image(measured, expected), *unclean], expected.image_id)
    _write(staging / image, compiled.data)
    _write(staging / facts, measured.to_json().encode())


def _lines(text: str) -> frozenset[int]:
    """The numbers of the lines that are not blank: of a slice, those that are in it."""
    return frozenset(number for number, line in enumerate(text.split("\n"), 1) if line.strip())


def validate_image(
    facts: Path, image_id: str, target: Target, budgets: Mapping[str, Budget], report: str, staging: Path
) -> None:
    """Hold an image's facts against what its target can do and what kernels.yaml allows it.

    The report says how much of each it uses; null stands for what is not known of the image.
    """
    measured = Facts.from_json(facts.read_text("utf-8"))
    require([*check_limits(measured, target), *check_budgets(measured, budgets)], image_id)
    limits = {
        "threads": [measured.threads, target.limits.max_threads],
        "shared_bytes": [measured.shared_static + measured.shared_dynamic, target.limits.max_shared],
        "registers": [registers_of_block(measured, target), target.limits.max_registers],
    }
    held = {name: [measured.used[name], budget.most] for name, budget in budgets.items()}
    said = {"image": image_id, "used_and_limit": limits, "used_and_budget": held}
    text = json.dumps(said, indent=1, sort_keys=True)
    _write(staging / report, text.encode() + b"\n")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
