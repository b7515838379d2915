"""Real softmax images and their records, compiled as a build does: in a process of its own, from the closure.

python softmax_images.py < pickled compile requests > pickled (image, metadata) of each
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kiln.binaries.facts import SUFFIX
from kiln.binaries.measure import measure
from kiln.closure.bind import bind
from kiln.closure.slice import Closure, cut
from kiln.compilers.request import ENVIRONMENT, CompileRequest, CompilerMetadata, compile_request
from kiln.errors import Position
from kiln.manifest.expression import Expression, parse_expression
from kiln.manifest.model import Block, Image, Kernel, Manifest, Variant
from kiln.manifest.signature import parse_signature
from kiln.packaging.record import Record
from kiln.toolchain.targets import TARGETS

REPOSITORY = Path(__file__).parents[1]

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
        "source": REPOSITORY / "kernels" / "softmax.py",
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
        "outputs": ("output_ptr",),
        "reference": None,
        "problems": ({"n_rows": 4, "n_cols": 1000},),
        "tolerance": {},
    }
    return Kernel(**{**declared, **changes})


def make_variant(kernel: Kernel, dtype: str, block: int, num_warps: int, **changes: Any) -> Variant:
    declared: dict[str, Any] = {
        "id": f"softmax_{dtype}_{block}",
        "base": changes.get("id", f"softmax_{dtype}_{block}"),
        "kernel": kernel,
        "dtype": dtype,
        "block": str(block),
        "axes": {},
        "group": f"softmax_{dtype}",
        "signature": parse_signature(kernel.signature.replace("{dtype}", dtype), _YAML),
        "constants": {"BLOCK_SIZE": block},
        "options": {"num_warps": num_warps, "num_stages": 3, "enable_fp_fusion": True},
        "targets": kernel.targets,
    }
    return Variant(**{**declared, **changes})


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


def softmax_images() -> list[Image]:
    """softmax for every shape and target, in order of declaration."""
    kernel = make_kernel()
    return [Image(variant=make_variant(kernel, *shape), target=target) for shape in SHAPES for target in BUILT]


def folded_images() -> list[Image]:
    """softmax whose input rows overlap: `input_row_stride` is promised to be 1, and two arguments follow it."""
    kernel = make_kernel(key="folded", signature="*{dtype}:16, *{dtype}:16, i32:1, i32, i32")
    variant = make_variant(kernel, *SHAPES[0], id="folded_fp32_1024", group="folded_fp32")
    return [Image(variant=variant, target=target) for target in BUILT]


@cache
def softmax_closure() -> Closure:
    kernel = make_kernel()
    return cut(kernel.source, kernel.function, root=REPOSITORY, where=kernel.position)


def softmax_request(image: Image) -> CompileRequest:
    """What the compiler is asked for, to make an image of softmax."""
    closure = softmax_closure()
    return compile_request(image, TARGETS[image.target], closure, bind(image.variant, closure))


def in_child(program: Path, *arguments: str, stdin: bytes = b"", **environment: str) -> bytes:
    """Run a Python file of these tests, which may import Kiln and Triton; returns what it printed."""
    paths = [str(REPOSITORY / "tools"), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def make_records(folder: Path, images: Sequence[Image]) -> list[Record]:
    """Compile images of softmax into `folder`; measure, and join with the declaration."""
    requests = [softmax_request(image) for image in images]
    made: list[tuple[bytes, CompilerMetadata]] = pickle.loads(in_child(Path(__file__), stdin=pickle.dumps(requests)))
    records = []
    for image, request, (data, metadata) in zip(images, requests, made, strict=True):
        kind = request.target.kind
        path = folder / f"{image.id}{SUFFIX[kind]}"
        path.write_bytes(data)
        passed = [argument for argument in request.interface.arguments if argument.promise != 1]
        facts = measure(data, kind=kind, user_parameters=len(passed), compiled=metadata)
        records.append(Record(image=image, facts=facts, interface=request.interface, path=path))
    return records


def _compile_all() -> None:
    from kiln.compilers.triton import compile_kernel

    made = [compile_kernel(request) for request in pickle.load(sys.stdin.buffer)]
    sys.stdout.buffer.write(pickle.dumps([(compiled.data, compiled.metadata) for compiled in made]))


if __name__ == "__main__":
    _compile_all()
