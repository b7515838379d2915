"""Record: one image's facts joined with its declaration. Every binding, in every language, is rendered from records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kiln.binaries.facts import Facts
from kiln.closure.interface import Interface
from kiln.manifest.model import Image


@dataclass(frozen=True, kw_only=True)
class Record:
    """An image, its facts, and the arguments a caller passes."""

    image: Image
    facts: Facts
    interface: Interface
    path: Path
    """the image's file"""
