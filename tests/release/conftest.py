"""The plan of a release of the library in release_project.py, and the release that is made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kiln.release.plan import ReleasePlan
from kiln.release_jobs import make_release
from project import Project
from release_project import in_child, plan_of


@pytest.fixture(scope="session")
def plan(release_library: Project) -> ReleasePlan:
    """The plan of its release, as a child has it."""
    return in_child(plan_of(release_library), release_library.folder / "build")


@pytest.fixture(scope="session")
def _released(plan: ReleasePlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    staging = tmp_path_factory.mktemp("released")
    make_release(plan, staging)
    return staging / "release"


@pytest.fixture
def released(_released: Path, tmp_path: Path) -> Path:
    """The folder `release` that was made of the plan, in a copy that a test may change."""
    return Path(shutil.copytree(_released, tmp_path / "copied" / "release"))
