"""The Rust crate on cudarc and cust: it builds where there is no CUDA; what it asks a driver that computes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rust_crates import RELEASE, Cargo, add_programs, change, render

from c_doubles import Doubles
from kiln.manifest.model import Image, Kernel
from kiln.packaging.record import Record
from softmax_images import expression, make_kernel, make_variant

CASES = [
    ("addresses", "cuda"),
    ("launches", "cuda"),
    ("loose", "cuda"),
    ("no_device", "cuda"),
    ("no_driver", "none"),
    ("other_context", "cuda"),
    ("out_of_memory", "cuda"),
    ("scratch", "cuda"),
    ("too_short", "cuda"),
    ("two_streams", "cuda"),
]
"""a case of tests/rust/cudarc_cases.rs, and the driver that it runs with"""

STRIDES = {f"{name}_ptr": (expression(f"{name}_row_stride"), expression("1")) for name in ("output", "input")}


def slice_records(records: list[Record]) -> list[Record]:
    """softmax in fp32 with declared strides, without them, and with scratch memory; and in fp16."""
    plain = [record for record in records if record.image.variant.dtype == "fp32"]
    scratch = {"global_scratch_bytes": 24, "global_scratch_align": 128}
    return [
        *(of_kernel(record, make_kernel(key="strided", strides=STRIDES)) for record in plain),
        *(of_kernel(record, make_kernel(key="loose")) for record in plain),
        *(change(of_kernel(record, make_kernel(key="scratched")), facts=scratch) for record in plain),
        *(record for record in records if record.image.variant.dtype == "fp16"),
    ]


def of_kernel(record: Record, kernel: Kernel) -> Record:
    """The same image, of a kernel of another name."""
    own = record.image.variant
    names = {"id": f"{kernel.key}_fp32_1024", "group": f"{kernel.key}_fp32"}
    variant = make_variant(kernel, "fp32", 1024, 4, **names, signature=own.signature)
    return change(record, image=Image(variant=variant, target=record.image.target))


@pytest.fixture(scope="module")
def crate(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = render(slice_records(records), tmp_path_factory.mktemp("project"))
    add_programs(made, "cudarc_cases")
    # A program that launches on cudarc depends on it, and on half.
    manifest = (made / "Cargo.toml").read_text()
    needed = 'cudarc = { version = "0.19.5", default-features = false, features = ["f16"] }\nhalf = "2"\n'
    (made / "Cargo.toml").write_text(f"{manifest}\n[dev-dependencies]\n{needed}")
    return made


@pytest.fixture(scope="module")
def program(crate: Path, cargo: Cargo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cargo(crate, "build", "-q", "--features", "cudarc,f16", "--example", "cudarc_cases", **RELEASE)
    return Path(shutil.copy(cargo.program("cudarc_cases"), tmp_path_factory.mktemp("programs")))


@pytest.mark.parametrize(("case", "driver"), CASES)
def test_launches_on_cudarc(program: Path, doubles: Doubles, case: str, driver: str) -> None:
    done = doubles.run(driver, program, case)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_examples_of_the_documentation_run_with_cudarc(crate: Path, cargo: Cargo) -> None:
    """And the programs above are found by `cargo test`, which builds and does not run them."""
    ended = cargo(crate, "test", "--features", "cudarc,f16,hip", **RELEASE)
    assert "3 passed" in ended.stdout.splitlines()[-2]
