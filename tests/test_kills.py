"""kill -9 at any instant of a build: the next one redoes what was in flight, and ends with the bytes of a clean one.

The project's own rules make small files by way of several steps each, so that a whole build takes a moment and can be
killed many times; doit, the run command, the pool, publishing, state and lock are those of every build. What a kill
does while Triton compiles is in test_build.py.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from doit.doit_cmd import DoitMain

import kiln.doit_plugin.run
import kiln.library  # noqa: F401  # both are imported once, here, rather than in each of the builds
from kiln.engine import pool
from project import Project

KILLS = 50

RULES = '''
from kiln.doit_plugin.rules import rule
from kiln.engine.step import Built, Call, Step


def step(function, name, inputs, arguments, after=(), rides=False):
    call = Call(function=f"letter_steps:{function}", arguments={"name": f"made/{name}", **arguments})
    return Step(after=after, rides=rides, inputs=inputs, call=lambda: call, outputs=(f"made/{name}",))


@rule("compile:<image>")
def compile_image(library, image):
    """a few letters"""
    text = f"{image.id} " * 500
    return step("write", image.id, lambda: {"text": text}, {"text": text})


@rule("objcopy:<image>")
def objcopy(library, image):
    """the same, the other way round"""
    task, source = f"compile:{image.id}", f"made/{image.id}"
    inputs = lambda: {"image": library.output(task, source)}
    return step("reverse", f"{image.id}.o", inputs, {"source": Built(source)}, (task,), rides=True)


@rule("archive:<target>")
def archive(library, target):
    """all of a target"""
    images = [image.id for image in library.images_for(target)]
    tasks = tuple(f"objcopy:{image}" for image in images)
    inputs = lambda: {"objects": library.outputs(tasks)}
    return step("join", f"{target}.a", inputs, {"sources": [Built(f"made/{image}.o") for image in images]}, tasks)
'''


def build(project: Project, *, kill_after: float | None = None) -> float:
    """Build in a fork of this process; seconds that it took. It must end well unless it is killed in time."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.chdir(project.folder)
            os.environ["PYTHONPATH"] = str(Path(__file__).parent)
            # The jobs of this test: the product hands no PYTHONPATH on.
            pool.ENVIRONMENT = (*pool.ENVIRONMENT, "PYTHONPATH")
            code = DoitMain().run([])
        finally:
            os._exit(code)
    if kill_after is not None:
        asked = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while time.monotonic() < began + kill_after and os.waitid(os.P_PID, pid, asked) is None:
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - began
    if not (kill_after is not None and os.WIFSIGNALED(status)):
        assert os.waitstatus_to_exitcode(status) == 0
    return seconds


def recorded(project: Project) -> set[str]:
    path = project.folder / "build/.kiln/state.sqlite"
    if not path.exists():
        return set()
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM steps")}
    finally:
        connection.close()


def contents(project: Project) -> dict[str, bytes]:
    return {name: (project.folder / "build" / name).read_bytes() for name in project.files()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project.create(tmp_path / "killed")
    project.write("dodo.py", RULES)
    return project


def test_killed_at_random_instants_it_ends_with_the_bytes_of_a_clean_build(project: Project) -> None:
    whole = build(project)
    clean = contents(project)
    assert len(clean) == 10 and len(project.rode()) == 4
    chance = random.Random(7)
    stages: set[int] = set()
    removed = project.folder / "removed"
    for _ in range(KILLS):
        (project.folder / "build").rename(removed)
        build(project, kill_after=chance.random() * whole)
        stages.add(len(recorded(project)))
        for path in (project.folder / "build/made").glob("*"):
            # What is there is whole: it was renamed into its place.
            assert path.read_bytes() == clean[f"made/{path.name}"], path
        whole = max(whole / 2, build(project))
        assert contents(project) == clean
        assert not (project.folder / "build/.kiln/tmp").exists()
        for path in sorted(removed.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        removed.rmdir()
    assert len(stages) > 2, "the kills were all before the first step or after the last"


def test_killed_again_and_again_a_build_loses_nothing_that_was_recorded(project: Project) -> None:
    """Each one goes on where the last was killed."""
    clean_project = Project(folder=project.folder)
    whole = build(clean_project)
    clean = contents(clean_project)
    (project.folder / "build").rename(project.folder / "removed")
    chance = random.Random(8)
    known: set[str] = set()
    for _ in range(8):
        build(project, kill_after=whole * (0.4 + chance.random() * 0.4))
        now = recorded(project)
        assert known <= now
        known = now
    build(project)
    assert contents(project) == clean
