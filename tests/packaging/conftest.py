"""Real softmax images, compiled once for all tests of this folder."""

from __future__ import annotations

import pytest
from c_library import Package, build_package
from softmax_images import make_records

from kiln.packaging.record import Record


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """softmax in fp32 and fp16 for sm_80, sm_90a, compute_80 and gfx942."""
    return make_records(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def package(records: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The C package of `records`, as a library named kernels."""
    return build_package(records, tmp_path_factory.mktemp("package") / "c")
