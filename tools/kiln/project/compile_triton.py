"""What ONNX Runtime's tools/ci_build/compile_triton.py does, by a build: function tables -> header and archive.

A project of Kiln is written beside the archive, whose manifest names the scripts, and its step `header:onnxruntime` is
run: in parallel, from the cache where that has it, and doing nothing where nothing changed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import kiln
from kiln.errors import ClosureError, KilnError, ManifestError, Position, os_failure
from kiln.manifest.from_source import SourcePlace
from kiln.manifest.names import check_name, fold
from kiln.manifest.targets import NATIVE
from kiln.packaging.onnxruntime_format import ARCHIVE, HEADER
from kiln.project import TEMPLATE
from kiln.project.yaml_text import yaml_text
from kiln.source_reader import StaticReader
from kiln.toolchain.native import native_targets
from kiln.toolchain.targets import find

VARIABLE = "KILN_TARGET"
_MARK = "# Made by tools/compile_triton.py of its command line: edits are lost.\n"
_MANIFEST = "kernels.yaml"
_CANNOT_RUN = 3
"""doit's exit code for errors before a run"""


class CommandError(KilnError):
    """The command line asks for something that cannot be done."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A Python file with a function table."""

    path: Path
    """absolute, without links"""
    top: Path
    """the folder that its absolute imports begin at"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, doit's own where the build failed, or 3 where nothing was built."""
    parser = argparse.ArgumentParser(
        prog="compile_triton.py",
        description="Compiles the kernels that get_function_table() of each script lists, for ONNX Runtime.",
    )
    parser.add_argument("--header", type=Path, default=Path("triton_kernel_infos.h"), help="the header to write")
    parser.add_argument(
        "--ort_root",
        type=Path,
        default=Path("onnxruntime"),
        help="where absolute imports of the scripts below it begin; it need not be there",
    )
    parser.add_argument("--script_files", nargs="+", required=True, metavar="FILE", help="files with function tables")
    parser.add_argument(
        "--obj_file",
        type=Path,
        default=Path("triton_kernel_infos.a"),
        help="the archive to write; a folder beside it, named like it, keeps what was built",
    )
    parser.add_argument(
        "--target",
        default=os.environ.get(VARIABLE) or NATIVE,
        help=f"what is compiled for, such as sm_90a; without it what {VARIABLE} says, or else the GPU of this machine",
    )
    chosen = parser.parse_args(arguments)
    try:
        check_places(chosen.header, chosen.obj_file)
        work = chosen.obj_file.absolute().with_suffix(".kiln")
        scripts = [find_script(file, chosen.ort_root) for file in chosen.script_files]
        write_project(work, scripts, find_target(chosen.target))
        code = _build(work)
        if code == 0:
            _place(work / "build" / HEADER, chosen.header)
            _place(work / "build" / ARCHIVE, chosen.obj_file)
        else:
            print(f"paths of the messages are relative to {work}", file=sys.stderr)
    except KilnError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return _CANNOT_RUN
    return code


def check_places(header: Path, archive: Path) -> None:
    """Refuse what can be no two files, before anything is built. Raises CommandError."""
    for option, path in (("--header", header), ("--obj_file", archive)):
        if path.is_dir():
            raise CommandError(
                "a file cannot be written where a folder is",
                where=f"{option} {path}",
                expected="the path of a file, which need not be there",
                actual="a folder",
                remedy="add the name of a file",
            )
    if header.resolve() == archive.resolve():
        raise CommandError(
            "header and archive cannot be one file",
            where=f"--obj_file {archive}",
            expected="another path than that of --header",
            actual=f"--header {header}",
            remedy="give one of them another name",
        )


def find_script(file: str, ort_root: Path) -> Script:
    """A script by its path. Raises CommandError where there is none."""
    path = Path(file).resolve()
    if not path.is_file():
        raise CommandError(
            "there is no such file",
            where=f"--script_files {file}",
            expected="a Python file with a function get_function_table()",
            actual="a folder" if path.is_dir() else "nothing there",
            remedy="correct the path",
        )
    root = ort_root.resolve()
    if path.is_relative_to(root):
        return Script(path=path, top=root)
    top = path.parent
    while (top / "__init__.py").is_file() and top.parent != top:
        top = top.parent
    return Script(path=path, top=top)


def find_target(name: str) -> str:
    """The one target that is meant; `native` stands for that of this machine's GPU.

    Raises CommandError for a target that there is not, and where this machine has no GPU, or several that differ.
    """
    at = Position(file="--target", line=1)
    word = f"say what to compile for: --target sm_90a, or {VARIABLE}=sm_90a"
    try:
        names = native_targets(at) if name == NATIVE else (find(name, at).name,)
    except ManifestError as error:
        # Of a command line there is no line and column to tell.
        raise CommandError(
            error.what,
            where=f"--target {name}",
            expected=error.expected,
            actual=error.actual,
            remedy=word if name == NATIVE else error.remedy,
        ) from None
    if len(names) > 1:
        raise CommandError(
            "the GPUs of this machine are of several kinds, and ONNX Runtime's header is for one",
            where=f"--target {name}",
            expected=f"one of {', '.join(names)}",
            actual=name,
            remedy=f"say which: --target {names[0]}, or {VARIABLE}={names[0]}",
        )
    return names[0]


