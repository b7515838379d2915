"""A library's names -> its package for CMake and for pkg-config. Both are right wherever the tree comes to lie."""

from __future__ import annotations

from pathlib import Path

from kiln.packaging.cmake_names import Package, config_files, targets_file
from kiln.packaging.templates import environment

_MACHINES = {"x86_64": ("x86_64", "AMD64", "amd64"), "aarch64": ("aarch64", "arm64", "ARM64")}
"""machine of a host -> what CMake may call it in CMAKE_SYSTEM_PROCESSOR: uname's word, or that of a toolchain file"""


def render_package(package: Package, staging: Path) -> None:
    """Write `cmake_names.config_files`, relative to `staging`."""
    for name, template in config_files(package.library).items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_rendered(package, template), "utf-8")


def targets_text(package: Package) -> str:
    """What the file of imported targets holds, for a build that defines them before it has made anything."""
    return _rendered(package, config_files(package.library)[targets_file(package.library)])


def _rendered(package: Package, template: str) -> str:
    return (
        environment()
        .get_template(template)
        .render(
            library=package.library,
            targets=list(package.targets),
            host=package.host,
            machines=_MACHINES[package.host.partition("-")[0]],
            version=package.version,
        )
    )
