"""SHA256SUMS: the digest of every other file of a release, as `sha256sum --check` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kiln.errors import ReleaseError
from kiln.release.documents import Entry
from kiln.release.names import SUMS

_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<path>[^\\\r\n]+)")


def write_sums(entries: Iterable[Entry]) -> str:
    """A line a file, sorted by path. Paths are those of `names.check_paths`, of which none needs an escape."""
    return "".join(f"{entry.sha256}  {entry.path}\n" for entry in sorted(entries, key=lambda entry: entry.path))


def read_sums(text: str) -> dict[str, str]:
    """path -> sha256, in the order of the file. Raises ReleaseError for what is no such line, and for a path twice."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or match["path"] in found:
            raise ReleaseError(
                f"{SUMS} has a line that is none of Kiln's" if match is None else f"{SUMS} names a file twice",
                where=f"{SUMS}:{number}",
                expected="a sha256 in hex, two blanks and a path, one line a file",
                actual=ascii(line[:120]),
                remedy="take the release anew from where it was published",
            )
        found[match["path"]] = match["sha256"]
    if text and not text.endswith("\n"):
        raise ReleaseError(
            f"{SUMS} ends within a line",
            where=f"{SUMS}:{len(found)}",
            remedy="take the release anew from where it was published",
        )
    return found
