"""Record: one image's facts joined with its declaration. Every binding, in every language, is rendered from records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kiln.binaries.facts import Facts
from kiln.manifest.interface import Interface
from kiln.manifest.model import Image


@dataclass(frozen=True, kw_only=True)
class Record:
    """An image, its facts, and the arguments a caller passes."""

    image: Image
    facts: Facts
    interface: Interface
    path: Path
    """the image's file"""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A record before its facts are read: what the parent of a build knows, as plain data for a child."""

    image: Image
    interface: Interface
    path: Path
    facts: Path
    """the file of the image's facts"""


def read_records(sources: Iterable[Source]) -> list[Record]:
    """Join each source with its facts. Raises OSError or ValueError when a facts file is not what was published."""
    return [
        Record(
            image=source.image,
            facts=Facts.from_json(source.facts.read_text("utf-8")),
            interface=source.interface,
            path=source.path,
        )
        for source in sources
    ]
