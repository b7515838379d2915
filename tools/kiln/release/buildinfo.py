"""buildinfo.json: what a release was made with, for whoever makes it again. Of no machine, no time and no folder."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from kiln.errors import ToolchainError
from kiln.release.commands import commands, environments
from kiln.release.documents import Package, Shape, read_json, schema_of, write_json
from kiln.release.names import BUILDINFO, PACKAGES, Level
from kiln.release.plan import ReleasePlan
from kiln.toolchain.identity import Tool

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class BuildInfo:
    """buildinfo.json, read."""

    kiln_version: str
    kiln_sha256: str
    python: str
    """cpython-311: the interpreter, and the ABI that Triton's wheel is for"""
    machine: str
    """x86_64"""
    is_locked: bool
    tools: tuple[Tool, ...]
    packages: tuple[Package, ...]
    commands: tuple[Mapping[str, Any], ...]
    environments: Mapping[str, Mapping[str, Any]]


_ENVIRONMENT: Shape = {"passed": [str], "fixed": {"*": str}}
_SHAPE: Shape = {
    "schema": int,
    "kiln": {"version": str, "sha256": str},
    "python": str,
    "machine": str,
    "locked": bool,
    "tools": [{"name": str, "version": str, "sha256": str, "level": str, "used_for": str}],
    "packages": {"*": str},
    "commands": [
        {"steps": str, "tool": str, "arguments": [str], "script": str, "environment": str},
    ],
    "environments": {"*": _ENVIRONMENT},
}


def python_abi() -> str:
    """cpython-311"""
    return sys.implementation.cache_tag or f"{sys.implementation.name}-{sys.version_info[0]}{sys.version_info[1]}"


def packages() -> tuple[Package, ...]:
    """The installed packages of `names.PACKAGES`. Raises ToolchainError for one that is not there."""
    found = []
    for name in PACKAGES:
        try:
            found.append(Package(name=name, version=version(name)))
        except PackageNotFoundError as error:
            raise ToolchainError(
                f"the Python package {name} is not installed, or not as a package",
                remedy="install what releases are made with: pip install 'PATH/OF/KILN[release]'",
            ) from error
    return tuple(found)


def write_buildinfo(plan: ReleasePlan, used: Sequence[Package]) -> str:
    """`used` are the `packages()`."""
    return write_json(
        {
            "schema": SCHEMA,
            "kiln": {"version": plan.kiln_version, "sha256": plan.kiln_sha256},
            "python": python_abi(),
            "machine": platform.machine(),
            "locked": plan.is_locked,
            "tools": [
                {
                    "name": tool.name,
                    "version": tool.version,
                    "sha256": tool.sha256,
                    "level": tool.level,
                    "used_for": tool.used_for,
                }
                for tool in plan.tools
            ],
            "packages": {package.name: package.version for package in used},
            "commands": [dataclasses.asdict(command) for command in commands(plan)],
            "environments": {name: dataclasses.asdict(each) for name, each in environments().items()},
        }
    )


def read_buildinfo(text: str) -> BuildInfo:
    """Raises ReleaseError for what `write_buildinfo` does not write."""
    data = read_json(text, _SHAPE, BUILDINFO)
    schema_of(data, SCHEMA, BUILDINFO)
    return BuildInfo(
        kiln_version=data["kiln"]["version"],
        kiln_sha256=data["kiln"]["sha256"],
        python=data["python"],
        machine=data["machine"],
        is_locked=data["locked"],
        tools=tuple(
            Tool(
                name=tool["name"],
                version=tool["version"],
                sha256=tool["sha256"],
                level=cast(Level, tool["level"]),
                used_for=tool["used_for"],
            )
            for tool in data["tools"]
        ),
        packages=tuple(Package(name=name, version=each) for name, each in data["packages"].items()),
        commands=tuple(data["commands"]),
        environments=data["environments"],
    )
