"""What can be named on the command line beside steps: what tasks of dodo.py make, and subtasks that come later."""

from __future__ import annotations

import pytest

from project import Project

OWN = """

from doit import create_after


@create_after(executed="header:c")
def task_each():
    for header in sorted(os.listdir("build/include/scratch")):
        yield {"name": header, "actions": [f"echo made for {header}"], "verbosity": 2}


def task_note():
    return {"actions": ["echo noted > NOTE"], "targets": ["NOTE"]}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A library of one image, with tasks of its own."""
    made = Project.create(tmp_path_factory.mktemp("selection") / "scratch")
    made.edit("kernels.yaml", "[sm_80, gfx942]", "[sm_80]")
    made.edit("kernels.yaml", "[128, 256]", "[128]")
    made.write("dodo.py", "import os\n" + made.read("dodo.py") + OWN)
    made.doit("header:c").expect("0 failed")
    return made


def test_a_subtask_that_is_made_later_can_be_named(project: Project) -> None:
    result = project.doit("each:scratch.h").expect(r"^\.  each:scratch\.h", "^made for scratch.h")
    assert result.output.count("made for") == 1
    project.doit("each").expect("^made for scratch.h")


def test_a_subtask_that_does_not_come_is_an_error(project: Project) -> None:
    project.doit("each:nothing").expect("^ERROR: each has made no task 'each:nothing': it has made each:", code=3)
    project.doit("each:scratch_h").expect("^ERROR: each has made no task 'each:scratch_h': .*each:scratch.h", code=3)


def test_an_output_of_a_users_task_can_be_named(project: Project) -> None:
    """As its path is written, which need not look like one."""
    project.doit("NOTE").expect(r"^\.  note")
    assert project.read("NOTE") == "noted\n"


def test_other_names_are_still_refused(project: Project) -> None:
    for name in ("note:more", "every:one", "NOTES"):
        project.doit(name).expect(f"there is no task '{name}'", code=3)
    project.doit("NOT*").expect("matches no task", code=3)
