"""A project whose steps take as long as they are told, and need no compiler: what a person sees of a build."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from project import REPOSITORY, Project
from terminal import Terminal

RULES = '''

import time

from kiln.doit_plugin.rules import rule
from kiln.engine.step import Call, Step


class Later:
    """Unpickled in the child, it is a call."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def step(*calls, **more):
    arguments = {str(place): call for place, call in enumerate(calls)}
    call = Call(function="types:SimpleNamespace", arguments=arguments)
    return Step(inputs=dict, call=lambda: call, outputs=(), **more)


@rule("sleep:<image>")
def sleep(library, image):
    """takes more than a second"""
    return step(Later(time.sleep, 1.2))


@rule("quick:<target>")
def quick(library, target):
    """takes no time"""
    return step()


@rule("broken:<target>")
def broken(library, target):
    """fails"""
    return step(Later(int, "no number"), origin=("kernels.yaml:5:3",))


@rule("crash")
def crash(library):
    """its process dies"""
    return step(Later(os.write, 2, b"LLVM ERROR: it is broken\\n0x1234\\n"), Later(os.abort))


def task_print():
    """a user's own"""
    return {"actions": ["echo from a command", print_it], "verbosity": 2}


def print_it():
    print("from Python")


def task_forever():
    return {"actions": [sleep_on]}


def sleep_on():
    time.sleep(600)


def task_wrong():
    return {"actions": ["false"], "task_dep": ["print"]}
'''


def slow_project(folder: Path) -> Project:
    """The project. `sleep` has four steps, `quick` and `broken` two each."""
    project = Project.create(folder)
    project.write("dodo.py", "import os\n" + project.read("dodo.py") + RULES)
    return project


def on_terminal(project: Project, *arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> Terminal:
    """doit in a terminal, as a person runs it."""
    known = {name: value for name, value in os.environ.items() if name not in ("CI", "NO_COLOR")}
    return Terminal(
        *(sys.executable, "-m", "doit", *arguments),
        folder=project.folder,
        environment={
            **known,
            "PYTHONPATH": str(REPOSITORY / "tools"),
            "KILN_CACHE": "off",
            "TERM": "xterm-256color",
            **environment,
        },
        columns=columns,
        rows=rows,
    )
