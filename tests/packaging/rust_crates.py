"""Crates that the tests of the Rust side build, and cargo in them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiln.binaries.facts import Parameter
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Image
from kiln.manifest.signature import parse_signature
from kiln.packaging.record import Record
from kiln.packaging.rust_crate import render_crate
from softmax_images import _YAML, expression, make_kernel, make_manifest, make_variant

RUST = Path(__file__).resolve().parents[1] / "rust"
"""the programs of tests"""
RELEASE = {"CUDARC_CUDA_VERSION": "12080"}
"""the release of CUDA, which a program chooses by a feature of cudarc"""


@dataclass(frozen=True)
class Cargo:
    """Cargo, with one target folder for all crates."""

    target: Path
    _locks: dict[str, Path] = field(default_factory=dict)

    def __call__(self, folder: Path, *words: str, expect: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        """Run it in a folder; fails unless it ends as `expect` says."""
        if (folder / "include.rs").exists() and not (folder / "Cargo.lock").exists():
            self._lock(folder)
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self.target), "CARGO_TERM_COLOR": "never", **more}
        ended = subprocess.run(
            ["cargo", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == expect, f"cargo {' '.join(words)}\n{ended.stdout}\n{ended.stderr}"
        return ended

    def _lock(self, folder: Path) -> None:
        """Lock a generated crate's dependencies, once for all crates of its name: that alone asks the registry. None of
        them is fetched before a feature asks for it."""
        known = self._locks.get(folder.name)
        if known is None:
            self._locks[folder.name] = self.target / f"{folder.name}.lock"
            (folder / "Cargo.lock").touch()
            self(folder, "generate-lockfile")
            shutil.copy(folder / "Cargo.lock", self._locks[folder.name])
        else:
            shutil.copy(known, folder / "Cargo.lock")

    def program(self, name: str) -> Path:
        """The program that an example was built to."""
        return self.target / "debug" / "examples" / name


def render(records: list[Record], folder: Path, library: str = "kernels") -> Path:
    """The crate, where the examples look for it from folder/examples/rust."""
    crate = folder / "build" / "rust" / library
    render_crate(records, make_manifest(records, library), "0.1.0", crate)
    return crate


def add_example(crate: Path, name: str, text: str) -> None:
    (crate / "examples").mkdir(exist_ok=True)
    (crate / "examples" / f"{name}.rs").write_text(text, "utf-8")


def add_programs(crate: Path, *names: str) -> None:
    """Programs of tests/rust, as examples of the crate."""
    shutil.copytree(RUST / "support", crate / "examples" / "support")
    for name in names:
        shutil.copy(RUST / f"{name}.rs", crate / "examples")


def change(record: Record, *, facts: Mapping[str, Any] | None = None, **fields: Any) -> Record:
    return dataclasses.replace(record, facts=dataclasses.replace(record.facts, **(facts or {})), **fields)


def driver_records(records: list[Record], folded: list[Record]) -> list[Record]:
    """Variants with the images of softmax in fp32, for every target: two that differ by promises, a third of the same
    group for rows twice as long, one each with a folded argument and with scratch memory, and clusters of two sizes."""
    softmax = [record for record in records if record.image.variant.dtype == "fp32"]
    return [
        *softmax,
        *(_without_promises(record) for record in softmax),
        *(_for_longer_rows(record) for record in softmax),
        *(_renamed(record, "alone") for record in folded),
        *(
            change(_renamed(record, "scratched"), facts={"global_scratch_bytes": 24, "global_scratch_align": 128})
            for record in softmax
        ),
        *(
            change(_renamed(record, name), facts={"cluster": (blocks, 1, 1), "pdl": True})
            for name, blocks in (("clustered", 2), ("wide", 16))
            for record in softmax
            if record.image.target == "sm_90a"
        ),
    ]


def _without_promises(record: Record) -> Record:
    variant = record.image.variant
    signature = parse_signature("*fp32, *fp32, i32, i32, i32", _YAML)
    other = dataclasses.replace(variant, id=f"{variant.id}_any", signature=signature)
    arguments = tuple(dataclasses.replace(argument, promise=None) for argument in record.interface.arguments)
    return change(
        record,
        image=Image(variant=other, target=record.image.target),
        interface=dataclasses.replace(record.interface, arguments=arguments),
    )


def _for_longer_rows(record: Record) -> Record:
    variant = make_variant(record.image.variant.kernel, "fp32", 2048, 4)
    constants = {**record.interface.constants, "BLOCK_SIZE": 2048}
    return change(
        record,
        image=Image(variant=variant, target=record.image.target),
        interface=dataclasses.replace(record.interface, constants=constants),
    )


def _renamed(record: Record, name: str) -> Record:
    """A kernel of its own with the same images."""
    own = record.image.variant
    kernel = make_kernel(key=name, signature=own.kernel.signature)
    variant = make_variant(
        kernel, "fp32", 1024, 4, id=f"{name}_fp32_1024", group=f"{name}_fp32", signature=own.signature
    )
    return change(record, image=Image(variant=variant, target=record.image.target))


HOSTILE = "\"); } */ \\ ' ` {{ x }} {% raw %} \r\n\t\0 \u202e \u2066 \ufeff é 🔥 */ #![feature(x)]"


def odd_records(records: list[Record]) -> list[Record]:
    """A kernel with every kind of argument and name, in one variant for two targets; the images are softmax's."""
    arguments = (
        ("self", "*fp32", 16, 8),
        ("type", "i64", 16, 8),
        ("N", "i32", 1, None),
        ("scale", "fp32", None, 4),
        ("half", "bf16", None, 2),
        ("flag", "i1", None, 1),
        ("M", "u8", None, 1),
        ("self__", "fp64", None, 8),
    )
    kernel = make_kernel(
        key="odd",
        source_name='kernels/`a` "b"\\c\n\u202eodd.py',
        grid=(expression("cdiv(type, BLOCK) * N"), expression("batch"), expression("2 if M % 2 == 0 else M + OFFSET")),
        select=expression("type % 3 == 1 and batch <= 99"),
        inputs={"batch": "u64"},
        tensors={"self": (expression("type"),)},
        problems=({"type": 4096, "batch": -1, "M": 256, "N": 7},),
    )
    constants = {
        "BLOCK": 64,
        "OFFSET": -3,
        "PI": 3.14159,
        "INF": float("-inf"),
        "SMALLEST": -(2**63),
        "CAUSAL": True,
        "MODE": HOSTILE,
    }
    variant = make_variant(kernel, "fp32", 1024, 4, id="odd_FP32", group="Odd", constants=constants)
    interface = Interface(
        arguments=tuple(Argument(name=name, type=type, promise=promise) for name, type, promise, _ in arguments),
        constants=constants,
    )
    parameters, offset = [], 0
    for _, _, _, size in arguments:
        if size is not None:
            offset = -(-offset // size) * size
            parameters.append(Parameter(offset=offset, size=size, role="user"))
            offset += size
    return [
        change(
            record,
            image=Image(variant=variant, target=record.image.target),
            interface=interface,
            facts={"parameters": tuple(parameters), "parameter_bytes": offset},
        )
        for record in records[:2]
    ]
