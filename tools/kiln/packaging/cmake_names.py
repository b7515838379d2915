"""The files that tell CMake and pkg-config of a library, beside its archives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Package:
    """What packages say of a library."""

    library: str
    targets: Sequence[str]
    host: str
    """a triplet, as in kernels.yaml"""
    version: str


def config_files(library: str) -> dict[str, str]:
    """What `cmake_package.render_package` writes, relative to the build folder or to a prefix -> its template."""
    folder = f"lib/cmake/{library}/{library}"
    return {
        f"{folder}Config.cmake": "cmake/Config.cmake.j2",
        f"{folder}ConfigVersion.cmake": "cmake/ConfigVersion.cmake.j2",
        targets_file(library): "cmake/Targets.cmake.j2",
        f"lib/pkgconfig/{library}.pc": "cmake/library.pc.j2",
    }


def targets_file(library: str) -> str:
    """The file that defines imported targets; the others find out where it lies."""
    return f"lib/cmake/{library}/{library}Targets.cmake"
