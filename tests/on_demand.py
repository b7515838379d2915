"""The same tests with longer lists: the variable KILN_TESTS_LARGE, set to anything, asks for them."""

from __future__ import annotations

import os
from typing import TypeVar

LARGE = "KILN_TESTS_LARGE"

T = TypeVar("T")


def sized(usual: T, large: T) -> T:
    """What a test takes: the usual, which every run can afford, or on demand the large."""
    return large if os.environ.get(LARGE) else usual