def write_project(work: Path, scripts: Sequence[Script], target: str) -> None:
    """Write the project into the folder `work`, as far as it is not there already.

    Raises CommandError where the folder is somebody else's or cannot be written, ClosureError for a table that cannot
    be told.
    """
    manifest = work / _MANIFEST
    if manifest.exists() and not manifest.read_text("utf-8", "replace").startswith(_MARK):
        raise CommandError(
            "the folder for what is built holds another project",
            where=str(work),
            expected="a folder of compile_triton.py's own, or none",
            actual=f"a {_MANIFEST} that it did not write",
            remedy="give --obj_file another name, or move that project away",
        )
    try:
        work.mkdir(parents=True, exist_ok=True)
        real = work.resolve()
        for name in ("dodo.py", "doit.cfg"):
            _write(work / name, (TEMPLATE / name).read_text("utf-8"))
        _write(manifest, "".join(_manifest(real, scripts, target)))
    except OSError as error:
        raise os_failure("the folder for what is built cannot be written", error, work) from error


def _manifest(work: Path, scripts: Sequence[Script], target: str) -> Iterator[str]:
    """The lines of the manifest: a kernel for each function of each table."""
    roots = {top: f"root{number}" for number, top in enumerate(dict.fromkeys(script.top for script in scripts))}
    places = {name: Path(os.path.relpath(top, work)).as_posix() for top, name in roots.items()}
    yield _MARK
    yield f"version: 1\nlibrary: triton_kernels\ntargets: [{target}]\nroots:\n"
    yield from (f"  {name}: {yaml_text(place)}\n" for name, place in places.items())
    tables = [(script, function) for script in scripts for function in _functions(script, work, places, target)]
    keys = list(_keys([function for _, function in tables]))
    # Named, so that a row which ONNX Runtime could not launch is an error.
    yield f"onnxruntime: {{target: {target}, kernels: [{', '.join(map(yaml_text, keys))}]}}\nkernels:\n"
    for key, (script, function) in zip(keys, tables, strict=True):
        yield f"  {yaml_text(key)}:\n"
        yield f"    function_table: {yaml_text(script.path.relative_to(script.top).as_posix())}\n"
        yield f"    root: {roots[script.top]}\n"
        yield f"    function: {yaml_text(function)}\n"
        # Callers say the grid.
        yield "    grid: [1]\n"


def _functions(script: Script, work: Path, roots: Mapping[str, str], target: str) -> list[str]:
    """The functions that a script's table has rows of, in order."""
    where = Position(file=str(script.path), line=1)
    place = SourcePlace(source=script.path, root=work, roots=roots, environment={}, where=where)
    try:
        rows = StaticReader().function_table(place, {target: where})
    except ClosureError as error:
        raise _from_here(error, work) from None
    if not rows:
        raise CommandError(
            "the table of the script is empty",
            where=str(script.path),
            expected="a get_function_table() that returns at least one row",
            actual="no rows",
            remedy="leave the script out, or correct its table",
        )
    return list(dict.fromkeys(row.function for row in rows))


def _from_here(error: ClosureError, work: Path) -> ClosureError:
    """The error with a place that whoever gave the command can open: those of a build are relative to its folder."""
    where = error.where
    if isinstance(where, Position):
        where = replace(where, file=os.path.normpath(work / where.file))
    return ClosureError(
        error.what, where=where, expected=error.expected, actual=error.actual, remedy=error.remedy, stage=error.stage
    )


def _keys(functions: Sequence[str]) -> Iterator[str]:
    """What the kernels are called in messages: their functions' names where these can be, and no two alike."""
    seen: set[str] = set()
    for function in functions:
        word = re.sub(r"[^A-Za-z0-9]+", "_", function).strip("_")
        try:
            check_name(word, Position(file="", line=1), "a kernel's name")
        except ManifestError:
            word = f"kernel_{word}".rstrip("_")
        number = 1
        while fold(key := word if number == 1 else f"{word}_{number}") in seen:
            number += 1
        seen.add(fold(key))
        yield key


def _build(work: Path) -> int:
    """Run the step, in a process of its own: doit changes the folder and the signals of the one that it runs in."""
    paths = [str(Path(kiln.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    sys.stdout.flush()
    return subprocess.run(
        [sys.executable, "-m", "doit", "header:onnxruntime"], cwd=work, env=environment, check=False
    ).returncode


def _place(made: Path, wanted: Path) -> None:
    """Copy a file to where it was asked for; one that holds the same already is left alone, with its time stamp."""
    try:
        data = made.read_bytes()
        if wanted.is_file() and wanted.read_bytes() == data:
            return
        wanted.parent.mkdir(parents=True, exist_ok=True)
        part = wanted.with_name(f"{wanted.name}.part")
        part.write_bytes(data)
        part.replace(wanted)
    except OSError as error:
        raise os_failure(f"{wanted.name} cannot be written", error, wanted) from error


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text("utf-8") != text:
        part = path.with_name(f"{path.name}.part")
        part.write_text(text, "utf-8")
        part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
