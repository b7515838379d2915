"""Which driver a PTX needs."""

from __future__ import annotations

import re

import pytest

from kiln.toolchain.ptx_isa import oldest_driver
from kiln.toolchain.targets import TARGETS


@pytest.mark.parametrize(
    ("isa", "driver"),
    [
        ("7.0", "CUDA 11.0 (driver 450)"),
        ("8.0", "CUDA 12.0 (driver 525)"),
        ("9.0", "CUDA 13.0 (driver 580)"),
        ("9.4", "CUDA 13.4"),
        ("10.0", None),
        ("9.x", None),
    ],
)
def test_the_oldest_driver_of_an_isa(isa: str, driver: str | None) -> None:
    assert oldest_driver(isa) == driver


def test_newer_versions_need_newer_drivers() -> None:
    texts = [oldest_driver(f"{major}.{minor}") for major in (6, 7, 8, 9) for minor in range(9)]
    drivers = [int(found[1]) for text in texts if text and (found := re.search(r"driver (\d+)", text))]
    assert drivers == sorted(set(drivers))
    assert len(drivers) > 20


def test_the_isa_that_targets_are_pinned_to_is_known() -> None:
    pinned = {target.ptx_version for target in TARGETS.values() if target.ptx_version is not None}
    assert pinned
    for version in pinned:
        assert oldest_driver(f"{version // 10}.{version % 10}")
