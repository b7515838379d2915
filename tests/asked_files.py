"""Loads the library in the current folder and prints what that asked of files, and what it opened and listed in truth.

As a program, for a process of its own: `asked_files.py`; each kernel is also loaded alone, in a fork that remembers
nothing of the others. Prints JSON: kernel -> {"asked": {owner: questions}, "opened": paths, "listed": paths}, with the
whole library under "".
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kiln.engine.state import State
from kiln.errors import KilnError
from kiln.files import Notes, asked_by, noted_in
from kiln.library import Library, read_manifest

EVERY = 12
"""of the kernels, this many at most are loaded alone"""


def ask(only: list[str] | None, state: State) -> dict[str, Any]:
    """Load all kernels or some of them, and ask for the inputs of their images, as a build does.

    `state` keeps the digests of the compilers, for the next one that asks.
    """
    notes, opened, listed = Notes(), set[str](), set[str]()
    watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[0], str):
            opened.add(os.path.abspath(arguments[0]))  # noqa: PTH100  # with links
        elif watching and event in ("os.listdir", "os.scandir") and not isinstance(arguments[0], int):
            listed.add(os.path.abspath(arguments[0] or "."))  # noqa: PTH100  # likewise

    sys.addaudithook(watch)
    with noted_in(notes):
        manifest = read_manifest(Path("kernels.yaml"), only)
        build = Path("build").absolute()
        library = Library(manifest=manifest, build=build, state=state)
        for image in manifest.images:
            for inputs in (library.compile_inputs, library.validate_inputs, library.packages.objcopy_inputs):
                try:
                    with asked_by(image.variant.kernel.key):
                        inputs(image)
                except KilnError:
                    # nvcc is not everywhere; what cannot be had is not fresh.
                    continue
    watching = False
    state.commit_files()
    modules = {getattr(module, "__file__", None) for module in sys.modules.values()}
    return {
        "asked": {owner: sorted(questions) for owner, questions in notes.asked.items()},
        "opened": sorted(path for path in opened - modules if "__pycache__" not in path),
        "listed": sorted(listed),
        "kernels": [kernel.key for kernel in manifest.kernels],
    }


def forked(function: Callable[[], Any]) -> Any:
    """What the function returns in a child of this process."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            with os.fdopen(writer, "w") as file:
                json.dump(function(), file)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = json.load(file)
    os.wait()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.sqlite")
        whole = forked(lambda: ask(None, State(path)))
        some = whole["kernels"][:: 1 + len(whole["kernels"]) // EVERY]
        alone = {kernel: forked(lambda kernel=kernel: ask([kernel], State(path))) for kernel in some}
    json.dump({"": whole, **alone}, sys.stdout)


if __name__ == "__main__":
    main()
