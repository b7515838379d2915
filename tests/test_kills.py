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
from project import Project

KILLS = 50

RULES = '''
from kiln.digests import digest_json
from kiln.doit_plugin.rules import rule
from kiln.engine.step import Call, Step


class Source:
    """Python source that runs where it is unpickled: in the step's child, in its folder for temporary files."""

    def __init__(self, text):
        self.text = text

    def __reduce__(self):
        return exec, (self.text, {})


def writing(name, after, inputs, text):
    """A step that writes an expression's value, in two halves."""
    source = f"""
import os, pathlib
os.makedirs("../out/made", exist_ok=True)
build = pathlib.Path({BUILD!r})
data = {text}
with open("../out/made/{name}", "w") as file:
    file.write(data[:1000])
    file.flush()
    file.write(data[1000:])
"""
    return Step(
        after=after,
        inputs=lambda: {"source": source.replace(BUILD, ""), **inputs()},
        call=lambda: Call(function="types:SimpleNamespace", arguments={"run": Source(source)}),
        outputs=(f"made/{name}",),
    )


@rule("compile:<image>")
def compile_image(library, image):
    """a few letters"""
    return writing(image.id, (), dict, f"'{image.id} ' * 500")


@rule("objcopy:<image>")
def objcopy(library, image):
    """the same, the other way round"""
    task = f"compile:{image.id}"
    inputs = lambda: {"image": library.outputs([task])}
    return writing(image.id + ".o", (task,), inputs, f"(build / 'made/{image.id}').read_text()[::-1]")


@rule("archive:<target>")
def archive(library, target):
    """all of a target"""
    images = [image.id for image in library.images_for(target)]
    tasks = tuple(f"objcopy:{image}" for image in images)
    inputs = lambda: {"objects": library.outputs(tasks)}
    text = f"''.join((build / 'made' / f'{{image}}.o').read_text() for image in {images})"
    return writing(target + ".a", tasks, inputs, text)
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
    project.write("dodo.py", f"BUILD = {str(project.folder / 'build')!r}\n{RULES}")
    return project


def test_killed_at_random_instants_it_ends_with_the_bytes_of_a_clean_build(project: Project) -> None:
    whole = build(project)
    clean = contents(project)
    assert len(clean) == 10
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
