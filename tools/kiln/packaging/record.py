"""Record: one image's facts joined with its declaration. Every binding, in every language, is rendered from records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kiln.binaries.facts import Facts
from kiln.manifest.constants import Value
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

    @property
    def constants(self) -> dict[str, Value]:
        """What is compiled in: the constexpr parameters, then the arguments that are promised to be 1."""
        folded = {argument.name: 1 for argument in self.interface.arguments if argument.promise == 1}
        return {**self.interface.constants, **folded}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A record before its facts are read: what the parent of a build knows, as plain data for a child."""

    image: Image
    interface: Interface
    path: Path
    facts: Path
    """the file of the image's facts"""


def read_records(declared: Iterable[Declared]) -> list[Record]:
    """Join each with its facts. Raises OSError or ValueError when a facts file is not what was published."""
    return [
        Record(
            image=one.image,
            facts=Facts.from_json(one.facts.read_text("utf-8")),
            interface=one.interface,
            path=one.path,
        )
        for one in declared
    ]
