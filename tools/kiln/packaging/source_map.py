"""The sources that go with a library whose images have line tables, and the map from the names there to them.

A debugger looks files up by the virtual names of line tables (kiln.closure.virtual_names). Those below the project's
virtual folder lie below one real folder here, so that a single rule leads from the ones to the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from kiln.closure.virtual_names import CUDA, PROJECT, SYSTEM, TRITON, virtual_name, virtual_path

SCHEMA = 1
"""of the map"""
_FOLDER = "sources"
_ELSEWHERE = {
    TRITON: "the folder of the Python package triton",
    CUDA: "the folder include of the CUDA toolkit",
    SYSTEM: "/ of the machine that built, for headers of the host's compiler and C library",
}
"""virtual folders of files that belong to others, and stay with them"""


def source_files(library: str, names: Iterable[str]) -> tuple[str, ...]:
    """What `write_sources` writes for the project's files of these names, relative to the build folder or a prefix."""
    folder = f"share/{library}"
    return (f"{folder}/source_map.json", *(f"{folder}/{_path(name)}" for name in names))


def write_sources(library: str, files: Mapping[str, Path], staging: Path) -> None:
    """Copy files, by the names that they have on every machine, and write the map beside them. Raises OSError."""
    mapped = {}
    for name, source in files.items():
        data = source.read_bytes()
        path = staging / "share" / library / _path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        mapped[virtual_name(name)] = {"path": _path(name), "sha256": hashlib.sha256(data).hexdigest()}
    said = {
        "schema": SCHEMA,
        "library": library,
        "folders": {PROJECT: _FOLDER},
        "elsewhere": _ELSEWHERE,
        "files": mapped,
    }
    path = staging / "share" / library / "source_map.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said, indent=1) + "\n", "utf-8")


def _path(name: str) -> str:
    """Where a file lies, relative to the map."""
    return f"{_FOLDER}/{virtual_path(name)}"
