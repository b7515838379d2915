"""What the step `release` does, in a child of its own: plain data in, the release below `staging` out."""

from __future__ import annotations

from pathlib import Path

from kiln.errors import ToolchainError
from kiln.release.plan import ReleasePlan

_MODULES = ("cyclonedx", "google", "in_toto_attestation", "packageurl")
"""what the extra `release` brings"""


def make_release(plan: ReleasePlan, staging: Path) -> None:
    """Make a release, see `kiln.release.make`. Raises ToolchainError where what writes its documents is missing."""
    try:
        from kiln.release.make import make
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _MODULES:
            raise
        raise ToolchainError(
            f"a Python package that releases are made with is not installed: {error.name}",
            remedy="pip install 'PATH/OF/KILN[release]', or python3 tools/bootstrap.py in Kiln's own repository",
        ) from error
    make(plan, staging)
