"""The `kiln` command: what is needed before there is a project for doit to work in, and a look at what was built."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from kiln import __version__
from kiln.errors import ImageError, KilnError, ManifestError, Position
from kiln.manifest.json_schema import json_schema
from kiln.manifest.reference import reference_page
from kiln.project import IGNORE, TEMPLATE, init, library_name
from kiln.toolchain.targets_page import targets_page

CMAKE = Path(__file__).parent / "cmake"
"""the folder of KilnAddLibrary.cmake"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, 1 for a file that `inspect` refuses, or 3 when nothing was done."""
    parser = argparse.ArgumentParser(prog="kiln", description="Ahead-of-time GPU kernels. Builds are run with doit.")
    parser.add_argument("--version", action="version", version=f"kiln {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("init", help="write a new project: kernels.yaml, dodo.py, doit.cfg and one kernel")
    command.add_argument("folder", metavar="DIR", type=Path, help="where; it is made when it is not there")
    commands.add_parser("schema", help="print the JSON Schema of kernels.yaml, for editors")
    commands.add_parser("manifest-docs", help="print the reference of kernels.yaml, in Markdown")
    commands.add_parser("targets-docs", help="print what can stand in `targets`, with limits, in Markdown")
    command = commands.add_parser(
        "import", help="print the entry for kernels.yaml of a kernel that was written for launches from Python"
    )
    command.add_argument("file", metavar="FILE", help="its Python file, or the dotted name of an installed module")
    command.add_argument("function", metavar="FUNCTION", help="the jitted function in it, as Class.name inside a class")
    command.add_argument(
        "--key", metavar="NAME", help="what the kernel is called; made of the function's name otherwise"
    )
    command.add_argument(
        "--target",
        metavar="TARGET",
        action="append",
        help="a target that its configurations are read for; may be repeated (sm_90a and gfx942 without it)",
    )
    command.add_argument("--whole", action="store_true", help="print a whole kernels.yaml with nothing else in it")
    commands.add_parser("cmake-dir", help="print the folder of KilnAddLibrary.cmake, for CMAKE_MODULE_PATH")
    commands.add_parser(
        "build",
        usage="kiln build [WORD ...]",
        help="run doit with Kiln's plugins in the current folder, which needs no dodo.py and no settings for that",
    )
    command = commands.add_parser(
        "inspect", help="print what image files say of themselves, and hold each against the facts beside it"
    )
    command.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a cubin, a PTX or an hsaco")
    command.add_argument("--json", action="store_true", help="print a list with one object a file, sizes in bytes")
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["build"] and words[1:] not in (["-h"], ["--help"]):
        # All that follows is doit's, options too.
        return _build(words[1:])
    chosen = parser.parse_args(words)
    try:
        if chosen.command == "schema":
            print(json_schema(), end="")
        elif chosen.command == "manifest-docs":
            print(reference_page(), end="")
        elif chosen.command == "targets-docs":
            print(targets_page(), end="")
        elif chosen.command == "cmake-dir":
            print(CMAKE)
        elif chosen.command == "import":
            _import(chosen)
        elif chosen.command == "inspect":
            return _inspect(chosen)
        else:
            _init(chosen)
    except KilnError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 3
    return 0


def _build(words: Sequence[str]) -> int:
    # The other commands need no doit.
    from kiln.doit_plugin.main import run_doit

    return run_doit(words, settings=TEMPLATE / "doit.cfg", dodo=TEMPLATE / "dodo.py")


def _import(chosen: argparse.Namespace) -> None:
    # The other commands need neither the closure nor an installed Triton.
    from kiln.project.foreign_file import ImportKernelError, find_file
    from kiln.project.import_kernel import import_kernel, obstacle, whole_file
    from kiln.source_reader import worlds_of

    targets = chosen.target or ["sm_90a", "gfx942"]
    try:
        worlds = worlds_of(dict.fromkeys(targets, Position(file="--target", line=1)), environment={})
    except ManifestError as error:
        # Of a command line there is no line and column to tell.
        raise ImportKernelError(
            error.what, where="--target", expected=error.expected, actual=error.actual, remedy=error.remedy
        ) from None
    found = find_file(chosen.file, Path())
    entry = import_kernel(found, chosen.function, worlds, chosen.key)
    print(whole_file(entry, library_name(Path()), targets) if chosen.whole else "\n".join(entry.lines))
    for name, folder in {} if chosen.whole else entry.roots.items():
        print(f"declare the root at the top of kernels.yaml: roots: {{{name}: {folder}}}", file=sys.stderr)
    refused = obstacle(found, chosen.function, worlds[targets[0]])
    if refused is not None:
        print(f"a build refuses the kernel as its source stands: {refused}", file=sys.stderr)
    marked = f"{entry.checks} places say what to check" if entry.checks != 1 else "1 place says what to check"
    print(f"{marked}; {entry.blanks} to fill in", file=sys.stderr)


def _inspect(chosen: argparse.Namespace) -> int:
    # The other commands need no reader of images.
    from kiln.binaries.show import show

    shown, refused = [], 0
    for file in chosen.files:
        try:
            shown.append(show(file))
        except ImageError as error:
            print(f"ERROR: {error}", file=sys.stderr)
            refused += 1
    if chosen.json:
        print(json.dumps([image.plain() for image in shown], indent=1))
    elif shown:
        print("\n\n".join("\n".join(image.lines()) for image in shown))
    return 1 if refused else 0


def _init(chosen: argparse.Namespace) -> None:
    written = init(chosen.folder)
    for path in written:
        print(f"wrote {path}")
    if chosen.folder / IGNORE not in written:
        print(f"left {chosen.folder / IGNORE} as it is: let it name /build/")
    print(f"the library is called {library_name(chosen.folder)}; kernels.yaml says so, and can say otherwise")
    print(f"build it: cd {shlex.quote(str(chosen.folder))} && doit")


if __name__ == "__main__":
    sys.exit(main())
