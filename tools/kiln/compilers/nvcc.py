"""Compiles one kernel with nvcc, in a folder that holds the files of its source and nothing else of the project.

Runs in a child of the fork server. nvcc makes PTX first; the kernel is taken out of it, for a file may define several,
and then assembled. So the image of a kernel depends on no other kernel of its file, and on no path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiln.compilers.cuda_request import CudaRequest
from kiln.compilers.cuda_unit import ENTRY, unit
from kiln.compilers.nvcc_found import LOOKUPS, depfile, found_by
from kiln.compilers.ptx_entry import cluster_of, is_whole, only_entry, symbol_of, without_path
from kiln.compilers.request import Compiled, CompilerMetadata
from kiln.errors import CompileError, Position

_UNIT = "unit.cu"
_ERROR = re.compile(
    r"^(?:(?P<file>[^\s():][^():\n]*)(?:\((?P<a>\d+)\)|:(?P<b>\d+)(?::\d+)?))?:? ?"
    r"(?:catastrophic |fatal )?error(?: #\S+)?\s*: (?P<text>.*)"
    r"|^(?P<tool>ptxas|nvcc|cicc|gcc|cc1plus)\b[^\n]*?\b(?:fatal|error)\b\s*:\s*(?P<said>.*)",
    re.MULTILINE,
)
_UNDEFINED = re.compile(r'^(?:incomplete type|identifier) .*?"(__(?:half|nv_\w+))"')
_TYPES = {
    "__half": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_fp8_e4m3": "cuda_fp8.h",
    "__nv_fp8_e5m2": "cuda_fp8.h",
}
"""the types that {T} stands for and that headers of the toolkit define"""
_FULL = 1 << 20
"""bytes: with fewer left, what a tool wrote may be cut short"""


@dataclass(frozen=True, kw_only=True)
class CudaCompiled:
    """An image, and what was read to make it."""

    compiled: Compiled
    found: Mapping[str, Sequence[str]]


def compile_cuda(request: CudaRequest, log: Path) -> CudaCompiled:
    """The image of one request. `log` is the file that standard output and error go to.

    Works below the current folder, which must be empty and private. Raises CompileError naming the source's line.
    """
    base = Path.cwd() / "project"
    folder = base.joinpath(*["inner"] * _depth(request))
    folder.mkdir(parents=True)
    for name, data in request.source.files.items():
        path = Path(os.path.normpath(folder / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (base.parent / _UNIT).write_text(unit(request), "utf-8", errors="surrogateescape")
    compiler = _Compiler(request=request, log=log, folder=folder, top=base.parent)
    text = compiler.front()
    symbol = symbol_of(text, ENTRY)
    if symbol is None or not is_whole(text):
        raise _incomplete(request, base.parent)
    text = only_entry(text, symbol, ENTRY, request.options.get("maxnreg"))
    (base.parent / "image.ptx").write_text(text, "utf-8")
    # A PTX is assembled as well: what ptxas refuses would be refused by every driver.
    cubin = compiler.assemble()
    data = text.encode() if request.target.kind == "ptx" else cubin
    found = found_by(request, folder, base.parent / _UNIT, compiler.read())
    if request.source.name not in found[LOOKUPS]:
        raise _incomplete(request, base.parent)
    return CudaCompiled(compiled=Compiled(data=data, metadata=_metadata(request, symbol, text)), found=found)


def _depth(request: CudaRequest) -> int:
    """How far names of files lead out of the project's folder."""
    return max(name.split("/").count("..") for name in [*request.source.files, *request.source.roots, ""])


def _unit_name(request: CudaRequest) -> str:
    """Our own file, as it is called in the project's folder."""
    return "../" * (_depth(request) + 1) + _UNIT


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    request: CudaRequest
    log: Path
    folder: Path
    """the project's, where nvcc runs: files have the names that they have in the project"""
    top: Path
    """what nvcc makes lies here"""

    def front(self) -> str:
        number = self.request.target.name.partition("_")[2]
        self._run(
            "-ptx",
            f"-arch=compute_{number}",
            "-MD",
            "-MF",
            str(self.top / "depfile"),
            # For quoted includes only: a file `version` in the project is not the header of that name.
            *("-Xcompiler", "-iquote", "-Xcompiler", "."),
            *(word for root in self.request.source.roots for word in ("-I", root)),
            _unit_name(self.request),
            "-o",
            str(self.top / "front.ptx"),
        )
        return self._read("front.ptx").decode("utf-8", "replace")

    def assemble(self) -> bytes:
        number = self.request.target.name.partition("_")[2]
        self._run("-cubin", f"-arch=sm_{number}", "../image.ptx", "-o", "../image.cubin", folder=self.top / "project")
        return self._read("image.cubin")

    def read(self) -> list[str]:
        """What the preprocessor opened, as it was spelled."""
        return depfile(self._read("depfile").decode("utf-8", "surrogateescape"))

    def _run(self, *arguments: str, folder: Path | None = None) -> None:
        start = self.log.stat().st_size
        command = [
            str(self.request.nvcc.nvcc),
            "-ccbin",
            str(self.request.nvcc.cc),
            *self.request.flags,
            *_cap(self.request),
        ]
        # TMPDIR and HOME are private; nothing else of the caller's environment reaches the tools.
        passed = ("PATH", "TMPDIR", "HOME", "SOURCE_DATE_EPOCH")
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder or self.folder,
            env={"LC_ALL": "C", **{name: os.environ[name] for name in passed if name in os.environ}},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            with self.log.open("rb") as file:
                file.seek(start)
                raise _failure(self.request, self.top, done.returncode, file.read(1 << 20).decode("utf-8", "replace"))

    def _read(self, name: str) -> bytes:
        path = self.top / name
        if not path.is_file() or path.stat().st_size == 0:
            raise _incomplete(self.request, self.top)
        return path.read_bytes()


