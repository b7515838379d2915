"""The short way by the outline runs what the long way would: after any edit, what is stale by a check in full."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kiln.engine.outline import Outline
from kiln.engine.state import State
from project import REPOSITORY, Project, Result

KERNEL = """\
import triton
import triton.language as tl
from helper import FACTOR


@triton.jit
def {name}_kernel(output_ptr, input_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(input_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x * {factor}, mask=mask)
"""

HEAD = "version: 1\nlibrary: scratch\ntargets: [sm_80]\nkernels:\n"

ENTRY = """\
  {name}:
    source: kernels/{name}.py
    function: {name}_kernel
    dtypes: [fp32]
    blocks: [128]
    name: {name}_{{dtype}}_{{block}}
    group: {name}_{{dtype}}
    signature: "*{{dtype}}:16, *{{dtype}}:16, i32"
    grid: ["cdiv(n_elements, BLOCK_SIZE)"]
    options: {{num_warps: 4}}
"""

ONE = [f"{kind}:one_fp32_128@sm_80" for kind in ("compile", "objcopy", "validate")]


@pytest.fixture
def project(tmp_path: Path, built_once: Project) -> Project:
    """Two kernels, of which `one` uses helper.py, built. A copy: a build folder that moves with its project is good."""
    folder = tmp_path / "project"
    shutil.copytree(built_once.folder, folder, symlinks=True)
    project = Project(folder=folder)
    assert project.doit().expect().counts["built"] == 0, "copying made something stale"
    return project


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Project:
    manifest = HEAD + ENTRY.format(name="one") + ENTRY.format(name="two")
    kernels = {name: KERNEL.format(name=name, factor=factor) for name, factor in (("one", "FACTOR"), ("two", "3"))}
    project = Project.create(tmp_path_factory.mktemp("outline") / "project", manifest=manifest, **kernels)
    project.edit("kernels/two.py", "from helper import FACTOR\n", "")
    project.write("helper.py", "import triton.language as tl\n\nFACTOR: tl.constexpr = tl.constexpr(2)\n")
    project.doit().expect()
    return project


def stale(project: Project, folder: str = "build", **environment: str) -> set[str]:
    """The steps that are not fresh by a check in full."""
    script = str(REPOSITORY / "tests" / "stale_steps.py")
    return set(project.run_python(script, folder, **environment).expect().output.split())


def is_short(doit: Callable[..., Result], *arguments: str, **environment: str) -> bool:
    """Whether a build that has nothing to do finds that without reading kernels.yaml."""
    result = doit(*arguments, PYTHONPROFILEIMPORTTIME="1", **environment).expect("^0 built, ")
    assert "kiln.graph" in result.output
    return "kiln.manifest.loader" not in result.output


def built(result: Result) -> set[str]:
    """The steps that a build ran."""
    lines = [line.split() for line in result.output.splitlines() if line.startswith("[") and "]" in line]
    return {words[1] for words in lines if len(words) > 1 and words[0][1:-1].replace("/", "").isdigit()}


def check(project: Project, *selection: str, **environment: str) -> set[str]:
    """Build: that runs what is stale, leaves nothing stale of what is selected, and the next build is short."""
    before = stale(project, **environment)
    result = project.doit(*selection, **environment).expect()
    kinds = set(selection) or {name.partition(":")[0] for name in before}
    wanted = {name for name in before if name.partition(":")[0] in kinds}
    assert wanted <= built(result), result.output
    left = {name for name in stale(project, **environment) if not selection or name.partition(":")[0] in kinds}
    assert not left
    assert is_short(project.doit, *selection, **environment)
    return built(result)


def test_an_edit_runs_its_kernel_and_no_other(project: Project) -> None:
    for old, new in (("x * FACTOR", "x * FACTOR + 1"), ("FACTOR + 1", "FACTOR + 2")):
        project.edit("kernels/one.py", old, new)
        ran = check(project, "compile", "validate", "objcopy")
        assert set(ONE) - {ONE[2]} <= ran <= set(ONE)
    # What stands for many images was not asked for: it is stale, and the outline does not hide that.
    assert {"archive:all", "archive:sm_80"} <= check(project)


def test_a_helper_in_another_file(project: Project) -> None:
    project.edit("helper.py", "constexpr(2)", "constexpr(5)")
    assert {ONE[0], "archive:all"} <= check(project) and not any("two_" in name for name in check(project))


def test_a_file_of_two_kernels_where_one_is_selected(project: Project) -> None:
    """That the first has seen the edit does not make the second one fresh."""
    project.write("kernels/two.py", project.read("kernels/two.py").replace("x * 3", "x * FACTOR"))
    project.edit("kernels/two.py", "import triton\n", "import triton\nfrom helper import FACTOR\n")
    check(project, "compile")
    project.edit("helper.py", "constexpr(2)", "constexpr(5)")
    assert built(project.doit("compile:one_fp32_128").expect()) == {ONE[0]}
    assert built(project.doit("compile").expect()) == {"compile:two_fp32_128@sm_80"}


def test_what_changes_nothing_runs_nothing(project: Project) -> None:
    for path in (*project.folder.glob("kernels/*.py"), project.folder / "helper.py", project.folder / "kernels.yaml"):
        path.touch()
    (project.folder / "build/images/sm_80/one_fp32_128.cubin").touch()
    assert check(project) == set()
    project.edit("kernels/one.py", "import triton\n", "import triton  # a comment\n")
    project.edit("kernels.yaml", "library: scratch\n", "library: scratch   # a comment\n")
    assert check(project) == set()
    project.write("kernels/three.py", "one = 1\n")
    assert check(project) == set()


def test_values_of_kernels_yaml(project: Project) -> None:
    project.write("kernels.yaml", project.read("kernels.yaml").replace("num_warps: 4", "num_warps: 8", 1))
    assert ONE[0] in check(project, "compile")
    project.write("kernels.yaml", HEAD + ENTRY.format(name="two"))
    project.doit().expect()
    assert not any("one_" in name for name in project.files())
    assert not stale(project)


def test_a_tool_of_the_environment_and_its_content(project: Project, tmp_path: Path) -> None:
    tool = tmp_path / "objcopy"
    tool.write_text('#!/bin/sh\nexec objcopy "$@"\n')
    tool.chmod(0o755)
    environment = {"OBJCOPY": str(tool)}
    assert {name.partition(":")[0] for name in check(project, "objcopy", **environment)} == {"objcopy"}
    tool.write_text('#!/bin/sh\n# another\nexec objcopy "$@"\n')
    assert {name.partition(":")[0] for name in check(project, "objcopy", **environment)} == {"objcopy"}


def test_what_no_step_of_a_selection_asks_is_asked_by_the_whole_build(project: Project, tmp_path: Path) -> None:
    tool = tmp_path / "ar"
    tool.write_text('#!/bin/sh\nexec ar "$@"\n')
    tool.chmod(0o755)
    environment = {"AR": str(tool)}
    project.doit("compile", **environment).expect("^0 built, ")
    assert is_short(project.doit, "compile", **environment)
    assert {"archive:all", "archive:sm_80"} <= check(project, **environment)


def test_a_damaged_output_is_made_again(project: Project) -> None:
    path = project.folder / "build/reports/sm_80/two_fp32_128.json"
    data = path.read_bytes()

    def link() -> None:
        path.rename(path.with_suffix(".old"))
        path.symlink_to(path.with_suffix(".old"))

    for damage in (lambda: path.write_bytes(bytes([data[0] ^ 1]) + data[1:]), path.unlink, link):
        damage()
        assert check(project, "validate") == {"validate:two_fp32_128@sm_80"}
        assert path.read_bytes() == data


def test_a_record_that_is_damaged_where_nobody_looks_first(project: Project) -> None:
    """A disk that lost a row, and kept the time stamps: what stands for them here is an outline of the new ones."""
    kinds = ("compile", "validate", "objcopy")
    private = project.folder / "build/.kiln"
    with closing(sqlite3.connect(private / "state.sqlite")) as connection:
        connection.execute("UPDATE steps SET row = row || ' ' WHERE name LIKE 'validate:two%'")
        connection.commit()
    outline = Outline.load(private / "outline")
    assert outline is not None
    outline.stamp = State(private / "state.sqlite").stamp()
    outline.save(private / "outline")
    project.edit("kernels/one.py", "x * FACTOR", "x * FACTOR + 5")
    report = project.folder / "build/reports/sm_80/two_fp32_128.json"
    before = report.read_bytes()
    result = project.doit(*kinds).expect("the record of earlier builds cannot be read")
    assert built(result) == set(ONE)
    assert report.read_bytes() == before
    # Nothing is known of the other kernel any more.
    again = project.doit(*kinds, KILN_CACHE="off").expect()
    assert built(again) == {name.replace("one", "two") for name in ONE}


def test_a_file_that_takes_the_place_of_a_module_is_noticed(project: Project) -> None:
    project.write("kernels/helper.py", "import triton.language as tl\n\nFACTOR: tl.constexpr = tl.constexpr(7)\n")
    result = project.doit("compile")
    assert result.code != 0 or ONE[0] in built(result)
    (project.folder / "kernels/helper.py").unlink()
    check(project)


def test_forgotten_steps_run_again(project: Project) -> None:
    project.doit("forget", "compile:one_fp32_128").expect()
    assert check(project) == {ONE[0]}


def test_a_failed_kernel_is_tried_again_and_others_are_not(project: Project) -> None:
    project.edit("kernels/one.py", "x * FACTOR", "x * unknown_name")
    for _ in range(2):
        result = project.doit("compile").expect("unknown_name", code=1)
        assert result.counts["up to date"] == 1
    project.edit("kernels/one.py", "x * unknown_name", "x * FACTOR")
    check(project)


def test_a_build_that_runs_is_waited_for(project: Project) -> None:
    with (project.folder / "build/.kiln/lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            [sys.executable, "-m", "doit", "compile"],
            cwd=project.folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tools")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert waiting.stdout is not None
        assert "waiting" in waiting.stdout.readline()
        assert waiting.poll() is None
    assert "0 built" in waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 0


def test_a_build_that_came_first_costs_nothing(project: Project) -> None:
    """Another one may begin and end between this one's look at the outline and its lock."""
    own = """
        import os
        from kiln.doit_plugin import loader, run
        from kiln.graph import *


        def after_another(stack, build, hold=loader.hold_lock):
            os.utime(build.state.path)
            hold(stack, build)


        loader.hold_lock = run.hold_lock = after_another


        def task_own():
            return {"actions": ["true"], "verbosity": 0}
        """
    made = project.files()
    project.write("dodo.py", own)
    for _ in range(2):
        project.doit().expect("^0 built, 15 up to date")
        assert project.files() == made


def test_another_kiln_asks_everything(project: Project, tmp_path: Path) -> None:
    """It may tell otherwise what is stale: also by code that is no input of any step."""
    shutil.copytree(REPOSITORY / "tools" / "kiln", tmp_path / "tools" / "kiln")
    environment = {"PYTHONPATH": str(tmp_path / "tools")}
    project.doit(**environment).expect("^0 built, ")
    assert is_short(project.doit, **environment)
    with (tmp_path / "tools/kiln/engine/status.py").open("a") as file:
        file.write("# another\n")
    assert not is_short(project.doit, **environment)
    assert is_short(project.doit, **environment)


def test_the_build_folder_may_move(project: Project) -> None:
    (project.folder / "build").rename(project.folder / "out")
    for _ in range(2):
        project.doit("--build-dir", "out").expect("^0 built, ")
    assert not stale(project, "out")
    assert is_short(project.doit, "--build-dir", "out")
    project.write("kernels.yaml", project.read("kernels.yaml").replace("kernels:\n", "build: out\nkernels:\n", 1))
    project.doit().expect("^0 built, ")
    assert is_short(project.doit)


def test_a_damaged_outline_is_no_outline(project: Project) -> None:
    path = project.folder / "build/.kiln/outline"
    data = path.read_bytes()
    for damaged in (b"", data[:50], data[:-1], data[:-9] + b"x" + data[-8:], data.replace(b"kiln", b"klin", 1)):
        path.write_bytes(damaged)
        assert project.doit("compile").expect("^0 built, 2 up to date, 0 failed").output.count("\n") == 1
    assert is_short(project.doit, "compile")


def test_a_rule_of_the_projects_own_is_always_asked(project: Project) -> None:
    """What it goes by nobody notes: here a variable that dodo.py reads."""
    own = """
        import os
        from kiln.engine.step import Call, Step
        from kiln.doit_plugin.rules import rule
        from kiln.graph import *

        WORD = os.environ.get("WORD", "")


        @rule("word:<image>")
        def word(library, image):
            path = library.report_path(image)
            return Step(
                after=(f"validate:{image.id}",),
                inputs=lambda: {"word": WORD},
                call=lambda: Call(
                    function="kiln.compile_jobs:validate_image",
                    arguments={
                        "facts": library.build / library.facts_path(image),
                        "image_id": image.id,
                        "target": library.target(image),
                        "budgets": {},
                        "report": f"words/{image.id}",
                    },
                ),
                outputs=(f"words/{image.id}",),
            )
        """
    project.write("dodo.py", own)
    assert project.doit("word", WORD="one").expect().counts["built"] == 2
    assert project.doit("word", WORD="one").expect().counts == {"built": 0, "up to date": 6, "failed": 0}
    assert project.doit("word", WORD="two").expect().counts["built"] == 2
    assert is_short(project.doit, "compile", "validate"), "Kiln's own rules are as they were"


def test_tasks_of_the_projects_own_run_as_ever(project: Project) -> None:
    own = """
        from kiln.graph import *


        def task_free():
            return {"actions": ["echo free >> free.txt"], "verbosity": 0}


        def task_bound():
            return {"actions": ["echo bound >> bound.txt"], "file_dep": ["build/lib/libscratch.a"], "verbosity": 0}
        """
    project.write("dodo.py", own)
    project.doit().expect()
    project.doit().expect()
    assert (project.read("free.txt"), project.read("bound.txt")) == ("free\nfree\n", "bound\n")
    project.edit("helper.py", "constexpr(2)", "constexpr(5)")
    project.doit("bound").expect()
    assert project.read("bound.txt") == "bound\nbound\n"
    assert not stale(project) & {"archive:all", *ONE}


def test_every_way_to_select_counts_alike(project: Project) -> None:
    """What the short way counts is what the long way counts."""
    outline = project.folder / "build/.kiln/outline"
    selections = [
        (),
        ("compile",),
        ("compile:one_fp32_128",),
        (ONE[2],),
        ("archive:all",),
        ("header", "table"),
        (ONE[0], ONE[0]),
        ("crate",),
    ]
    for selection in selections:
        short = project.doit(*selection).expect().counts
        assert is_short(project.doit, *selection), selection
        kept = outline.read_bytes()
        outline.unlink()
        assert project.doit(*selection).expect().counts == short, selection
        outline.write_bytes(kept)
    project.doit("compile:three").expect("there is no task", code=3)
    project.doit("compile:one*").expect("^0 built, ")
