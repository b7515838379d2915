"""What kernels.yaml says of releases: its section `release`, the most that a release may hold for each target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiln.errors import ManifestError, did_you_mean
from kiln.manifest.files import ManifestFile, entries_of
from kiln.manifest.model import Budget
from kiln.manifest.targets import LibraryTargets
from kiln.manifest.wording import show

SECTION = "release"
SIZE = f"{SECTION}.size"


def read_release_sizes(file: ManifestFile, library: LibraryTargets) -> dict[str, Budget]:
    """Target -> the most bytes that its images may have together, in the library's order; empty without a section.

    Raises ManifestError for a target that the library is not built for. With native among its targets that is left
    open: kernels.yaml is borrowed then from a library that is built for others.
    """
    given: Mapping[str, Any] = file.values[SECTION]
    if "size" not in given:
        return {}
    entries = entries_of(entries_of(file.entries[SECTION].value)["size"].value)
    for name, entry in entries.items():
        if name not in library.names and not library.native:
            guess, otherwise = did_you_mean(name, library.names), "remove it, or add the target to `targets`"
            raise ManifestError(
                f"`{SIZE}` has the target {show(name)}, which the library is not built for",
                where=entry.key.position,
                expected=f"targets among {', '.join(library.names)}",
                actual=show(name),
                remedy=f"{guess} if not, {otherwise}" if guess else otherwise,
            )
    return {
        name: Budget(limit=given["size"][name], name=f"{SIZE}.{name}", position=entries[name].key.position)
        for name in library.names
        if name in entries
    }
