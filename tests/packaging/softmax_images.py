"""Real softmax images and their records, for the tests of packaging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kiln.binaries.facts import SUFFIX, Facts
from kiln.binaries.measure import measure
from kiln.compilers.request import CompilerMetadata
from kiln.errors import Position
from kiln.manifest.expression import Expression, parse_expression
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Block, Image, Kernel, Manifest, Value, Variant
from kiln.manifest.signature import Signature, SignatureItem
from kiln.packaging.record import Record
from kiln.toolchain.targets import TARGETS

SHAPES = (("fp32", 1024, 4), ("fp16", 2048, 8))
"""dtype, block and num_warps of each variant"""

BUILT = ("sm_80", "sm_90a", "compute_80", "gfx942")

_YAML = Position(file="kernels.yaml", line=8, column=3)


def expression(text: str) -> Expression:
    return parse_expression(text, _YAML)


def make_kernel(**changes: Any) -> Kernel:
    """softmax, as the repository's own kernels.yaml declares it, with some keys replaced."""
    declared: dict[str, Any] = {
        "key": "softmax",
        "position": _YAML,
        "positions": {},
        "source": Path(__file__).resolve().parents[2] / "kernels" / "softmax.py",
        "source_name": "kernels/softmax.py",
        "function": "softmax_kernel",
        "dtypes": tuple(dtype for dtype, _, _ in SHAPES),
        "axes": {},
        "blocks": tuple(
            Block(
                tag=str(block),
                constants={"BLOCK_SIZE": block},
                options={},
                is_integer=True,
                position=_YAML,
                positions={},
            )
            for _, block, _ in SHAPES
        ),
        "constants": {},
        "exclude": (),
        "targets": BUILT,
        "name": "softmax_{dtype}_{block}",
        "group": "softmax_{dtype}",
        "signature": "*{dtype}:16, *{dtype}:16, i32, i32, i32",
        "options": {},
        "inputs": {"n_rows": "i32"},
        "grid": (expression("n_rows"), expression("1"), expression("1")),
        "select": expression("n_cols <= BLOCK_SIZE"),
        "tensors": dict.fromkeys(("output_ptr", "input_ptr"), (expression("n_rows"), expression("n_cols"))),
        "reference": None,
        "problems": ({"n_rows": 4, "n_cols": 1000},),
        "tolerance": {},
    }
    return Kernel(**{**declared, **changes})


def make_variant(kernel: Kernel, dtype: str, block: int, num_warps: int, **changes: Any) -> Variant:
    types = [(f"*{dtype}", 16), (f"*{dtype}", 16), ("i32", None), ("i32", None), ("i32", None)]
    declared: dict[str, Any] = {
        "id": f"softmax_{dtype}_{block}",
        "kernel": kernel,
        "dtype": dtype,
        "block": str(block),
        "axes": {},
        "group": f"softmax_{dtype}",
        "signature": Signature(
            text=kernel.signature.replace("{dtype}", dtype),
            position=_YAML,
            items=tuple(SignatureItem(type=type, promise=promise) for type, promise in types),
        ),
        "constants": {"BLOCK_SIZE": block},
        "options": {"num_warps": num_warps, "num_stages": 3, "enable_fp_fusion": True},
    }
    return Variant(**{**declared, **changes})


def make_interface(variant: Variant, constants: Mapping[str, Value] | None = None) -> Interface:
    names = ("output_ptr", "input_ptr", "input_row_stride", "output_row_stride", "n_cols")
    return Interface(
        arguments=tuple(
            Argument(name=name, type=item.type, promise=item.promise)
            for name, item in zip(names, variant.signature.items, strict=True)
        ),
        constants=variant.constants if constants is None else constants,
    )


def make_manifest(records: list[Record], library: str = "kernels", root: Path = Path("/nowhere")) -> Manifest:
    """The manifest that declares exactly the images of `records`."""
    images = tuple(record.image for record in records)
    variants = {image.variant.id: image.variant for image in images}
    targets = tuple(dict.fromkeys(image.target for image in images))
    return Manifest(
        path=root / "kernels.yaml",
        position=Position(file="kernels.yaml", line=1, column=1),
        library=library,
        targets=targets,
        target_positions=dict.fromkeys(targets, _YAML),
        host="x86_64-linux-gnu",
        kernels=tuple({variant.kernel.key: variant.kernel for variant in variants.values()}.values()),
        variants=tuple(variants.values()),
        images=images,
    )


def make_records(folder: Path) -> list[Record]:
    """Compile softmax for every shape and target into `folder`; measure, and join with the declaration."""
    kernel = make_kernel()
    images = [Image(variant=make_variant(kernel, *shape), target=target) for shape in SHAPES for target in BUILT]
    paths = [folder / f"{image.id}{SUFFIX[TARGETS[image.target].kind]}" for image in images]
    requests = []
    for image, path in zip(images, paths, strict=True):
        target = TARGETS[image.target]
        pinned = {"ptx_version": target.ptx_version} if target.ptx_version else {}
        requests.append(
            [
                path.name,
                "cuda" if target.vendor == "nvidia" else "hip",
                target.arch,
                target.warp_size,
                target.kind,
                [item.type for item in image.variant.signature.items],
                int(image.variant.block),
                {**image.variant.options, **pinned},
            ]
        )
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_softmax.py")), str(folder)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_DISABLE_LINE_INFO": "1"},
    )
    assert child.returncode == 0, child.stderr
    return [
        Record(
            image=image,
            facts=_measure(image, path.read_bytes(), report),
            interface=make_interface(image.variant),
            path=path,
        )
        for image, path, report in zip(images, paths, json.loads(child.stdout), strict=True)
    ]


def _measure(image: Image, data: bytes, report: dict[str, Any]) -> Facts:
    compiled = CompilerMetadata(
        entry=report["name"],
        warps=report["num_warps"],
        warp_size=report["warp_size"],
        cluster=(1, 1, 1),
        cooperative=False,
        pdl=False,
        shared_dynamic=report["shared"],
        global_scratch_bytes=0,
        global_scratch_align=1,
        profile_scratch_bytes=0,
        profile_scratch_align=1,
        tools={"triton": "3.9.0"},
    )
    return measure(data, kind=TARGETS[image.target].kind, user_parameters=5, compiled=compiled)
