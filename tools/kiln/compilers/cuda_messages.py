"""What nvcc and its tools print, as people read it: places in the author's files, and nothing of Kiln's own file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from kiln.closure.cuda_source import CudaSource
from kiln.compilers.cuda_request import CPP, CudaRequest
from kiln.compilers.cuda_unit import function_line
from kiln.errors import CompileError, Position

_ERROR = re.compile(
    r"^(?:(?P<file>[^\s():][^():\n]*)(?:\((?P<a>\d+)\)|:(?P<b>\d+)(?::\d+)?))?:? ?"
    r"(?:catastrophic |fatal )?error(?: #\S+)?\s*: (?P<text>.*)"
    r"|^(?P<tool>ptxas|nvcc|cicc|gcc|cc1plus)\b[^\n]*?\b(?:fatal|error)\b\s*:\s*(?P<said>.*)",
    re.MULTILINE,
)
_MENTION = re.compile(
    r"^(?P<head>In file included from |\s+from |)(?P<file>[^\s():][^():\n]*)"
    r"(?P<open>[(:])(?P<line>\d+)(?P<column>:\d+)?(?P<close>[):,])"
)
_AT_LINE = re.compile(r"\bat line (?P<line>\d+)(?: of (?P<file>\S+))?")
_QUOTED = re.compile(r"^(?P<head> *)(?P<line>\d+)(?P<bar> \| )")
_CARET = re.compile(r"^\s*[\^~]+\s*$")
_UNDEFINED = re.compile(r'^(?:incomplete type|identifier) .*?"(__(?:half|nv_\w+))"')
_UNKNOWN = re.compile(r'^identifier "(\w+)" is undefined')
_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)")
_TYPES = {
    "__half": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_fp8_e4m3": "cuda_fp8.h",
    "__nv_fp8_e5m2": "cuda_fp8.h",
}
"""the types that {T} stands for and that headers of the toolkit define"""


def failure(request: CudaRequest, unit: str, code: int, output: str) -> CompileError:
    """What went wrong: the place in the source, the first errors, and what to do where that is known.

    `unit` is Kiln's own file, as nvcc calls it; `output` is what the tools printed.
    """
    source = request.source
    errors = list(_ERROR.finditer(output))
    if not errors:
        # nvcc runs its parts by a shell, which adds 128 to the number of a signal.
        signal = -code if code < 0 else code - 128 if 128 < code <= 192 else None
        how = f"exit code {code}" if signal is None else f"signal {signal}"
        last = [line.strip() for line in output.splitlines() if line.strip()][-1:]
        return CompileError(
            f"nvcc ended with {how} and named no error",
            where=source.position,
            actual="".join(last) or None,
            remedy=f"see what it printed, and whether {request.nvcc.nvcc} is the nvcc of a whole toolkit",
        )
    first, *more = errors
    if first["file"] == unit and int(first["a"] or first["b"]) == function_line(request):
        return _no_instance(request, first["text"].strip())
    what = _text(first, unit)
    where = _place(first, request, unit) or source.position
    undefined = _UNDEFINED.search(what)
    if undefined is not None and undefined[1] in _TYPES:
        return CompileError(
            f"the source does not define {undefined[1]}",
            where=source.position,
            remedy=f"add #include <{_TYPES[undefined[1]]}> to {source.name}",
        )
    shared = _SHARED.search(what)
    if shared is not None:
        return CompileError(
            f"{request.function} has too much static shared memory",
            where=source.position,
            expected=f"at most {int(shared[2], 16)} bytes on {request.target.name}",
            actual=f"{int(shared[1], 16)} bytes",
            remedy="make an array of it `extern __shared__`, and give its bytes as `shared` in kernels.yaml",
        )
    others = [f"{_place(error, request, unit) or ''}: {_text(error, unit)}".lstrip(": ") for error in more]
    others = [line for line in dict.fromkeys(others) if line != f"{where}: {what}"][:3]
    lines, remedy = [f"    {line}" for line in _excerpt(output, first, source)], None
    if where == request.declared:
        lines = []
        remedy = (
            f"compare `function` and `signature` with {source.function} at {source.position}; "
            "pass a struct by pointer, or its members one by one"
        )
    if "unsupported GNU version" in what or "unsupported clang version" in what:
        return CompileError(
            "nvcc does not support this host compiler",
            where=str(request.nvcc.cc),
            actual=what,
            remedy="set NVCC_CCBIN to a gcc that this nvcc supports, or use a newer nvcc",
        )
    if what.endswith("No such file or directory"):
        remedy = (
            "name it relative to the file, to the folder of kernels.yaml or to one of its `roots`; where a macro names "
            "it, define that in the same file"
        )
    return CompileError("\n".join([what, *lines]), where=where, actual="; ".join(others) or None, remedy=remedy)


def out_of_memory(output: str) -> bool:
    """Whether a part of nvcc says that it got no more memory."""
    return re.search(r"error: out of memory$|\bbad_alloc\b|Cannot allocate memory", output, re.MULTILINE) is not None


def out_of_space(output: str) -> bool | None:
    """Whether a part of nvcc says that a disk is full; None for an output that names no error at all."""
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return True
    return False if _ERROR.search(output) else None


def with_own_lines(output: str, request: CudaRequest, unit: str) -> str:
    """The output with places of the author's files in place of those of the files that were compiled."""
    return "\n".join(_own_lines(output.split("\n"), request, unit))


