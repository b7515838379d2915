"""The releases of Triton that Kiln builds with, and what is otherwise in one of them than in another.

Measured with the newest wheel of each; tests hold every row against the package itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kiln.errors import ToolchainError


@dataclass(frozen=True, kw_only=True)
class Release:
    """One minor release, such as 3.6."""

    blackwell_from: int
    """the first compute capability whose code its `ptxas-blackwell` assembles, and not its `ptxas`"""
    newest_ptx: int
    """the newest PTX ISA that its `ptxas` reads, which is that of PTX targets; as major x 10 + minor"""
    lacks: frozenset[str] = frozenset()
    """the targets that it does not compile for, of those that another release does"""


RELEASES: Mapping[tuple[int, int], Release] = {
    (3, 6): Release(blackwell_from=100, newest_ptx=87, lacks=frozenset({"sm_110a", "gfx906"})),
    (3, 7): Release(blackwell_from=100, newest_ptx=87, lacks=frozenset({"gfx906"})),
    (3, 8): Release(blackwell_from=100, newest_ptx=88),
    (3, 9): Release(blackwell_from=90, newest_ptx=88, lacks=frozenset({"gfx1030"})),
}
"""by major and minor number, the oldest first; pyproject.toml has the same range"""


def release_of(version: str, folder: Path) -> Release:
    """The row of an installed version, such as 3.6.0, whose package is `folder`.

    Raises ToolchainError for one that is older or newer than all of RELEASES, or has no number.
    """
    found = re.match(r"(\d+)\.(\d+)(?!\d)", version)
    release = RELEASES.get((int(found[1]), int(found[2]))) if found else None
    if release is None:
        oldest, newest = (f"{major}.{minor}" for major, minor in (min(RELEASES), max(RELEASES)))
        raise ToolchainError(
            "Kiln does not build with the Triton that is installed",
            where=str(folder),
            expected=f"Triton {oldest} to {newest}",
            actual=f"Triton {version}" if found else "a package that does not say its version",
            remedy=f'install one of them into the Python that runs Kiln: pip install "{_range()}"',
        )
    return release


def _range() -> str:
    (major, minor), (last, newest) = min(RELEASES), max(RELEASES)
    return f"triton>={major}.{minor},<{last}.{newest + 1}"
