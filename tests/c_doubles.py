"""Drivers of GPUs that compute nothing, and programs that run with them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

DOUBLES = Path(__file__).parent / "gpu_doubles"

_LIBRARIES = {
    "cuda": [("double_cuda.c", "libcuda.so.1", ())],
    "cuda before 12.0": [("double_cuda.c", "libcuda.so.1", ("-DOLD",))],
    "cuda before 11.8": [("double_cuda.c", "libcuda.so.1", ("-DOLD", "-DOLDER"))],
    "cuda without a function": [("double_cuda.c", "libcuda.so.1", ("-DBROKEN",))],
    "hip": [("double_hip.c", "libamdhip64.so", ())],
    "cuda and hip": [("double_cuda.c", "libcuda.so.1", ()), ("double_hip.c", "libamdhip64.so", ())],
    "none": [],
}

_NAMES = ("libcuda.so.1", "libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")
"""what the runtime looks for"""


@dataclass(frozen=True, kw_only=True)
class Doubles:
    """Folders of drivers, each made when it is first asked for."""

    folder: Path

    def of(self, name: str) -> Path:
        """The folder that LD_LIBRARY_PATH has to begin with."""
        place = self.folder / name.replace(" ", "_")
        if not place.exists():
            place.mkdir()
            for hidden in _NAMES:
                # No library: it stands before a driver that this machine may have.
                (place / hidden).touch()
            for source, library, flags in _LIBRARIES[name]:
                command = ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags]
                subprocess.run([*command, str(DOUBLES / source), "-o", str(place / library)], check=True)
        return place

    def run(
        self, driver: str, program: Path, *arguments: str, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with one of the drivers."""
        found = {**os.environ, "LD_LIBRARY_PATH": str(self.of(driver)), **environment}
        return subprocess.run(
            [str(program), *arguments], input=stdin, capture_output=True, text=True, env=found, timeout=60, check=False
        )
