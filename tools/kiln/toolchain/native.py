"""Which targets the GPUs of this machine stand for: what `native` means in `targets`.

NVIDIA's driver is asked in a child process (`nvidia_gpus`). AMD's tells without being called: the Linux kernel writes
its topology into files, one folder a node (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c; the same files as ROCm's
own tools read). A node is a GPU when its `gfx_target_version` is not 0: major x 10000 + minor x 100 + stepping.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.errors import ManifestError, Position
from kiln.toolchain import nvidia_gpus
from kiln.toolchain.targets import TARGETS

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
TIME_LIMIT = 120
"""seconds for the driver to answer: it can take many to wake eight GPUs that nobody uses"""
_VERSION = re.compile(r"^gfx_target_version ([0-9]+)$", re.MULTILINE)
_WRITE_OUT = "write the targets out, as in `targets: [sm_80, sm_90a]`, or build on the machine with the GPU"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of this machine."""

    name: str
    """what people call it: NVIDIA H200 of compute capability 9.0"""
    target: str
    """the target for exactly this GPU, which Kiln may know or not: sm_86, sm_90a, gfx942"""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The GPUs of one vendor, in the driver's order."""

    gpus: tuple[Gpu, ...]
    looked_at: str
    """what was looked at, and what it said, for a message that nothing is there"""


def native_targets(where: Position, *, topology: Path = TOPOLOGY) -> tuple[str, ...]:
    """The targets of this machine's GPUs, in the driver's order, each once; NVIDIA's come before AMD's.

    Raises ManifestError at `where`, the place of the word, where there is none, where a driver fails, and for a GPU
    that Kiln has no target for.
    """
    found = (nvidia(where), amd(topology))
    gpus = [gpu for vendor in found for gpu in vendor.gpus]
    if not gpus:
        raise ManifestError(
            "`native` stands for the GPUs of this machine, and none was found",
            where=where,
            expected="a GPU of NVIDIA or AMD, with its driver",
            actual="; ".join(vendor.looked_at for vendor in found),
            remedy=_WRITE_OUT,
        )
    for gpu in gpus:
        if gpu.target not in TARGETS:
            raise ManifestError(
                f"`native` stands for the GPUs of this machine, and Kiln has no target for one of them: {gpu.name}",
                where=where,
                expected=f"GPUs for {', '.join(_exact())}",
                actual=f"{gpu.target} would be its target",
                remedy="write the targets out; for a GPU of NVIDIA that is newer than all of these, PTX such as "
                "compute_80",
            )
    return tuple(dict.fromkeys(gpu.target for gpu in gpus))


def nvidia(where: Position) -> Found:
    """The GPUs of NVIDIA. Raises ManifestError for a driver that is there and fails, or does not answer."""
    try:
        # Without Python's own variables and site packages; the others say which GPUs and which driver are meant.
        done = subprocess.run(
            [sys.executable, "-I", "-S", nvidia_gpus.__file__],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(where, f"no answer within {TIME_LIMIT} seconds") from None
    answer = _answer(done.stdout)
    if answer is None:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise _failed(where, f"{ended}, asked in a process of its own{f': {said[-1]}' if said else ''}")
    if "failed" in answer:
        raise _failed(where, answer["failed"])
    if "absent" in answer:
        return Found(gpus=(), looked_at=f"no driver of NVIDIA ({answer['absent']})")
    gpus = tuple(
        Gpu(name=f"{name} of compute capability {major}.{minor}", target=_nvidia_target(10 * major + minor))
        for name, major, minor in answer["gpus"]
    )
    return Found(gpus=gpus, looked_at=f"{nvidia_gpus.LIBRARY} knows no GPU that this process may use")


def amd(topology: Path) -> Found:
    """The GPUs of AMD, by the folder of the kernel driver's topology."""
    if not topology.is_dir():
        return Found(gpus=(), looked_at=f"no driver of AMD ({topology} is not there)")
    nodes = sorted((node for node in topology.iterdir() if node.name.isdecimal()), key=lambda node: int(node.name))
    versions = [version for node in nodes if (version := _version(node / "properties")) != 0]
    gpus = tuple(Gpu(name=f"AMD GPU {target}", target=target) for target in map(_amd_target, versions))
    return Found(gpus=gpus, looked_at=f"no GPU that this process may use in {topology}")


def _answer(output: bytes) -> dict[str, Any] | None:
    """What the child printed; None where it ended before."""
    try:
        answer = json.loads(output)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _nvidia_target(capability: int) -> str:
    """Code for exactly this GPU: from 9.0 on Triton compiles no other, and nvcc takes it too."""
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def _amd_target(version: int) -> str:
    """gfx90a for 90010: the stepping is hexadecimal in names."""
    return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"


def _version(properties: Path) -> int:
    """0 for a CPU, and for a GPU that this process may not use: the kernel refuses to show it, or shows nothing."""
    try:
        found = _VERSION.search(properties.read_text("utf-8", "replace"))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _exact() -> list[str]:
    """The targets that a GPU can be: the exact ones, without PTX."""
    numbers = [target.arch for target in TARGETS.values() if target.kind == "cubin" and target.name[-1].isdecimal()]
    return [
        *(_nvidia_target(number) for number in numbers if isinstance(number, int)),
        *(name for name, target in TARGETS.items() if target.kind == "hsaco"),
    ]


def _failed(where: Position, actual: str) -> ManifestError:
    return ManifestError(
        "`native` stands for the GPUs of this machine, and NVIDIA's driver does not tell which they are",
        where=where,
        expected=f"an answer of {nvidia_gpus.LIBRARY}",
        actual=actual,
        remedy="see whether nvidia-smi lists them; or write the targets out",
    )
