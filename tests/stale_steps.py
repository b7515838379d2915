"""Prints the steps of the project in the current folder that are not fresh, one a line: asked in full, without outline.

Those that a build makes only when they are named are left out.

As a program: `stale_steps.py [BUILD FOLDER]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kiln.doit_plugin.loader  # before kiln.graph, which doit's own loader must not run
import kiln.graph
from kiln.doit_plugin.rules import collect
from kiln.engine.build import Build
from kiln.engine.state import State
from kiln.library import Library


def main(folder: str = "build") -> None:
    root = Path(folder).absolute()
    state = State(root / ".kiln" / "state.sqlite")
    library = Library.load(Path("kernels.yaml"), root, state)
    build = Build(state=state, root=root, folder=root / ".kiln", size=1)
    rules = [rule for rule in collect(vars(kiln.graph)) if rule.default]
    steps = {name: make for rule in rules for name, make in rule.steps(library)}
    stale: set[str] = set()
    for name, make in steps.items():
        if not build.status(name, make()).fresh:
            stale.add(name)
    print("\n".join(sorted(stale)))


if __name__ == "__main__":
    main(*sys.argv[1:])