def _own_lines(lines: list[str], request: CudaRequest, unit: str) -> Iterator[str]:
    source, file, skip = request.source, "", 0
    for index, line in enumerate(lines):
        if skip:
            skip -= 1
            continue
        found = _MENTION.match(line)
        if found is None:
            yield _own_at_line(_own_quoted(line, source, file), source, file)
            continue
        file = found["file"]
        if file == unit:
            name, number, column = request.declared.file, request.declared.line, None
        else:
            place = place_of(source, file, int(found["line"]))
            name, number, column = place.file, place.line, found["column"]
        head = f"{found['head']}{name}{found['open']}{number}{column or ''}{found['close']}"
        yield head + _own_at_line(line[found.end() :], source, file)
        below = lines[index + 1 : index + 3]
        if file != unit and len(below) == 2 and _CARET.match(below[1]) and not _QUOTED.match(below[0]):
            excerpt = _own_excerpt(source, file, int(found["line"]))
            yield from (f"  {line}" for line in excerpt) if excerpt else below
            skip = 2


def _own_quoted(line: str, source: CudaSource, file: str) -> str:
    """`  3 | text`, as gcc quotes a line of `file`."""

    def own(found: re.Match[str]) -> str:
        return f"{found['head']}{place_of(source, file, int(found['line'])).line}{found['bar']}"

    return _QUOTED.sub(own, line)


def _own_at_line(text: str, source: CudaSource, file: str) -> str:
    """`at line 3` or `at line 3 of other.cuh`, as nvcc says where a template was instantiated."""

    def own(found: re.Match[str]) -> str:
        line = place_of(source, found["file"] or file, int(found["line"])).line
        return f"at line {line}" + (f" of {found['file']}" if found["file"] else "")

    return _AT_LINE.sub(own, text)


def place_of(source: CudaSource, file: str, line: int) -> Position:
    """The place in the author's file of a line that a tool speaks of; the same for a file that is none of theirs."""
    name = os.path.normpath(file)
    if name not in source.files:
        return Position(file=name, line=line)
    place = source.files[name].place(line)
    return Position(file=name, line=place.line, column=place.column or 1)


def _no_instance(request: CudaRequest, said: str) -> CompileError:
    """For a `function` that names no kernel, no instance of a template, or more than one kernel."""
    source, function = request.source, request.function
    kernel = f"{source.scope}{source.function}"
    written = function.partition("<")[0].strip().removeprefix("::")
    shown = f"{source.template} {kernel}".strip()
    expected = f"an instance of `{shown}`" if source.template else f"the kernel {shown}, without template arguments"
    if written != kernel and ("undefined" in said or "namespace" in said or "no member" in said):
        what, remedy = (
            f"there is no {written} where `function` looks for it",
            f"write {kernel}{function[len(written) :]}",
        )
    elif "overloaded" in said:
        what = f"{function} is the name of several kernels, and `function` cannot tell them apart"
        expected, remedy = f"one `{shown}`", "give each of them a name of its own"
    elif source.template:
        what, remedy = f"{function} is no instance of the kernel", "correct the template arguments in `function`"
        unknown = _UNKNOWN.match(said)
        if unknown is not None and unknown[1] in CPP:
            remedy = f"write {{T}} in `function` for the dtype's type in C++: for {unknown[1]} it is {CPP[unknown[1]]}"
        elif "<" not in function:
            remedy = f"add the template arguments to `function`, as in `{kernel}<...>`"
    else:
        what, remedy = f"{function} is no kernel", "correct `function`"
    return CompileError(
        what,
        where=request.declared,
        expected=f"{expected}, at {source.position}",
        actual=f"{function}; nvcc says: {said}",
        remedy=remedy,
    )


def _text(error: re.Match[str], unit: str) -> str:
    if error["tool"] is not None:
        return f"{error['tool']}: {error['said'].strip()}"
    text = error["text"].strip()
    asserted = re.fullmatch(r'static assertion failed with "(.*)"', text)
    return asserted[1] if asserted and error["file"] == unit else text


def _place(error: re.Match[str], request: CudaRequest, unit: str) -> Position | None:
    """The place in the project's file; for our own file, that of `function` in kernels.yaml."""
    if error["tool"] is not None or error["file"] is None:
        return None
    if error["file"] == unit:
        return request.declared
    return place_of(request.source, error["file"].strip(), int(error["a"] or error["b"]))


def _excerpt(output: str, error: re.Match[str], source: CudaSource) -> list[str]:
    """The line of source at fault, with a caret under the place; nothing where that is not known."""
    if error["tool"] is not None or error["file"] is None:
        return []
    own = _own_excerpt(source, error["file"].strip(), int(error["a"] or error["b"]))
    below = output[error.end() :].split("\n")[1:3]
    if own or len(below) < 2 or not _CARET.match(below[1]):
        return own
    shift = min(len(line) - len(line.lstrip()) for line in below)
    return [line[shift:] for line in below]


def _own_excerpt(source: CudaSource, file: str, line: int) -> list[str]:
    """The author's line with a caret, where the place in it is known."""
    compiled = source.files.get(os.path.normpath(file))
    place = compiled.place(line) if compiled is not None else None
    if compiled is None or place is None or place.column is None:
        return []
    text = compiled.text.split("\n")[place.line - 1]
    shift = len(text) - len(text.lstrip())
    return [text.strip().expandtabs(1), " " * (place.column - 1 - shift) + "^"]
