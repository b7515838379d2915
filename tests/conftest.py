"""Fixtures for tests of whole builds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from project import Project


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
