"""What a rebuild is made from, and what is another around it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import project as scratch
from kiln.errors import ReleaseError, StateError
from kiln.release.rebuild import Project, copy_project, rebuild, surroundings


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(folder: Path) -> set[str]:
    """Files below a folder, links as they are."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def test_what_is_made_is_left_behind(tmp_path: Path) -> None:
    project = tree(
        tmp_path / "project",
        {
            "kernels.yaml": "",
            "kernels/a.py": "a",
            "build/images/x": "",
            "other-build/.kiln/state.sqlite": "",
            "other-build/lib/x.a": "",
            ".venv/pyvenv.cfg": "",
            ".venv/bin/python": "",
            "target/CACHEDIR.TAG": "",
            "target/debug/x": "",
            ".git/HEAD": "",
            "vendor/.git": "gitdir: elsewhere",
            "vendor/b.py": "b",
            "kernels/__pycache__/a.pyc": "",
            ".hidden": "",
        },
    )
    copy = copy_project(Project(folder=project, build=project / "build"), tmp_path / "fresh")
    assert names(copy) == {"kernels.yaml", "kernels/a.py", "vendor/b.py", ".hidden"}
    assert (copy / "kernels/a.py").read_text() == "a"


def test_nothing_of_a_copy_is_of_its_time(tmp_path: Path) -> None:
    project = tree(tmp_path / "project", {"a": "", "b": "#!/bin/sh\n"})
    (project / "b").chmod(0o755)
    copy = copy_project(Project(folder=project, build=project / "build"), tmp_path / "fresh")
    assert {path.stat().st_mtime for path in copy.iterdir()} == {1_000_000_000}
    assert os.access(copy / "b", os.X_OK) and not os.access(copy / "a", os.X_OK)


def test_roots_keep_their_places_around_the_project(tmp_path: Path) -> None:
    """Also two that lie above one another, and one that is within."""
    home = tree(
        tmp_path / "home",
        {
            "work/project/kernels.yaml": "",
            "work/project/inner/x.py": "",
            "work/third/flash/y.py": "y",
            "work/third/unused.py": "",
            "z/z.py": "z",
        },
    )
    roots = ("../third/flash", "../../z", "inner")
    project = Project(folder=home / "work/project", build=home / "work/project/build", roots=roots)
    copy = copy_project(project, tmp_path / "fresh")
    assert (copy / "../third/flash/y.py").read_text() == "y"
    assert (copy / "../../z/z.py").read_text() == "z"
    assert names(copy) == {"kernels.yaml", "inner/x.py"}
    assert len(names(tmp_path / "fresh")) == 4


def test_a_root_around_the_project_is_copied_without_it_twice(tmp_path: Path) -> None:
    shared = {"shared/x.py": "x", "shared/project/kernels.yaml": "", "shared/project/build/y": ""}
    home = tree(tmp_path / "home", shared)
    folder = home / "shared/project"
    copy = copy_project(Project(folder=folder, build=folder / "build", roots=("..",)), tmp_path / "fresh")
    assert (copy / "../x.py").read_text() == "x"
    assert names(tmp_path / "fresh") == {
        (copy / "kernels.yaml").relative_to(tmp_path / "fresh").as_posix(),
        Path(os.path.normpath(copy / "../x.py")).relative_to(tmp_path / "fresh").as_posix(),
    }


def test_links_lead_to_the_copy_or_become_files(tmp_path: Path) -> None:
    outside = tree(tmp_path / "outside", {"c.py": "c", "folder/d.py": "d"})
    project = tree(tmp_path / "project", {"a.py": "a"})
    (project / "b.py").symlink_to("a.py")
    (project / "c.py").symlink_to(outside / "c.py")
    (project / "folder").symlink_to(outside / "folder")
    (project / "loop").symlink_to(project)
    (project / "gone").symlink_to("nowhere")
    copy = copy_project(Project(folder=project, build=project / "build"), tmp_path / "fresh")
    assert names(copy) == {"a.py", "b.py", "c.py", "folder/d.py"}
    assert (copy / "b.py").readlink() == Path("a.py")
    assert not (copy / "c.py").is_symlink() and (copy / "c.py").read_text() == "c"


def test_a_copy_within_the_project_is_none_of_its_files(tmp_path: Path) -> None:
    """Where TMPDIR is a folder of the project."""
    project = tree(tmp_path / "project", {"a.py": "a", "tmp/other": ""})
    copy = copy_project(Project(folder=project, build=project / "build"), project / "tmp/fresh")
    assert names(copy) == {"a.py", "tmp/other"}


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    project = tree(tmp_path / "project", {"a": ""})
    (tmp_path / "fresh").write_text("a file where the copy goes")
    with pytest.raises(StateError, match="the sources cannot be copied"):
        copy_project(Project(folder=project, build=project / "build"), tmp_path / "fresh" / "x")


def test_everything_around_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, copy, fresh = tmp_path / "project", tmp_path / "fresh/copy", tmp_path / "fresh"
    tree(project, {"tools/x.py": ""})
    tree(copy, {"tools/x.py": ""})
    monkeypatch.setenv("PYTHONPATH", f"{project}/tools:{tmp_path}/elsewhere")
    monkeypatch.setenv("KILN_CACHE", str(tmp_path))
    here = {name: os.environ.get(name) for name in ("HOME", "TZ", "PYTHONHASHSEED", "LC_ALL", "TMPDIR", "USER")}
    around = surroundings(project, copy, fresh)
    assert all(around.environment[name] != value for name, value in here.items())
    assert around.environment["KILN_CACHE"] == "off"
    assert around.environment["PYTHONPATH"] == f"{copy}/tools:{tmp_path}/elsewhere"
    assert around.environment["PATH"] == os.environ["PATH"]
    assert Path(around.environment["HOME"]).is_dir() and not list(Path(around.environment["HOME"]).iterdir())
    assert around.jobs >= 1
    mask = os.umask(0o077)
    try:
        (fresh / "home").rmdir()
        (fresh / "tmp").rmdir()
        assert surroundings(project, copy, fresh).umask not in (0o077, around.umask)
    finally:
        os.umask(mask)
    assert around.umask != mask


def test_the_locale_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for number, locale in enumerate(("C", "C.UTF-8")):
        monkeypatch.setenv("LC_ALL", locale)
        fresh = tmp_path / str(number)
        fresh.mkdir()
        found.append(surroundings(tmp_path, tmp_path, fresh).environment["LC_ALL"])
    assert found[0] != "C" and found[1] == "C"


def test_a_rebuild_that_fails_says_what_doit_said(tmp_path: Path) -> None:
    """And doit is asked for the same targets, by the same rules."""
    project = scratch.Project.create(tmp_path / "project").folder
    (project / "rules.py").write_text("import sys\nraise ValueError(' '.join(sys.argv[1:]))\n")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    said: list[str] = []
    words = ("-m", "doit", "run", "-f", "rules.py")
    asked = Project(folder=project, build=project / "build", words=words)
    with pytest.raises(ReleaseError) as raised:
        rebuild(asked, fresh, said.append, part=("sm_80", "sm_90a"))
    text = str(raised.value)
    assert "the build of a copy failed" in text
    assert "ValueError: run -f rules.py --build-dir " in text
    assert "--no-cache --targets sm_80,sm_90a release" in text
    assert len(said) == 1 and "without a cache" in said[0]
