"""Fixtures for tests of whole builds."""

from __future__ import annotations

import compileall
import fcntl
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cuda_project
import release_project
from c_doubles import Doubles
from kiln.manifest.loader import load
from project import REPOSITORY, Project

# For what starts a build past `Project.doit`.
os.environ["KILN_CACHE"] = "off"

CORE_SECONDS_PER_IMAGE = 2 * 120 / 200
"""what an image of the default library may take on average, for two cores to make 200 in two minutes"""

FIRST = ("test_default_library.py",)
"""files of tests that take a minute and more"""


def pytest_configure(config: pytest.Config) -> None:
    """Compile Kiln to bytecode once where Python was told to keep none: builds by the hundred would each do it anew."""
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        compileall.compile_dir(REPOSITORY / "tools" / "kiln", quiet=2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers that share the tests begin with whole builds: what takes long is not left to one of them at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (item.path.name not in FIRST, item.path.parent != Path(__file__).parent))


@pytest.fixture(scope="session")
def common(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is one for all workers which share the tests."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if hasattr(pytestconfig, "workerinput") else base


def once(folder: Path, make: Callable[[Path], None]) -> Project:
    """What `make` makes in folder/project: the first worker that comes has it made, and others take it as it is."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder / "project", ignore_errors=True)
            make(folder / "project")
            (folder / "made").touch()
    return Project(folder=folder / "project")


@pytest.fixture(scope="session")
def _built(common: Path) -> Project:
    def make(folder: Path) -> None:
        Project.create(folder).doit().expect()

    return once(common / "built", make)


@pytest.fixture
def built(_built: Project, tmp_path: Path) -> Project:
    """A small project that is built and fresh; a test may change it."""
    folder = tmp_path / "scratch"
    shutil.copytree(_built.folder, folder, symlinks=True)
    return Project(folder=folder)


@pytest.fixture(scope="session")
def _cuda(common: Path) -> Project:
    def make(folder: Path) -> None:
        cuda_project.create(folder).doit("compile").expect("1 built, 0 up to date, 0 failed")

    return once(common / "cuda", make)


@pytest.fixture
def cuda(_cuda: Project, tmp_path: Path) -> Project:
    """The project of cuda_project.py, its image built and fresh; a test may change it."""
    shutil.copytree(_cuda.folder, tmp_path / "scratch", symlinks=True)
    return Project(folder=tmp_path / "scratch")


@pytest.fixture(scope="session")
def release_library(common: Path) -> Project:
    """The project of release_project.py, with something of everything that a release holds. Tests leave it as it is."""

    def make(folder: Path) -> None:
        release_project.create(folder)

    return once(common / "release", make)


@pytest.fixture(scope="session")
def kiln_cache(common: Path) -> Path:
    """The folder of a cache for tests that are about other things than what is in it."""
    return common / "kiln_cache"


@pytest.fixture(scope="session")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Doubles:
    """Drivers of GPUs, for programs that launch."""
    return Doubles(folder=tmp_path_factory.mktemp("doubles"))


@pytest.fixture(scope="session")
def default_library(common: Path) -> Project:
    """The library that this repository declares, in a copy of the project, built whole. Tests leave it as it is."""
    return once(common / "default", _build_default_library)


def _build_default_library(folder: Path) -> None:
    folder.mkdir()
    for name in ("kernels.yaml", "dodo.py", "pyproject.toml", "kernels", "examples"):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("target", "Cargo.lock", "__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    began = _seconds_of_children()
    Project(folder=folder).doit().expect("0 failed")
    # Processor time, for what else runs on the machine is not the build's.
    assert _seconds_of_children() - began < CORE_SECONDS_PER_IMAGE * len(load(REPOSITORY / "kernels.yaml").images)


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
