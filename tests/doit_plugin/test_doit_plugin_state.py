"""What people are told of a record of earlier builds that turns out to be damaged only when a build writes to it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kiln.engine.state import State
from project import Project

DAMAGED = (
    r"^kiln: build/\.kiln/state\.sqlite was damaged \(.*\); it was set aside as state\.sqlite\.unreadable and made"
)


@pytest.fixture(scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.create(tmp_path_factory.mktemp("state") / "scratch")
    made.edit("kernels.yaml", "[sm_80, gfx942]", "[sm_80]")
    made.doit("validate").expect("0 failed")
    return made


@pytest.fixture
def damaged(_built: Project, tmp_path: Path) -> Project:
    """A build folder whose record reads well, and takes no more pages: what lists the free ones is overwritten."""
    shutil.copytree(_built.folder, tmp_path / "scratch", symlinks=True)
    project = Project(folder=tmp_path / "scratch")
    path = project.folder / "build/.kiln/state.sqlite"
    state = State(path)
    row = state.rows["compile:scale_fp32_128@sm_80"]
    for number in range(100):
        state.record(f"gone{number}", replace(row, components={"long": "x" * 5000}))
    for number in range(100):
        state.drop(f"gone{number}")
    state.close()
    data = bytearray(path.read_bytes())
    trunk = (int.from_bytes(data[32:36], "big") - 1) * 4096
    assert trunk > 0
    data[trunk : trunk + 8] = b"\xff" * 8
    path.write_bytes(data)
    return project


def test_a_build_says_so_once(damaged: Project) -> None:
    damaged.edit("kernels/scale.py", "x * 2", "x * 3")
    result = damaged.doit("validate").expect(DAMAGED, "^3 built, 1 up to date|^4 built", "0 failed")
    assert result.output.count("was damaged") == 1
    again = damaged.doit("validate").expect("^0 built, 4 up to date, 0 failed")
    assert "damaged" not in again.output


def test_verify_says_so_too(damaged: Project) -> None:
    for image in ("scale_fp32_128", "scale_fp32_256"):
        (damaged.folder / f"build/images/sm_80/{image}.cubin").unlink()
    damaged.doit("verify").expect(DAMAGED, "^DAMAGED compile:scale_fp32_128@sm_80", code=1)
    damaged.doit("validate").expect("^2 built, 2 up to date, 0 failed")