def _cap(request: CudaRequest) -> list[str]:
    """The cap on registers for cicc, which plans with it; ptxas finds it in the PTX."""
    cap = request.options.get("maxnreg")
    return [] if cap is None else [f"--maxrregcount={cap}"]


def _metadata(request: CudaRequest, symbol: str, text: str) -> CompilerMetadata:
    release = re.search(r"\brelease [\d.]+, V([\d.]+)", text)
    asked = (request.options.get("num_ctas", 1), 1, 1)
    demanded = cluster_of(text)
    if demanded is not None and asked != (1, 1, 1) and demanded != asked:
        raise CompileError(
            f"the kernel demands another cluster than num_ctas says in {request.declared.file}",
            where=request.source.position,
            expected=f"{asked[0]} x 1 x 1 blocks, by num_ctas",
            actual=f"{' x '.join(map(str, demanded))}, by its __cluster_dims__",
            remedy="leave num_ctas out where the source says it",
        )
    return CompilerMetadata(
        entry=without_path(symbol),
        warps=-(-request.threads // request.target.warp_size),
        warp_size=request.target.warp_size,
        cluster=demanded or asked,
        cooperative=bool(request.options.get("launch_cooperative_grid", False)),
        pdl=bool(request.options.get("launch_pdl", False)),
        shared_dynamic=request.shared,
        global_scratch_bytes=0,
        global_scratch_align=1,
        profile_scratch_bytes=0,
        profile_scratch_align=1,
        tools={"nvcc": release[1]} if release else {},
        threads=request.threads,
        hidden=False,
    )


def _incomplete(request: CudaRequest, folder: Path) -> CompileError:
    """For an end without an error, and without a whole file."""
    if shutil.disk_usage(folder).free < _FULL:
        return CompileError(
            "no space left on the disk: nvcc left a file that is cut short, and no word of it",
            where=request.image_id,
            remedy="make room on the disk of the build folder and run again; finished work is kept",
        )
    return CompileError(
        "nvcc ended as if all were well, and made no whole image",
        where=request.source.position,
        expected=f"a PTX with the kernel {request.function}",
        remedy=f"see what it printed, and whether {request.nvcc.nvcc} is the nvcc of a whole toolkit",
    )


def _failure(request: CudaRequest, top: Path, code: int, output: str) -> CompileError:
    """What went wrong as people read it: the place in the source, the first errors, and nothing of our own file."""
    errors = list(_ERROR.finditer(output))
    if not errors:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = [line.strip() for line in output.splitlines() if line.strip()][-1:]
        return CompileError(
            f"nvcc ended with {how} and named no error", where=request.source.position, actual="".join(last) or None
        )
    first, *more = errors
    what = _text(first, request)
    lines = [f"    {line}" for line in _excerpt(output, first)]
    where = _place(first, request) or request.source.position
    others = [f"{_place(error, request) or ''}: {_text(error, request)}".lstrip(": ") for error in more]
    others = [line for line in dict.fromkeys(others) if line != f"{where}: {what}"][:3]
    remedy = None
    if where == request.declared:
        lines = []
        remedy = f"compare `function` and `signature` with {request.source.function} at {request.source.position}"
    undefined = _UNDEFINED.search(what)
    if undefined is not None and undefined[1] in _TYPES:
        what, where, lines, others = f"the source does not define {undefined[1]}", request.source.position, [], []
        remedy = f"add #include <{_TYPES[undefined[1]]}> to {request.source.name}"
    if "unsupported GNU version" in what or "unsupported clang version" in what:
        remedy = f"set NVCC_CCBIN to a gcc that this nvcc supports; {request.nvcc.cc} is too new for it"
    return CompileError("\n".join([what, *lines]), where=where, actual="; ".join(others) or None, remedy=remedy)


def _text(error: re.Match[str], request: CudaRequest) -> str:
    if error["tool"] is not None:
        return f"{error['tool']}: {error['said'].strip()}"
    text = error["text"].strip()
    asserted = re.fullmatch(r'static assertion failed with "(.*)"', text)
    return asserted[1] if asserted and error["file"] == _unit_name(request) else text


def _place(error: re.Match[str], request: CudaRequest) -> Position | None:
    """The place in the project's file; for our own file, that of `function` in kernels.yaml."""
    if error["tool"] is not None or error["file"] is None:
        return None
    name = error["file"].strip()
    if name == _unit_name(request):
        return request.declared
    return Position(file=os.path.normpath(name), line=int(error["a"] or error["b"]))


def _excerpt(output: str, error: re.Match[str]) -> list[str]:
    """The line of source that nvcc shows below an error, with the caret under it."""
    below = output[error.end() :].split("\n")[1:3]
    if len(below) < 2 or set(below[1].strip()) - set("^~"):
        return []
    shift = min(len(line) - len(line.lstrip()) for line in below)
    return [line[shift:] for line in below]
