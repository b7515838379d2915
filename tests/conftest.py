"""Fixtures for tests of whole builds."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import pytest

import cuda_project
from c_doubles import Doubles
from kiln.manifest.loader import load
from project import REPOSITORY, Project

# For what starts a build past `Project.doit`.
os.environ["KILN_CACHE"] = "off"

CORE_SECONDS_PER_IMAGE = 2 * 120 / 200
"""what an image of the default library may take on average, for two cores to make 200 in two minutes"""


@pytest.fixture(scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("built") / "scratch")
    project.doit().expect()
    return project


@pytest.fixture
def built(_built: Project, tmp_path: Path) -> Project:
    """A small project that is built and fresh; a test may change it."""
    folder = tmp_path / "scratch"
    shutil.copytree(_built.folder, folder, symlinks=True)
    return Project(folder=folder)


@pytest.fixture(scope="session")
def _cuda(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = cuda_project.create(tmp_path_factory.mktemp("cuda") / "scratch")
    project.doit("compile").expect("1 built, 0 up to date, 0 failed")
    return project


@pytest.fixture
def cuda(_cuda: Project, tmp_path: Path) -> Project:
    """The project of cuda_project.py, its image built and fresh; a test may change it."""
    shutil.copytree(_cuda.folder, tmp_path / "scratch", symlinks=True)
    return Project(folder=tmp_path / "scratch")


@pytest.fixture(scope="session")
def kiln_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cache for tests that are about other things than what is in it."""
    return tmp_path_factory.mktemp("kiln_cache")


@pytest.fixture(scope="session")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Doubles:
    """Drivers of GPUs, for programs that launch."""
    return Doubles(folder=tmp_path_factory.mktemp("doubles"))


@pytest.fixture(scope="session")
def default_library(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The library that this repository declares, in a copy of the project, built whole. Tests leave it as it is."""
    folder = tmp_path_factory.mktemp("default") / "kiln"
    folder.mkdir()
    for name in ("kernels.yaml", "dodo.py", "pyproject.toml", "kernels", "examples"):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("target", "Cargo.lock", "__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    project = Project(folder=folder)
    began = _seconds_of_children()
    project.doit().expect("0 failed")
    # Processor time, for what else runs on the machine is not the build's.
    assert _seconds_of_children() - began < CORE_SECONDS_PER_IMAGE * len(load(REPOSITORY / "kernels.yaml").images)
    return project


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
