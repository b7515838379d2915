"""Projects of Kiln and CMake projects that use them. Shared by the tests of what is installed and what CMake builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from optional_tools import require
from project import REPOSITORY, Result

AWKWARD = "ein Weg ü"
"""a folder's name with what scripts trip over"""

HELPER = """\
import triton


@triton.jit
def grown(x):
    # by half
    return x * 1.5
"""

KERNEL = """\
import triton
import triton.language as tl

from kernels.helper import grown


@triton.jit
def scale_kernel(output_ptr, input_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(input_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, grown(x), mask=mask)
"""

MANIFEST = """\
version: 1
library: LIBRARY
targets: [TARGETS]
kernels:
  scale:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [256]
    name: scale_{dtype}_{block}
    group: scale_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""

LIST = """\
#include <LIBRARY/LIBRARY.h>
#include <stdio.h>

int main(void)
{
    for (size_t i = 0; i < LIBRARY_image_count(); i++) {
        if (!LIBRARY_image_verify(LIBRARY_image_at(i))) return 1;
        puts(LIBRARY_image_id(LIBRARY_image_at(i)));
    }
    return 0;
}
"""
"""prints the names of a library's images"""


def program(name: str) -> Path:
    """A program that came with the tests' Python, or stands on PATH."""
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    assert found, f"the tests need {name}: python3 tools/bootstrap.py test installs it"
    return Path(found)


def make() -> Path:
    """No Python package has it."""
    return require("make", package="make", claim="make")


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Files, and commands that run among them."""

    folder: Path
    cache: Path
    """of what Kiln built: the kernels of one test are those of the next"""

    def write(self, name: str, text: str) -> Path:
        """Write a file, with the text's common indent taken off."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be there."""
        path = self.folder / name
        text = path.read_text("utf-8")
        assert old in text, f"{old!r} is not in {name}"
        path.write_text(text.replace(old, new), "utf-8")

    def write_library(self, folder: str, library: str, targets: str) -> None:
        """Write a project that has nothing but a manifest, a kernel and the file of a helper."""
        self.write(f"{folder}/kernels.yaml", MANIFEST.replace("LIBRARY", library).replace("TARGETS", targets))
        self.write(f"{folder}/kernels/scale.py", KERNEL)
        self.write(f"{folder}/kernels/helper.py", HELPER)

    def run(self, *command: str | Path, inside: str = ".", **environment: str) -> Result:
        """Run a command. Kiln is importable, its Python stands first on PATH."""
        paths = [str(REPOSITORY / "tools"), os.environ.get("PYTHONPATH", "")]
        kept = {name: value for name, value in os.environ.items() if name not in ("DESTDIR", "VIRTUAL_ENV")}
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.folder / inside,
            env={
                **kept,
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "KILN_CACHE": str(self.cache),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=300,
        )
        return Result(code=done.returncode, output=done.stdout)

    def kiln(self, project: str, *words: str, **environment: str) -> Result:
        """Run Kiln's doit in the folder of a project."""
        return self.run(sys.executable, "-m", "kiln", "build", *words, inside=project, **environment)

    def configure(self, source: str, build: str, *options: str, generator: str = "Ninja") -> Result:
        """Configure a CMake project."""
        own = ["-G", generator, *([f"-DCMAKE_MAKE_PROGRAM={program('ninja')}"] if generator == "Ninja" else [])]
        return self.run(program("cmake"), *own, "-S", source, "-B", build, *options)

    def build(self, build: str, *options: str) -> Result:
        """Build it."""
        return self.run(program("cmake"), "--build", build, *options)
