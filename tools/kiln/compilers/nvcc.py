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

from kiln.closure.virtual_names import CUDA, SYSTEM, plain, virtual_name
from kiln.compilers.cuda_messages import failure, out_of_memory, out_of_space, with_own_lines
from kiln.compilers.cuda_request import CudaRequest
from kiln.compilers.cuda_unit import ENTRY, unit
from kiln.compilers.nvcc_found import LOOKUPS, depfile, found_by
from kiln.compilers.ptx_entry import (
    block_of,
    cluster_of,
    has_name,
    is_whole,
    most_blocks,
    most_threads,
    only_entry,
    symbol_of,
    uses_dynamic_shared,
    version_of,
    with_symbol,
    with_version,
    without_path,
)
from kiln.compilers.ptx_lines import with_virtual_files, without_lines
from kiln.compilers.ptxas_log import spilled_bytes, without_report
from kiln.compilers.request import Compiled, CompilerMetadata
from kiln.digests import digest_json
from kiln.errors import CompileError
from kiln.stages import timed
from kiln.toolchain.ptx_isa import oldest_driver

PASSED = ("PATH", "TMPDIR", "HOME", "SOURCE_DATE_EPOCH")
"""variables of a child's environment that the tools get: TMPDIR and HOME are private there, and of the user's there is
PATH alone"""
SET = {"LC_ALL": "C"}
"""others that they get"""

