"""What a run of nvcc finds out that it reads: the names of inputs that no look at the source alone can tell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from kiln.compilers.cuda_request import CudaRequest
from kiln.errors import CompileError

HEADERS = "headers"
"""an input over headers of toolkit and host compiler; the former are called <name>, the latter by their path"""
INCLUDE = "include "
"""an input over one file of the project, whose name stands behind this word"""
LOOKUPS = "lookups"
"""an input over where each include of the files that were read leads: a new file can take the place of another"""


def depfile(text: str) -> list[str]:
    """The files behind the colon of a rule of make, in order, each once."""
    _, _, files = text.replace("\\\n", " ").partition(" :")
    words = re.findall(r"(?:\\.|[^\s\\])+", files)
    return list(dict.fromkeys(re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in words))


def found_by(request: CudaRequest, folder: Path, unit: Path, read: Iterable[str]) -> dict[str, list[str]]:
    """The inputs that follow from the files that were read, as they were spelled in `folder`, the project's.

    `unit` is the file that includes the kernel's source. Raises CompileError for a file that is neither the project's
    nor one of the compilers' own.
    """
    names = {Path(os.path.normpath(folder / name)): name for name in request.source.files}
    nvcc = request.nvcc
    own: list[str] = []
    headers: set[str] = set()
    for spelled in read:
        path = Path(os.path.normpath(folder / spelled))
        real = (folder / spelled).resolve()
        if path in names:
            own.append(names[path])
        elif real.is_relative_to(nvcc.headers):
            headers.add(f"<{real.relative_to(nvcc.headers)}>")
        elif any(real.is_relative_to(each) for each in nvcc.system_headers):
            headers.add(str(path))
        elif path != unit:
            raise CompileError(
                f"the kernel includes {path}, which is no file of the project",
                where=request.source.position,
                expected=f"files of the project and of its `roots`, and headers of {nvcc.nvcc} and {nvcc.cc}",
                actual=str(path),
                remedy="copy the header into the project, or declare its folder under `roots`",
            )
    included = {f"{INCLUDE}{name}": [name] for name in own if name != request.source.name}
    return {**included, LOOKUPS: own, HEADERS: sorted(headers)}
