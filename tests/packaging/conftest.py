"""Real softmax images, compiled once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from c_library import Package, build_package
from case_programs import CasePrograms
from rust_crates import Cargo

from kiln.packaging.record import Record
from softmax_images import folded_images, make_records, softmax_images


@pytest.fixture(scope="session")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return make_records(tmp_path_factory.mktemp("images"), [*softmax_images(), *folded_images()])


@pytest.fixture(scope="session")
def records(_compiled: list[Record]) -> list[Record]:
    """softmax in fp32 and fp16 for sm_80, sm_90a, compute_80 and gfx942."""
    return _compiled[: len(softmax_images())]


@pytest.fixture(scope="session")
def folded(_compiled: list[Record]) -> list[Record]:
    """softmax in fp32 for the same targets, with an argument that is promised to be 1 before two others."""
    return _compiled[len(softmax_images()) :]


@pytest.fixture(scope="session")
def package(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The C package of `records`, as a library named kernels."""
    return build_package(records, tmp_path_factory.mktemp("package") / "c")


@pytest.fixture(scope="session")
def case_programs(tmp_path_factory: pytest.TempPathFactory) -> CasePrograms:
    return CasePrograms(folder=tmp_path_factory.mktemp("cases"))


@pytest.fixture(scope="session")
def tune_cases(case_programs: CasePrograms) -> Path:
    """The program of the tuner's cases, which finds wrong uses of memory."""
    return case_programs.of("tune", "address,undefined")


@pytest.fixture(scope="session")
def cargo(tmp_path_factory: pytest.TempPathFactory) -> Cargo:
    return Cargo(tmp_path_factory.mktemp("cargo"))
