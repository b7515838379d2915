"""What steps do, each in a child of its own: plain data in, files below `staging` out."""

from __future__ import annotations

import json
import os
from pathlib import Path

from kiln.binaries.checks import check_clean, check_image, check_limits, registers_of_block, require
from kiln.binaries.expected import Expected
from kiln.binaries.facts import Facts
from kiln.binaries.measure import measure
from kiln.compilers.request import CompileRequest
from kiln.engine.forkserver import LOG_VARIABLE
from kiln.errors import CompileError, ImageError
from kiln.manifest.model import Manifest
from kiln.packaging.record import Source, read_records
from kiln.toolchain.targets import Kind, Target


def compile_image(request: CompileRequest, expected: Expected, image: str, facts: str, staging: Path) -> None:
    """Compile one image, measure it, hold it against its declaration, and write it with its facts.

    Nothing is written unless every check passes, for an exit code of 0 is no proof: compilers have returned empty and
    truncated files, and images with an error on standard error, with it.
    """
    from kiln.compilers.triton import compile_kernel, printed_errors

    log = Path(os.environ[LOG_VARIABLE])
    try:
        compiled = compile_kernel(request)
    except CompileError as error:
        if "\n" not in error.what:
            error.actual = printed_errors(log)
        raise
    if printed := printed_errors(log):
        raise CompileError(
            "the compiler printed an error, and made an image all the same; it is refused",
            where=request.closure.position,
            actual=printed,
            remedy="look for code that the target does not have, such as inline assembly for another machine",
        )
    kind = request.target.kind
    try:
        measured = measure(
            compiled.data, kind=kind, user_parameters=len(expected.parameters), compiled=compiled.metadata
        )
        unclean = check_clean(compiled.data, kind)
    except ImageError as error:
        error.where = error.where or request.image_id
        raise
    findings = [*check_image(measured, expected), *check_limits(measured, request.target), *unclean]
    require(findings, request.image_id)
    _write(staging / image, compiled.data)
    _write(staging / facts, measured.to_json().encode())


def validate_image(facts: Path, expected: Expected, target: Target, report: str, staging: Path) -> None:
    """Hold an image's facts against what was declared and what its target can do, and write down what was found."""
    measured = Facts.from_json(facts.read_text("utf-8"))
    findings = [*check_image(measured, expected), *check_limits(measured, target)]
    require(findings, expected.image_id)
    limits = {
        "threads": [measured.threads, target.max_threads],
        "shared_bytes": [measured.shared_static + measured.shared_dynamic, target.max_shared],
        "registers": [registers_of_block(measured, target), target.max_registers],
    }
    text = json.dumps({"image": expected.image_id, "used_and_limit": limits}, indent=1, sort_keys=True)
    _write(staging / report, text.encode() + b"\n")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def copy_image(image: Path, kind: Kind, symbol: str, host: str, objcopy: Path, output: str, staging: Path) -> None:
    """An image's bytes as a host object."""
    from kiln.packaging.objcopy import make_object

    path = staging / output
    path.parent.mkdir(parents=True, exist_ok=True)
    make_object(image, kind, symbol, host, objcopy, path.parent, path.name)


def compile_records(sources: list[Source], library: str, host: str, cc: Path, folder: str, staging: Path) -> None:
    """One target's records as host objects."""
    from kiln.packaging.c_objects import make_records

    (staging / folder).mkdir(parents=True)
    make_records(read_records(sources), library, host, cc, staging / folder)


def compile_tables(
    images: list[tuple[str, str]], library: str, host: str, cc: Path, folder: str, staging: Path
) -> None:
    """The tables, the registries and the fixed runtime as host objects."""
    from kiln.packaging.c_objects import make_tables

    (staging / folder).mkdir(parents=True)
    make_tables(images, library, host, cc, staging / folder)


def archive(members: list[tuple[str, Path]], ar: Path, output: str, staging: Path) -> None:
    """A static archive of host objects."""
    from kiln.packaging.archive import make_archive

    path = staging / output
    path.parent.mkdir(parents=True, exist_ok=True)
    make_archive(members, ar, path.parent, path.name)


def render_c(sources: list[Source], manifest: Manifest, staging: Path) -> None:
    """The public C headers and the runtime's sources."""
    from kiln.packaging.c_package import render_header

    render_header(read_records(sources), manifest, staging)


def render_rust(sources: list[Source], manifest: Manifest, version: str, folder: str, staging: Path) -> None:
    """The Rust crate."""
    from kiln.packaging.rust_crate import render_crate

    (staging / folder).mkdir(parents=True)
    render_crate(read_records(sources), manifest, version, staging / folder)
