"""What KilnAddLibrary.cmake asks while CMake configures: names of a library that is yet to be built, as CMake code.

python -m kiln.project.cmake_info --manifest FILE --build-dir DIR --output FILE [--targets TARGET,...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kiln import graph
from kiln.doit_plugin.build_folder import MANIFEST, PRIVATE_FOLDER, STATE
from kiln.doit_plugin.commands.install import STEPS, is_installed
from kiln.doit_plugin.rules import collect
from kiln.engine.publish import make_folder
from kiln.engine.state import State
from kiln.errors import KilnError, ManifestError, os_failure
from kiln.library import Library, read_manifest
from kiln.manifest.narrow import narrowed
from kiln.packaging.cmake_package import targets_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; the exit code is 0, or 3 when the manifest was refused, with the reason on standard error."""
    parser = argparse.ArgumentParser(prog="kiln.project.cmake_info")
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--targets")
    chosen = parser.parse_args(arguments)
    try:
        library = _library(chosen.manifest, chosen.build_dir, chosen.targets)
        # CMake wants folders of headers to be there; a build takes a folder for its own that has its private one.
        make_folder(library.build, library.build / PRIVATE_FOLDER)
        make_folder(library.build, library.build / "include")
        try:
            chosen.output.write_text("".join(_lines(library)), "utf-8")
        except OSError as error:
            raise os_failure("what CMake asks of the library cannot be written", error, chosen.output) from error
    except KilnError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 3
    return 0


def _library(manifest: Path, build: Path, targets: str | None) -> Library:
    if manifest.name != MANIFEST:
        raise ManifestError(
            f"a manifest is called {MANIFEST}",
            where=str(manifest),
            expected=f"MANIFEST with a path that ends with /{MANIFEST}",
            actual=manifest.name,
            remedy="rename the file; each library's lies in a folder of its own",
        )
    found = read_manifest(manifest)
    if targets is not None:
        found = narrowed(found, targets.split(","), "TARGETS")
    return Library(manifest=found, build=build, state=State(build / PRIVATE_FOLDER / STATE))


def _lines(library: Library) -> Iterable[str]:
    """CMake code: variables, then what defines the imported targets."""
    manifest = library.manifest
    name = manifest.library
    steps = (step for rule in collect(vars(graph)) for step in rule.steps(library))
    outputs = [output for step, make in steps if is_installed(step) for output in make().outputs]
    yield f"set(_kiln_library {name})\n"
    yield f"set(_kiln_targets {name} {' '.join(manifest.targets)})\n"
    yield _list("_kiln_manifests", manifest.files)
    yield _list("_kiln_files", [library.build / output for output in outputs])
    yield f"set(_kiln_tasks {' '.join(STEPS)})\n"
    yield f"set(_{name}_prefix {_quoted(library.build)})\n"
    yield f"set(_{name}_is_built_here TRUE)\n"
    yield targets_text(library.packages.cmake_package)


def _list(variable: str, paths: Iterable[Path]) -> str:
    return f"set({variable}\n" + "".join(f"    {_quoted(path)}\n" for path in paths) + ")\n"


def _quoted(path: Path) -> str:
    """A path as CMake takes it word for word."""
    return f"[==[{path}]==]"


if __name__ == "__main__":
    sys.exit(main())
