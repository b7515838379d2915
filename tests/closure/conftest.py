"""Fixtures for the tests of the closure room."""

from __future__ import annotations

from pathlib import Path

import pytest
from closure_scratch import Scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)
