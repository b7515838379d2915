"""What went wrong in a compiler, as people read it: its exceptions, and what it printed."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path
from signal import Signals
from subprocess import CalledProcessError

from triton.compiler.code_generator import CompilationError
from triton.runtime.errors import PTXASError

from kiln.closure import load
from kiln.closure.virtual_names import virtual_name
from kiln.compilers.request import CompileRequest
from kiln.errors import CompileError, Position


def failure(request: CompileRequest, stage: str, error: Exception) -> CompileError:
    """What went wrong as people read it: the stage, the kernel's line, the diagnostic lines and nothing else."""
    if isinstance(error, CompilationError):
        # The innermost cause is where the fault is; the outer ones are the calls that lead there.
        while isinstance(error.__cause__, CompilationError):
            error = error.__cause__
        root = _root(error)
        what = "\n".join([root, *(f"    {line}" for line in _excerpt(error).splitlines())])
        is_missing = re.search(r"module 'triton[\w.]*' has no attribute", root)
        return CompileError(
            what,
            where=_locate(request, error) or request.closure.position,
            remedy=f"{load.installed()}: correct the name, or use a release that has it" if is_missing else None,
            stage=stage,
        )
    if isinstance(error, PTXASError) and (signal := _signal(error.__context__)):
        return CompileError(
            f"ptxas was killed by signal {signal} ({signal.name})",
            where=request.closure.position,
            remedy="a SIGKILL that nobody sent is the kernel running out of memory: build with a smaller -n"
            if signal is Signals.SIGKILL
            else "it crashed on the code that Triton gave it, which the log holds",
            stage=stage,
        )
    if isinstance(error, FileNotFoundError) and str(error.filename).endswith(".ptx.o"):
        return CompileError(
            "ptxas exited with 0 and wrote no image",
            where=request.closure.position,
            remedy="see that the disk has space, and that Triton's ptxas is the one that it was installed with",
            stage=stage,
        )
    if isinstance(error, PTXASError):
        # Its temporary file has another name in each image, and is gone; the log holds the PTX with those lines.
        lines = re.findall(r"^ptxas\S* .*\b(?:error|fatal)\b.*", str(error), re.MULTILINE)
        lines = [re.sub(r"^\S+ \S+\.ptx, line (\d+); (\w+) *:", r"line \1 of the PTX: \2:", line) for line in lines]
        lines = [line for line in lines if not line.endswith("aborted due to errors")] or lines
        return CompileError(
            "ptxas refused the code that Triton gave it",
            where=request.closure.position,
            actual="; ".join(_first_of_each(lines)[:4]) or None,
            stage=stage,
        )
    first, *more = f"{type(error).__name__}: {error}".splitlines()
    files = {virtual_name(module.file): module.file for module in request.closure.modules}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    where = request.declared if stage == "options" else request.closure.position
    if frames:
        where = Position(file=files[frames[-1].filename], line=frames[-1].lineno or 1)
    return CompileError("\n".join([first, *(f"    {line}" for line in more[:7])]), where=where, stage=stage)


def _signal(error: BaseException | None) -> Signals | None:
    """What ended a tool, if it was a signal that has a name."""
    number = -error.returncode if isinstance(error, CalledProcessError) else 0
    return Signals(number) if number in set(Signals) else None


def printed_errors(log: Path) -> str | None:
    """The first lines that read like errors in what the compilers printed, or None: exit code 0 is no success.

    LLVM reports some faults (inline assembly for another machine, say) on standard error alone, and goes on. Lines are
    told by how they begin, as compilers write them, for a kernel may print the word itself.
    """
    lines = log.read_text("utf-8", "replace").splitlines()
    found = [
        line.strip() for line in lines if re.match(r"(\S+:\d+(:\d+)?: )?(LLVM |fatal )?error ?:", line, re.IGNORECASE)
    ]
    return "; ".join(_first_of_each(found)[:3]) or None


def _first_of_each(lines: Iterable[str]) -> list[str]:
    """Of lines that differ in numbers only, the first: an unrolled loop has a fault many times."""
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(re.sub(r"\d+", "#", line), line)
    return list(found.values())


def _root(error: CompilationError) -> str:
    """The message of the last cause: Triton wraps a plain exception of its front end in one that adds the place."""
    text = str(error.error_message or "").strip()
    cause = error.__cause__
    while cause is not None:
        text, cause = f"{type(cause).__name__}: {cause}".strip(), cause.__cause__
    # Triton hands on some exceptions as their repr.
    if found := re.fullmatch(r"(\w+)\((['\"])(.*)\2\)", text):
        text = f"{found.group(1)}: {found.group(3)}"
    return text.splitlines()[0] if text else type(error).__name__


def _excerpt(error: CompilationError) -> str:
    """The source line at fault, with a caret below it."""
    line, column = getattr(error.node, "lineno", None), getattr(error.node, "col_offset", 0)
    if not error.src or line is None or line > len(error.src.split("\n")):
        return ""
    text = error.src.split("\n")[line - 1]
    shift = len(text) - len(text.lstrip())
    return f"{text.strip()}\n{' ' * (column - shift)}^"


def _locate(request: CompileRequest, error: CompilationError) -> Position | None:
    """The place in the file of a front-end error: Triton counts lines from the function's own first line."""
    line, column = getattr(error.node, "lineno", None), getattr(error.node, "col_offset", 0)
    if not error.src or line is None:
        return None
    body = error.src.strip()
    for module in request.closure.modules:
        start = module.text.find(body)
        if start >= 0:
            first = module.text.count("\n", 0, start) + 1
            return Position(file=module.file, line=first + line - 1, column=column + 1)
    return None
