"""Finds nvcc with the toolkit around it and the host compiler that it preprocesses with, and identifies each part.

nvcc is a driver: a kernel is preprocessed by gcc, compiled by cicc with libdevice, and assembled by ptxas. Nothing is
run here but gcc, which is asked where its parts are.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kiln import files
from kiln.digests import FileDigests
from kiln.errors import ToolchainError
from kiln.toolchain.tools import own_search_path

_WHEEL = "nvidia/cu13/bin/nvcc"
"""where the packages of CUDA 13 on PyPI have it, below the folder that packages are installed in"""
_INSTALL = (
    "install Kiln with it: pip install 'PATH/OF/KILN[cuda]'; or set CUDA_HOME to the folder of a CUDA toolkit, or NVCC "
    "to its nvcc"
)
_INSTALL_GCC = "install g++ (Debian, Ubuntu: apt-get install g++), or set NVCC_CCBIN to a gcc that comes with C++"


@dataclass(frozen=True, kw_only=True)
class Nvcc:
    """nvcc, its toolkit, and its host compiler: absolute paths."""

    nvcc: Path
    """links followed, for nvcc finds its toolkit from where it lies itself"""
    cc: Path
    """the gcc that it preprocesses with"""

    @property
    def toolkit(self) -> Path:
        """The toolkit's folder, which holds bin, nvvm and include."""
        return self.nvcc.parents[1]

    @property
    def headers(self) -> Path:
        """The toolkit's own headers, links followed."""
        return files.real(self.toolkit / "include")

    @cached_property
    def parts(self) -> dict[str, Path]:
        """What makes PTX of a kernel, by name. Raises ToolchainError for a toolkit that lacks a part."""
        nvvm = self.toolkit / "nvvm"
        parts = {
            "nvcc": self.nvcc,
            "nvcc.profile": self.nvcc.with_name("nvcc.profile"),
            "cicc": nvvm / "bin" / "cicc",
            "libdevice": nvvm / "libdevice" / "libdevice.10.bc",
            "ptxas": self.nvcc.with_name("ptxas"),
        }
        for path in (*parts.values(), self.headers / "cuda_runtime.h"):
            if not files.is_file(path):
                raise ToolchainError(
                    f"the CUDA toolkit around nvcc lacks {path.name}",
                    where=str(self.nvcc),
                    expected=f"a file {path}",
                    remedy="set CUDA_HOME to the folder of a whole CUDA toolkit; a script that calls nvcc does not do",
                )
        parts["cc"] = self.cc
        parts["cc1plus"] = self._cc1plus
        return parts

    def components(self, digests: FileDigests) -> dict[str, str]:
        """Digests of all that can change an image, but for headers, by the name of the part."""
        return {part: digests.of(path) for part, path in self.parts.items()}

    @cached_property
    def _cc1plus(self) -> Path:
        """gcc's compiler of C++, which is a package of its own: with C alone gcc cannot preprocess a kernel."""
        found = files.which(self._ask("-print-prog-name=cc1plus").strip())
        if found is None:
            raise ToolchainError("the host compiler of nvcc cannot read C++", where=str(self.cc), remedy=_INSTALL_GCC)
        return Path(found)

    @cached_property
    def system_headers(self) -> tuple[Path, ...]:
        """The folders of the host compiler's own headers, links followed; none for what a machine's user put up."""
        said = self._ask("-x", "c++", "-E", "-v", os.devnull)
        listed = re.search(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", said, re.M | re.S)
        folders = [files.real(Path(line.strip())) for line in listed[1].splitlines()] if listed else []
        return tuple(folder for folder in folders if not folder.is_relative_to("/usr/local/include"))

    def _ask(self, *question: str) -> str:
        """What gcc answers on both streams."""
        try:
            done = subprocess.run(
                [str(self.cc), *question],
                env={"PATH": files.variable("PATH") or os.defpath, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(
                f"the host compiler of nvcc does not answer: {error}", where=str(self.cc), remedy=_INSTALL_GCC
            ) from error
        return done.stdout.decode("utf-8", "replace")


def find_nvcc() -> Nvcc:
    """nvcc from NVCC or CUDA_HOME where one is set, else of this Python's packages, else from PATH.

    Its host compiler is NVCC_CCBIN where that is set, else gcc from PATH. Raises ToolchainError when one is missing.
    """
    name = files.variable("NVCC_CCBIN") or "gcc"
    cc = files.which(name)
    if cc is None:
        raise ToolchainError(f"{name} is missing: nvcc preprocesses with it", remedy=_INSTALL_GCC)
    nvcc = _find()
    if nvcc is None:
        raise ToolchainError("nvcc is missing: kernels in CUDA C++ are compiled with it", remedy=_INSTALL)
    return Nvcc(nvcc=files.real(nvcc), cc=Path(cc).absolute())


def find_fatbinary() -> Path:
    """The program that makes fat binaries, beside the nvcc that `find_nvcc` takes.

    Raises ToolchainError when there is no nvcc, or when its toolkit lacks it.
    """
    found = _find()
    if found is None:
        raise ToolchainError(
            "fatbinary is missing, a program of a CUDA toolkit: fat binaries are made with it",
            remedy=f"{_INSTALL}; or write `bundle: separate`",
        )
    nvcc = files.real(found)
    path = nvcc.with_name("fatbinary")
    if not files.is_file(path):
        raise ToolchainError(
            "the CUDA toolkit around nvcc lacks fatbinary, which makes fat binaries",
            expected=f"a file {path}",
            remedy="set CUDA_HOME to the folder of a whole CUDA toolkit; or write `bundle: separate`",
        )
    return path


def _find() -> Path | None:
    asked, home = files.variable("NVCC"), files.variable("CUDA_HOME")
    if asked:
        return _required(asked, f"NVCC is {asked!r}", "unset NVCC, or set it to the nvcc of a CUDA toolkit")
    if home:
        remedy = "unset CUDA_HOME, or set it to the folder of a CUDA toolkit"
        return _required(str(Path(home) / "bin" / "nvcc"), f"CUDA_HOME is {home!r}", remedy)
    for folder in own_search_path():
        path = Path(folder) / _WHEEL
        if files.is_file(path):
            return path
    named = files.which("nvcc")
    return None if named is None else Path(named)


def _required(name: str, said: str, remedy: str) -> Path:
    found = files.which(name)
    if found is None:
        raise ToolchainError(f"{said}, and there is no program {name}", expected="a program nvcc", remedy=remedy)
    return Path(found).absolute()
