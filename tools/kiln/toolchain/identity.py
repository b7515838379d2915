"""Which programs and libraries make a manifest's library: each by name, by the version that it gives, and by content.

A build knows its tools by content alone. Here they are for people, and for those who look after versions: what a
release says it was made with, and what kiln.lock holds it to. So programs are run, to be asked for their versions.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from kiln.digests import FileDigests
from kiln.errors import ToolchainError
from kiln.files import FOR_ALL, asked_by, variable
from kiln.manifest.model import FATBIN, Kernel, Manifest
from kiln.toolchain.nvcc import find_fatbinary, find_nvcc
from kiln.toolchain.targets import find
from kiln.toolchain.tools import HostTools, find_triton

Level = Literal["device", "host"]
"""what a tool makes: images and what is said of them, which are the same whatever machine builds; or objects and
archives for the host, which are the same for the same tools"""
LEVELS: tuple[Level, ...] = get_args(Level)

TIME_LIMIT = 60
"""seconds for a program to tell its version"""

_NVIDIA = re.compile(r"^Cuda compilation tools, release [0-9.]+, V([0-9.]+)$", re.MULTILINE)
"""how the programs of a CUDA toolkit give their version, which is not in their first line"""

_OF_GCC = ("cc1", "cc1plus")
"""what gcc runs and nobody else: they take `--version` for a question of gcc's, and compile"""

_OF_NVCC = {"libdevice": "nvcc libdevice", "ptxas": "nvcc ptxas", "cc": "nvcc cc"}
"""the parts that something else has one of too"""

_PREPROCESSING = ("cc", "cc1plus")
"""the parts that are the system's, not the toolkit's"""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One of the tools that ran, or what one of them reads."""

    name: str
    """ptxas, triton amd, ocml.bc: it says what the tool is for, and is the same on every machine"""
    version: str
    """what it says of itself; empty for one that says nothing"""
    sha256: str
    """of its bytes, or over the files of Triton's Python by name"""
    level: Level
    used_for: str
    """in words"""


def identify(manifest: Manifest, digests: FileDigests) -> tuple[Tool, ...]:
    """Every tool that a build of the manifest runs, those of images first: the same order on every machine.

    Raises ToolchainError for one that is missing, or does not run.
    """
    try:
        with asked_by(FOR_ALL):
            return (*_device(manifest, digests), *_host(manifest, digests))
    except OSError as error:
        raise ToolchainError(
            f"a part of the tools cannot be read: {error.strerror}", where=error.filename, remedy=_REMEDY
        ) from error


def _device(manifest: Manifest, digests: FileDigests) -> Iterator[Tool]:
    triton = _targets(manifest, lambda kernel: kernel.cuda is None)
    if triton:
        yield from _of_triton(manifest, triton, digests)
    cuda = _targets(manifest, lambda kernel: kernel.cuda is not None)
    for name, path in find_nvcc().parts.items() if cuda else ():
        if name not in _PREPROCESSING:
            use = f"kernels in CUDA C++ for {', '.join(cuda)}"
            yield _of_file(_OF_NVCC.get(name, name), path, digests, "device", use)
    bundled = _targets(manifest, lambda kernel: kernel.bundle == FATBIN)
    if any(find(name, manifest.target_positions[name]).vendor == "nvidia" for name in bundled):
        yield _of_file("fatbinary", find_fatbinary(), digests, "device", "fat binaries")


def _of_triton(manifest: Manifest, targets: Sequence[str], digests: FileDigests) -> Iterator[Tool]:
    triton = find_triton()
    paths: dict[str, Path] = {}
    sources: dict[str, str] = {}
    uses: dict[str, list[str]] = {}
    for name in targets:
        target = find(name, manifest.target_positions[name])
        parts = triton.parts(target)
        for part, digest in triton.components(target, digests).items():
            # There are two, under their own names, and which one assembles depends on the target.
            own = parts[part].name if part == "ptxas" else part
            uses.setdefault(own, []).append(name)
            if part in parts:
                paths[own] = parts[part]
            else:
                sources[own] = digest
    use = {name: f"kernels in Triton for {', '.join(used)}" for name, used in uses.items()}
    for name, digest in sources.items():
        yield Tool(name=name, version=triton.version, sha256=digest, level="device", used_for=use[name])
    for name, path in paths.items():
        yield _of_file(name, path, digests, "device", use[name])


def _host(manifest: Manifest, digests: FileDigests) -> Iterator[Tool]:
    host = HostTools(host=manifest.host)
    yield _of_file("objcopy", host.objcopy, digests, "host", "objects that hold images")
    yield _of_file("ar", host.ar, digests, "host", "archives")
    for name, path in host.compiler_parts.items():
        yield _of_file(name, path, digests, "host", "objects of records, tables and the C runtime")
    if _targets(manifest, lambda kernel: kernel.cuda is not None):
        parts = find_nvcc().parts
        for name in _PREPROCESSING:
            use = "preprocessing of kernels in CUDA C++"
            yield _of_file(_OF_NVCC.get(name, name), parts[name], digests, "host", use)


def _targets(manifest: Manifest, is_meant: Callable[[Kernel], bool]) -> tuple[str, ...]:
    """What images of some kernels are built for, in order."""
    used = {image.target for image in manifest.images if is_meant(image.variant.kernel)}
    return tuple(name for name in manifest.targets if name in used)


def _of_file(name: str, path: Path, digests: FileDigests, level: Level, used_for: str) -> Tool:
    return Tool(name=name, version=_version(name, path), sha256=digests.of(path), level=level, used_for=used_for)


_REMEDY = "install it anew, or set the variable that names it to one that works"


def _version(name: str, path: Path) -> str:
    """What a program says to `--version`, in one line; nothing for what is no program, or knows no such question."""
    if path.suffix in (".bc", ".so", ".profile") or name in _OF_GCC:
        return ""
    try:
        done = subprocess.run(
            [str(path), "--version"],
            env={"PATH": variable("PATH") or os.defpath, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIME_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        said = error.strerror if isinstance(error, OSError) else f"it does not end within {TIME_LIMIT} s"
        raise ToolchainError(
            f"{name} does not tell its version: {said}", where=str(path), expected="a program that runs here",
            remedy=_REMEDY,
        ) from error  # fmt: skip
    return version_in(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else ""


def version_in(text: str) -> str:
    """The version in what a program prints: NVIDIA's number, or the first line, which names GNU's program too."""
    number = _NVIDIA.search(text)
    if number is not None:
        return number[1]
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line), "")
    return "".join(letter for letter in first if letter.isprintable())[:200]
