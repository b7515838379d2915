"""The worlds that the tests of the closure room cut for: sm_90 and gfx942, with the Triton that is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from kiln.closure.world import World

_SPEC = importlib.util.find_spec("triton")
assert _SPEC is not None and _SPEC.origin is not None
TRITON = Path(_SPEC.origin).parent
ENVIRONMENT = {"SET": "1", "UNSET": None}

CUDA = World(
    backend="cuda", arch=90, warp_size=32, triton_version="3.9.0", environment=ENVIRONMENT, triton_folder=TRITON
)
HIP = World(
    backend="hip", arch="gfx942", warp_size=64, triton_version="3.9.0", environment=ENVIRONMENT, triton_folder=TRITON
)
