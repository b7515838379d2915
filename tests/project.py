"""A scratch project: write files, run doit in it, and look at what came out. Shared by the tests of whole builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from kiln.engine.trace import TRACE, read_trace
from kiln.project import init

REPOSITORY = Path(__file__).parents[1]

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale_kernel(output_ptr, input_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(input_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x * 2, mask=mask)
"""

MANIFEST = """\
version: 1
library: scratch
targets: [sm_80, gfx942]
kernels:
  scale:
    source: kernels/scale.py
    function: scale_kernel
    dtypes: [fp32]
    blocks: [128, 256]
    name: scale_{dtype}_{block}
    group: scale_{dtype}
    signature: "*{dtype}:16, *{dtype}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command printed, and how it ended."""

    code: int
    output: str
    """standard output and error, in the order in which they were written"""

    def expect(self, *texts: str, code: int = 0) -> Result:
        """Fail unless the command ended with `code` and each text, a regular expression, is in what it printed."""
        assert self.code == code, f"exit code {self.code}, expected {code}\n{self.output}"
        for text in texts:
            assert re.search(text, self.output, re.MULTILINE), f"{text!r} is not in:\n{self.output}"
        return self

    @property
    def counts(self) -> dict[str, int]:
        """`{"built": 4, "up to date": 8, "failed": 0}` from the summary line."""
        line = [line for line in self.output.splitlines() if re.search(r"\d+ built, ", line)][-1]
        return {name: int(number) for number, name in re.findall(r"(\d+) (built|up to date|failed|not tried)", line)}

    def ran(self, kind: str) -> list[str]:
        """The steps of one kind that were built, without the kind: `["scale_fp32_128@sm_80"]`."""
        return re.findall(rf"^\[\d+/\d+\] {kind}:(\S+)$", self.output, re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Project:
    """What `kiln init` makes in a folder, with a small library of two blocks and two targets."""

    folder: Path
    python: str = sys.executable
    """what runs doit there"""

    @classmethod
    def create(cls, folder: Path, *, manifest: str = MANIFEST, **files: str) -> Project:
        """Make the project; `files` are kernel sources, `name=text` for kernels/name.py."""
        init(folder)
        project = cls(folder=folder)
        shutil.rmtree(folder / "kernels")
        project.write("kernels.yaml", manifest)
        for name, text in (files or {"scale": KERNEL}).items():
            project.write(f"kernels/{name}.py", text)
        return project

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must be there."""
        text = self.read(name)
        assert old in text, f"{old!r} is not in {name}"
        self.write(name, text.replace(old, new))

    def read(self, name: str) -> str:
        """A file's text."""
        return (self.folder / name).read_text("utf-8")

    def files(self, below: str = "build") -> set[str]:
        """The files below a folder, relative to it, without Kiln's private ones."""
        root = self.folder / below
        found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith(".kiln/")}

    def rode(self) -> set[str]:
        """The steps of the last build that had no process of their own: one is asked for before it is there."""
        trace = read_trace(self.folder / "build/.kiln" / TRACE)
        spans = trace.spans if trace is not None else ()
        return {span.name for span in spans if span.slot is not None and span.asked == span.began}

    def doit(self, *arguments: str, **environment: str) -> Result:
        """Run doit in the project."""
        return self.run_python("-m", "doit", *arguments, **environment)

    def run_python(self, *arguments: str, inside: bool = True, **environment: str) -> Result:
        """Run the project's Python, with the repository's kiln importable."""
        paths = [str(REPOSITORY / "tools"), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.folder if inside else None,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                # A test neither fills the cache of whoever runs it, nor is spared by it what it is about.
                "KILN_CACHE": "off",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=800,
        )
        return Result(code=done.returncode, output=done.stdout)
