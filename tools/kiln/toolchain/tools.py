"""Finds the tools of a build and identifies each by its content: two tools with one version string are not the same.

Nothing heavy is imported or run here: a build that has nothing to do asks for file stats, and cc for its parts.
"""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kiln.digests import FileDigests
from kiln.errors import ToolchainError
from kiln.files import FOR_ALL, asked_by, below, find_package, names, read, variable, which
from kiln.toolchain.hosts import HOSTS
from kiln.toolchain.targets import Target
from kiln.toolchain.triton_releases import Release, release_of


@dataclass(frozen=True, kw_only=True)
class Triton:
    """An installed Triton: the compilers for NVIDIA and AMD with everything that they bring along."""

    folder: Path
    """the package's folder"""

    @cached_property
    def version(self) -> str:
        """3.9.0, read off the source, for the package is not imported."""
        with asked_by(FOR_ALL):
            text = read(self.folder / "__init__.py").decode()
        found = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        return found.group(1) if found else "unknown"

    @cached_property
    def release(self) -> Release:
        """What is otherwise in this version than in others. Raises ToolchainError for one that Kiln does not know."""
        return release_of(self.version, self.folder)

    def components(self, target: Target, files: FileDigests) -> dict[str, str]:
        """Digests of all that can change an image for `target`, by the name of the part."""
        backend = self.folder / "backends" / ("nvidia" if target.vendor == "nvidia" else "amd")
        own = files.of_all(_sources(backend, self.folder))
        parts = {"triton": files.of_all(self._core), f"triton {target.vendor}": own}
        for part, path in self.parts(target).items():
            parts[part] = files.of(path)
        return parts

    @cached_property
    def _core(self) -> Mapping[str, Path]:
        """libtriton and the Python of language, compiler and runtime; neither backends nor profiler reach an image."""
        core = {
            name: path
            for name, path in _sources(self.folder, self.folder).items()
            if not name.startswith(("backends/nvidia/", "backends/amd/", "profiler/"))
        }
        # The module is named after the interpreter's ABI (libtriton.so, libtriton.abi3.so, ...).
        own = below(self.folder / "_C", ".so")
        core |= {path.name: path for path in own if path.match("_C/libtriton*.so")}
        return core

    def parts(self, target: Target) -> Mapping[str, Path]:
        """The files beside its Python that can change an image for `target`, by the name of the part."""
        if target.vendor == "nvidia":
            nvidia = self.folder / "backends" / "nvidia"
            is_newer = isinstance(target.arch, int) and target.arch >= self.release.blackwell_from
            ptxas = "ptxas-blackwell" if is_newer else "ptxas"
            parts = {"libdevice": nvidia / "lib" / "libdevice.10.bc"}
            return parts if target.kind == "ptx" else {"ptxas": nvidia / "bin" / ptxas, **parts}
        amd = self.folder / "backends" / "amd" / "lib"
        return {name: amd / name for name in names(amd) if name.endswith((".bc", ".so"))}


def own_search_path() -> list[str]:
    """The folders of this Python's own packages, without those of PYTHONPATH and the current one."""
    theirs = {Path(entry).absolute() for entry in (variable("PYTHONPATH") or "").split(os.pathsep) if entry}
    theirs = (theirs | {Path.cwd()}) - {Path(entry) for entry in site.getsitepackages()}
    return [entry for entry in sys.path if entry and Path(entry).absolute() not in theirs]


def installed_triton() -> Triton | None:
    """The Triton of this Python's own packages, which is the one that the children of a build import.

    A `triton` in the project's folder or on PYTHONPATH is none of theirs.
    """
    with asked_by(FOR_ALL):
        folder = find_package("triton", own_search_path())
    return None if folder is None else Triton(folder=folder)


def find_triton() -> Triton:
    """The same, to build with. Raises ToolchainError when there is none."""
    found = installed_triton()
    if found is None:
        raise ToolchainError(
            "Triton is not installed in this Python",
            remedy="install Kiln with its requirements: python3 tools/bootstrap.py, or pip install PATH/OF/KILN",
        )
    return found


_PACKAGES = {"objcopy": ("binutils",), "ar": ("binutils",), "gcc": ("gcc", "libc6-dev")}
"""of Debian, by tool; with what the tool is of no use without"""
_OVERRIDES = {"objcopy": "OBJCOPY", "ar": "AR", "gcc": "CC"}


@dataclass(frozen=True, kw_only=True)
class HostTools:
    """objcopy, ar and cc for the host that a library is linked on: OBJCOPY, AR and CC where they are set, else PATH.

    `host` is one of HOSTS. The plain names are taken where this machine is of that kind, the prefixed ones
    (aarch64-linux-gnu-objcopy) elsewhere. The variables name tools for the library's host, as they do in other builds
    for another machine: a library has one host, and what runs on this machine alone, such as nvcc, has variables of its
    own. Each tool is looked for when it is first asked for, and raises ToolchainError naming its package when it is
    missing.
    """

    host: str

    @cached_property
    def objcopy(self) -> Path:
        return self._find("objcopy")

    @cached_property
    def ar(self) -> Path:
        return self._find("ar")

    @cached_property
    def cc(self) -> Path:
        return self._find("gcc")

    @cached_property
    def compiler_parts(self) -> dict[str, Path]:
        """The C compiler by part: what is called cc is a driver, and the work is done by what it calls."""
        parts = {"cc": self.cc}
        for part in ("cc1", "as"):
            found = which(self._ask_compiler(f"-print-prog-name={part}"))
            if found:
                parts[part] = Path(found)
        return parts

    def compiler_components(self, files: FileDigests) -> dict[str, str]:
        """Digests of the C compiler by part."""
        return {part: files.of(path) for part, path in self.compiler_parts.items()}

    def _ask_compiler(self, question: str) -> str:
        """What cc answers in the environment that it compiles in; nothing where it has no such answer."""
        try:
            done = subprocess.run(
                [str(self.cc), question],
                env={"PATH": variable("PATH") or os.defpath, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(
                f"the C compiler does not answer: {error}", where=str(self.cc), remedy="set CC to a working compiler"
            ) from error
        return done.stdout.decode("utf-8", "replace").strip()

    def _find(self, tool: str) -> Path:
        host = HOSTS[self.host]
        override = _OVERRIDES[tool]
        chosen = variable(override)
        name = chosen or ("" if host.is_this_machine else f"{self.host}-") + tool
        found = which(name)
        if found is not None:
            return Path(found).absolute()
        if chosen:
            raise ToolchainError(
                f"{override} is {name!r}, and no program has that name",
                expected=f"one program, without arguments, that works for {self.host}",
                remedy=f"name another one, or a script that calls it, or unset {override}",
            )
        packages = [host.package(each) for each in _PACKAGES[tool]]
        raise ToolchainError(
            f"{name} is missing: it is needed to build host objects and archives for {self.host}",
            remedy=f"install {' and '.join(packages)} (Debian, Ubuntu: apt-get install {' '.join(packages)}), or set "
            f"{override}",
        )


def _sources(folder: Path, root: Path) -> dict[str, Path]:
    return {path.relative_to(root).as_posix(): path for path in below(folder, ".py")}
