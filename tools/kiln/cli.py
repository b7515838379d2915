"""The `kiln` command: what is needed before there is a project for doit to work in."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from kiln import __version__
from kiln.errors import KilnError
from kiln.manifest.json_schema import json_schema
from kiln.manifest.reference import reference_page
from kiln.project import IGNORE, init, library_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0, or 3 when nothing was done because of an error."""
    parser = argparse.ArgumentParser(prog="kiln", description="Ahead-of-time GPU kernels. Builds are run with doit.")
    parser.add_argument("--version", action="version", version=f"kiln {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("init", help="write a new project: kernels.yaml, dodo.py, doit.cfg and one kernel")
    command.add_argument("folder", metavar="DIR", type=Path, help="where; it is made when it is not there")
    commands.add_parser("schema", help="print the JSON Schema of kernels.yaml, for editors")
    commands.add_parser("manifest-docs", help="print the reference of kernels.yaml, in Markdown")
    chosen = parser.parse_args(arguments)
    if chosen.command == "schema":
        print(json_schema(), end="")
        return 0
    if chosen.command == "manifest-docs":
        print(reference_page(), end="")
        return 0
    try:
        written = init(chosen.folder)
    except KilnError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 3
    for path in written:
        print(f"wrote {path}")
    if chosen.folder / IGNORE not in written:
        print(f"left {chosen.folder / IGNORE} as it is: let it name /build/")
    print(f"the library is called {library_name(chosen.folder)}; kernels.yaml says so, and can say otherwise")
    print(f"build it: cd {shlex.quote(str(chosen.folder))} && doit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
