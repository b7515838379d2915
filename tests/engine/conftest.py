"""Fixtures for the tests of the engine room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_helpers import children
from engine_tree import Tree

from kiln.engine import pool as pool_module
from kiln.engine.pool import Pool


@pytest.fixture
def own_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server import the jobs of these tests: by PYTHONPATH, which the product does not hand on."""
    monkeypatch.setattr(pool_module, "ENVIRONMENT", ("PATH", "PYTHONPATH"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture
def make_pool(tmp_path: Path, own_jobs: None) -> Iterator[Callable[..., Pool]]:
    """Pools that end with the test."""
    made: list[Pool] = []

    def make(size: int = 2) -> Pool:
        made.append(Pool(size=size, root=tmp_path / "build", temp=tmp_path / "build" / "tmp"))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture
def pool(make_pool: Callable[..., Pool]) -> Pool:
    return make_pool()


@pytest.fixture
def tree(tmp_path: Path, own_jobs: None) -> Iterator[Tree]:
    """A build folder; its builds leave no process."""
    before = children()
    yield Tree(tmp_path)
    assert children() == before