_UNIT = "unit.cu"
_FULL = 64 << 20
"""bytes: with fewer left, what ends without a word has most likely found the disk full. nvcc removes what it wrote
meanwhile, several MiB, so there is room again when it has ended."""


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
    for name, file in request.source.files.items():
        path = Path(os.path.normpath(folder / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        os.utime(path, (0, _seconds(name)))
    (base.parent / _UNIT).write_text(unit(request), "utf-8", errors="surrogateescape")
    compiler = _Compiler(request=request, log=log, folder=folder, top=base.parent)
    with timed("nvcc"):
        text = compiler.front()
        symbol = symbol_of(text, ENTRY)
        if symbol is None or not is_whole(text):
            raise _incomplete(request, base.parent)
    text = only_entry(text, symbol, ENTRY, request.options.get("maxnreg"))
    symbol = without_path(symbol)
    if request.entry is not None:
        text, symbol = _renamed(request, text, symbol), request.entry
    _check_launch(request, text)
    # A PTX is assembled as well: what ptxas refuses would be refused by every driver.
    with timed("ptxas"):
        data, spills = compiler.assemble(text, lines=request.debug)
        if request.target.kind == "ptx":
            text = _in_declared_version(compiler, text, data)
            data, spills = text.encode(), None
    found = found_by(request, folder, base.parent / _UNIT, compiler.read())
    if request.source.name not in found[LOOKUPS]:
        raise _incomplete(request, base.parent)
    return CudaCompiled(compiled=Compiled(data=data, metadata=_metadata(request, symbol, text, spills)), found=found)


def _seconds(name: str) -> int:
    """When a file was last changed, as `__TIMESTAMP__` tells: the same in each build, another one for each file.

    gcc takes files of one text and one time for one file, and by `#pragma once` leaves out all but the first.
    """
    return int(digest_json(name)[:7], 16)


def _depth(request: CudaRequest) -> int:
    """How far names of files lead out of the project's folder."""
    return max(name.split("/").count("..") for name in [*request.source.files, *request.source.roots, ""])


def _unit_name(request: CudaRequest) -> str:
    """Our own file, as it is called in the project's folder."""
    return "../" * (_depth(request) + 1) + _UNIT


def front_arguments(
    target: str, *, includes: Sequence[str], lines: bool, depfile: str, unit: str, output: str
) -> list[str]:
    """What nvcc is given to make PTX, after host compiler, flags and cap on registers."""
    return [
        "-ptx",
        f"-arch=compute_{_number(target)}",
        *("-MD", "-MF", depfile),
        # For quoted includes only: a file `version` in the project is not the header of that name.
        *("-Xcompiler", "-iquote", "-Xcompiler", "."),
        *includes,
        *(("-lineinfo",) if lines else ()),
        *(unit, "-o", output),
    ]


def assembly_arguments(target: str, *, lines: bool) -> list[str]:
    """What it is given to make a cubin of that."""
    return [
        *(("-lineinfo",) if lines else ()),
        *("-cubin", f"-arch=sm_{_number(target)}", "-Xptxas", "-v", "../image.ptx", "-o", "../image.cubin"),
    ]


def _number(target: str) -> str:
    """90a of sm_90a."""
    return target.partition("_")[2]


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    request: CudaRequest
    log: Path
    folder: Path
    """the project's, where nvcc runs: files have the names that they have in the project"""
    top: Path
    """what nvcc makes lies here"""

    def front(self) -> str:
        self._run(
            front_arguments(
                self.request.target.name,
                includes=[word for root in self.request.source.roots for word in ("-I", root)],
                lines=self.request.debug,
                depfile=str(self.top / "depfile"),
                unit=_unit_name(self.request),
                output=str(self.top / "front.ptx"),
            )
        )
        text = self._read("front.ptx").decode("utf-8", "replace")
        named = with_virtual_files(text, self._virtual) if self.request.debug else text
        if named is None:
            raise _incomplete(self.request, self.top)
        return named

    def _virtual(self, file: str) -> str:
        """What line tables call a file; one that nvcc should not have read keeps its path, which is refused later."""
        path = Path(os.path.normpath(self.folder / file))
        nvcc, real = self.request.nvcc, path.resolve()
        for name in self.request.source.files:
            if path == Path(os.path.normpath(self.folder / name)):
                return virtual_name(name)
        if real.is_relative_to(nvcc.headers):
            return f"{CUDA}/{plain(real.relative_to(nvcc.headers).as_posix())}"
        if any(real.is_relative_to(each) for each in nvcc.system_headers):
            return f"{SYSTEM}{plain(path.as_posix())}"
        return f"/<{_UNIT}>" if path == self.top / _UNIT else plain(file)

    def assemble(self, text: str, *, lines: bool) -> tuple[bytes, int | None]:
        """The cubin of a PTX, with a line table or without, and the bytes that a thread spills."""
        (self.top / "image.ptx").write_text(text, "utf-8")
        said = self._run(assembly_arguments(self.request.target.name, lines=lines), folder=self.top / "project")
        return self._read("image.cubin"), spilled_bytes(said)

    def read(self) -> list[str]:
        """What the preprocessor opened, as it was spelled."""
        return depfile(self._read("depfile").decode("utf-8", "surrogateescape"))

    def _run(self, arguments: Sequence[str], folder: Path | None = None) -> str:
        """What the tools printed. Raises CompileError when they end with an error, MemoryError when for want of it."""
        start = self.log.stat().st_size
        command = [str(self.request.nvcc.nvcc), "-ccbin", str(self.request.nvcc.cc)]
        command += [*self.request.flags, *_cap(self.request)]
        done = subprocess.run(
            [*command, *arguments],
            cwd=folder or self.folder,
            env={**SET, **{name: os.environ[name] for name in PASSED if name in os.environ}},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        with self.log.open("r+b") as file:
            file.seek(start)
            printed = file.read(1 << 20).decode("utf-8", "replace")
            # Who reads the log has the author's files in front of them, not those that were compiled.
            file.seek(start)
            file.truncate()
            shown = without_report(with_own_lines(printed, self.request, _unit_name(self.request)))
            file.write(shown.encode("utf-8", "replace"))
        if done.returncode != 0:
            raise self._failure(done.returncode, printed)
        return printed

    def _failure(self, code: int, printed: str) -> Exception:
        if out_of_memory(printed):
            return MemoryError()
        full = out_of_space(printed)
        # On a full disk the error itself has no room in the log.
        if full or (full is None and _is_full(self.top)):
            return _no_space(self.request, self.top)
        return failure(self.request, _unit_name(self.request), code, printed)

    def _read(self, name: str) -> bytes:
        path = self.top / name
        if not path.is_file() or path.stat().st_size == 0:
            raise _incomplete(self.request, self.top)
        return path.read_bytes()


def _renamed(request: CudaRequest, text: str, symbol: str) -> str:
    """The PTX with its kernel named after the variant. Raises CompileError where something else has that name."""
    assert request.entry is not None
    if symbol != request.entry and has_name(text, request.entry):
        raise CompileError(
            f"{request.source.name} has something else that is called {request.entry}, as the variant is",
            where=request.source.position,
            expected=f"a name that only the kernel has, by `entry_names: variant` in {request.declared.file}",
            actual=f"{symbol} and {request.entry}",
            remedy="rename either, or set `entry_names: function` for the kernel",
        )
    return with_symbol(text, symbol, request.entry)


def _check_launch(request: CudaRequest, text: str) -> None:
    """Refuse what the kernel's own code says cannot be launched as it is declared. Raises CompileError."""
    source, most = request.source, most_threads(text)
    if most is not None and request.threads > most:
        raise CompileError(
            f"{source.function} takes fewer threads than `threads` says in {request.declared.file}",
            where=source.position,
            expected=f"at most {most} threads a block, by its __launch_bounds__",
            actual=f"{request.threads} in {request.image_id}",
            remedy=f"set `threads` to {most} or less, or raise the bound in the source",
        )
    block = block_of(text)
    if block is not None and block[1:] != (1, 1):
        raise CompileError(
            f"{source.function} demands a block of several dimensions, and Kiln describes launches in x alone",
            where=source.position,
            expected=f"a block of {request.threads} x 1 x 1 threads",
            actual=f"{' x '.join(map(str, block))}, by its __block_size__",
            remedy="compute rows and columns from threadIdx.x, and leave __block_size__ out",
        )
    blocks, asked = most_blocks(text), request.options.get("num_ctas", 1)
    if blocks is not None and asked > blocks:
        raise CompileError(
            f"{source.function} takes smaller clusters than num_ctas says in {request.declared.file}",
            where=source.position,
            expected=f"at most {blocks} blocks a cluster, by its __launch_bounds__",
            actual=f"num_ctas: {asked}",
            remedy=f"set num_ctas to {blocks} or less, or raise the bound in the source",
        )
    if request.shared is None and uses_dynamic_shared(text):
        raise CompileError(
            f"{source.function} uses dynamic shared memory, and {request.declared.file} does not say how much",
            where=source.position,
            expected="`shared`, the bytes of a block, for a kernel with an `extern __shared__` array",
            actual="a kernel without it, which is launched with none",
            remedy="add `shared:` to the kernel, such as `shared: block * 4`",
        )


def _in_declared_version(compiler: _Compiler, text: str, cubin: bytes) -> str:
    """The PTX marked with the ISA that it is declared to be in, which may be older than the one that nvcc writes.

    The mark alone is changed. ptxas knows of each instruction which version brought it, and refuses an older mark; and
    the mark may not change the code that it makes of the text. Raises CompileError.
    """
    request, asked, made = compiler.request, compiler.request.options.get("ptx_version"), version_of(text)
    if asked is None or asked == made:
        return text
    expected = f"a PTX of {_isa(asked)}, by `ptx_version` or, where that is left out, by the target"
    where = request.declared
    if asked > made:
        raise CompileError(
            f"nvcc cannot write a PTX of {_isa(asked)}",
            where=where,
            expected=expected,
            actual=f"it writes {_isa(made)}",
            remedy=f"set the option ptx_version to {made} or less, or use a newer nvcc",
        )
    older = with_version(text, asked)
    try:
        again, _ = compiler.assemble(older, lines=request.debug)
    except CompileError as error:
        named = re.search(r"requires PTX ISA \.version (\d+)\.(\d)", error.what)
        newer = f"to {named[1]}{named[2]}" if named else f"to a newer one, at most {made}"
        raise CompileError(
            f"the kernel needs a newer PTX than {_isa(asked)}",
            where=where,
            expected=expected,
            actual=error.what,
            remedy=f"set the option ptx_version {newer}; older drivers then refuse it",
        ) from error
    if request.debug:
        # With a line table, a cubin holds the very text that it was made of.
        cubin, again = (compiler.assemble(without_lines(each), lines=False)[0] for each in (text, older))
    if again != cubin:
        raise CompileError(
            f"the kernel means something else in {_isa(asked)} than in {_isa(made)}, in which nvcc wrote it",
            where=where,
            expected=expected,
            actual="ptxas makes other code of it",
            remedy=f"set the option ptx_version to {made}",
        )
    return older


def _isa(version: int) -> str:
    """`ISA 8.0, for CUDA 12.0 (driver 525) and later`."""
    name = f"{version // 10}.{version % 10}"
    driver = oldest_driver(name)
    return f"ISA {name}" if driver is None else f"ISA {name}, for {driver} and later"


def _cap(request: CudaRequest) -> list[str]:
    """The cap on registers for cicc, which plans with it; ptxas finds it in the PTX."""
    cap = request.options.get("maxnreg")
    return [] if cap is None else [f"--maxrregcount={cap}"]


def _metadata(request: CudaRequest, symbol: str, text: str, spills: int | None) -> CompilerMetadata:
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
        entry=symbol,
        warps=-(-request.threads // request.target.warp_size),
        warp_size=request.target.warp_size,
        cluster=demanded or asked,
        cooperative=bool(request.options.get("launch_cooperative_grid", False)),
        pdl=bool(request.options.get("launch_pdl", False)),
        shared_dynamic=request.shared or 0,
        global_scratch_bytes=0,
        global_scratch_align=1,
        profile_scratch_bytes=0,
        profile_scratch_align=1,
        tools={"nvcc": release[1]} if release else {},
        spills=spills,
        threads=request.threads,
        hidden=False,
    )


def _is_full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < _FULL


def _no_space(request: CudaRequest, folder: Path) -> CompileError:
    return CompileError(
        "no space left on the disk: nvcc could not write its files",
        where=request.image_id,
        actual=f"{shutil.disk_usage(folder).free >> 10} KiB are free in {folder}",
        remedy="make room on the disk of the build folder and run again; finished work is kept",
    )


def _incomplete(request: CudaRequest, folder: Path) -> CompileError:
    """For an end without an error, and without a whole file."""
    if _is_full(folder):
        return _no_space(request, folder)
    return CompileError(
        "nvcc ended as if all were well, and made no whole image",
        where=request.source.position,
        expected=f"a PTX with the kernel {request.function}",
        remedy=f"see what it printed, and whether {request.nvcc.nvcc} is the nvcc of a whole toolkit",
    )
