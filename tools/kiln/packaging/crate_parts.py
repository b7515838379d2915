"""How large the Rust crate is when Cargo packs it for a registry, by target, and how it can be split."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.manifest.model import Manifest
from kiln.packaging.rust_names import crate_files, image_file

LIMIT = 10 << 20
"""bytes of a packed crate that the registry which Cargo knows by default takes"""

_GZIP = 31
"""zlib's word for gzip's format with the largest window"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The images of one target, or all other files of the crate; sizes are bytes."""

    target: str | None
    files: int
    size: int
    packed: int
    """by itself: what is alike in two parts lies too far apart for gzip to gain by it"""


def parts_of(manifest: Manifest, folder: Path) -> list[Part]:
    """The parts of the crate in `folder`: its sources, then a part for each target. Raises OSError for a lost file."""
    owners = {image_file(image): image.target for image in manifest.images}
    files: dict[str | None, list[str]] = {target: [] for target in (None, *manifest.targets)}
    for name in crate_files(manifest):
        files[owners.get(name)].append(name)
    return [_part(target, names, folder) for target, names in files.items()]


def _part(target: str | None, names: Sequence[str], folder: Path) -> Part:
    size = sum((folder / name).stat().st_size for name in names)
    return Part(target=target, files=len(names), size=size, packed=_packed(names, folder))


class _Counter(io.RawIOBase):
    """A file that keeps of what is written to it only how much gzip makes of it, at Cargo's level."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
        self.count = 0

    def write(self, data: Any, /) -> int:
        self.count += len(self._compressor.compress(data))
        return memoryview(data).nbytes

    def end(self) -> int:
        self.count += len(self._compressor.flush())
        return self.count


def _packed(names: Iterable[str], folder: Path) -> int:
    counter = _Counter()
    with tarfile.open(fileobj=counter, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            archive.add(folder / name, arcname=name)
    return counter.end()


def split(parts: Sequence[Part], limit: int) -> list[list[Part]]:
    """The targets, in order, in as few crates as each of them stays below the limit with the sources.

    A target that is above it by itself has one of its own.
    """
    sources = sum(part.packed for part in parts if part.target is None)
    crates: list[list[Part]] = []
    room = 0
    for part in parts:
        if part.target is None:
            continue
        if not crates or part.packed > room:
            crates.append([])
            room = limit - sources
        crates[-1].append(part)
        room -= part.packed
    return crates
