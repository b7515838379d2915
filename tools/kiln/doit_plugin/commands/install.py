"""doit's command `install`: builds what is stale, then copies headers, archives and package files below a prefix."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from doit.exceptions import InvalidCommand

from kiln.doit_plugin.build_folder import hold_lock
from kiln.doit_plugin.loader import KilnLoader
from kiln.doit_plugin.run import Run
from kiln.engine.build import Build
from kiln.engine.install import install
from kiln.engine.rows import Output
from kiln.engine.step import kind_of
from kiln.errors import KilnError, StateError

STEPS = ("archive", "header:c", "header:cpp", "cmake")
"""the tasks whose outputs are installed, and their groups"""
_CONFIG = "Config.cmake"

_PREFIX = {
    "section": "Kiln",
    "name": "prefix",
    "short": "",
    "long": "prefix",
    "type": str,
    "default": None,
    "help": "folder to install below, relative to the current one",
}


class Install(Run):
    """doit's `run` for the C package, and a copy of what that made."""

    name = "install"
    doc_purpose = "build the C package, and install it below a prefix"
    doc_usage = "--prefix DIR"
    doc_description = (
        "Installs include/, lib/ with package files for CMake and pkg-config, and the runtime's sources below share/. "
        "DESTDIR, where it is set, stands before the prefix. Files that an earlier installation of the library put "
        "there are replaced, or removed when they are gone; others are never touched."
    )
    cmd_options = (*Run.cmd_options, _PREFIX)

    def execute(self, params: Any, args: list[str]) -> int:
        """Build, then copy. Raises InvalidCommand for what cannot be meant."""
        if args:
            raise InvalidCommand(f"install takes no tasks, and installs the whole C package: {args[0]!r}")
        prefix = _place(params["prefix"])
        code = super().execute(params, [*STEPS])
        loader = self.loader
        if code != 0:
            return code
        if not isinstance(loader, KilnLoader) or loader.build is None:
            raise InvalidCommand("this dodo.py has no rules of Kiln's, and so nothing that can be installed")
        try:
            with ExitStack() as stack:
                if not loader.holds_lock:
                    hold_lock(stack, loader.build)
                # With --json standard output is for its lines alone.
                print(_install(loader.build, prefix), file=sys.stderr if params["as_json"] else sys.stdout)
        except KilnError as error:
            raise InvalidCommand(str(error)) from error
        return 0


def _place(prefix: str | None) -> Path:
    """The folder to install below, with DESTDIR in front. Raises InvalidCommand for none that can be meant."""
    if not prefix:
        raise InvalidCommand("say where to install: doit install --prefix DIR")
    if prefix.startswith("~"):
        raise InvalidCommand(
            f"--prefix is {prefix!r}: a shell makes a home folder of ~ at the start of a word that has no quotes, and "
            "nobody did here; put a space before it in place of =, or write the whole path"
        )
    # doit goes to the folder of dodo.py later; paths of the command line are of this one.
    path = Path(os.path.normpath(Path.cwd() / prefix))
    destination = os.environ.get("DESTDIR")
    return Path.cwd() / destination / path.relative_to(path.anchor) if destination else path


def _install(build: Build, prefix: Path) -> str:
    """Install what the build folder has, whose lock is held; what was done, in a line. Raises StateError."""
    if prefix.resolve().is_relative_to(build.root.resolve()):
        raise StateError(
            "the prefix lies in the build folder, which is usable as it is",
            where=str(prefix),
            expected="a folder outside of it",
            remedy="name another prefix, or use the build folder as one: CMAKE_PREFIX_PATH, PKG_CONFIG_PATH",
        )
    build.state.refresh()
    outputs = _outputs(build)
    library = next(name for name in outputs if name.endswith(_CONFIG)).split("/")[2]
    named = {_installed_name(name, library): output for name, output in outputs.items()}
    done = install(named, build.root, prefix, f"share/{library}/installed.json")
    counts = (("new", done.added), ("changed", done.changed), ("as before", done.same), ("removed", done.removed))
    return f"installed {library} in {prefix}: " + ", ".join(f"{len(names)} {word}" for word, names in counts)


def is_installed(name: str) -> bool:
    """Whether what a step makes is installed."""
    return name in STEPS or kind_of(name) in STEPS


def _outputs(build: Build) -> Mapping[str, Output]:
    """Path below the build folder -> output, of all steps that are installed. Raises StateError."""
    found: dict[str, Output] = {}
    for name in build.state.rows:
        if is_installed(name):
            row = build.state.rows[name]
            if not row.valid:
                raise StateError(
                    f"{name} is not built: another build in this folder came between, and failed",
                    where=str(build.root),
                    remedy="run again when no other build runs",
                )
            found |= {output.path: output for output in row.outputs}
    return found


def _installed_name(path: str, library: str) -> str:
    """Where an output goes below the prefix: sources go where those of no other library are."""
    return f"share/{library}/{path}" if path.startswith("src/") else path
