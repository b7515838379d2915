"""The releases of Triton: this Python's own, and the others, which `tools/bootstrap.py test` puts into .venv."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

from packaging.requirements import Requirement

from kiln.toolchain.targets import TARGETS
from kiln.toolchain.tools import find_triton, own_search_path
from kiln.toolchain.triton_releases import RELEASES

REPOSITORY = Path(__file__).parents[1]
INSTALLED = ".".join(find_triton().version.split(".")[:2])
"""the release that this Python has, which is the locked one: 3.9"""


def lock(release: str) -> Path:
    """The file that names the wheels of a release that is here for the tests alone."""
    return REPOSITORY / "requirements" / f"triton-{release}.txt"


def is_published(release: str) -> bool:
    """Whether there are wheels of a release for this Python."""
    marker = Requirement(lock(release).read_text("utf-8").partition("\\\n")[0]).marker
    return marker is None or marker.evaluate()


_ALL = [f"{major}.{minor}" for major, minor in RELEASES]
HERE = [release for release in _ALL if release == INSTALLED or is_published(release)]
"""the releases that can be tested with this Python, the oldest first"""

BUILDABLE = {
    name: target for name, target in TARGETS.items() if target.triton and name not in find_triton().release.lacks
}
"""the targets that this Python's own release builds for"""


def folder_of(release: str) -> Path:
    """Where the package of a release lies."""
    if release == INSTALLED:
        return find_triton().folder
    folder = Path(sys.prefix) / f"triton-{release}" / "triton"
    assert folder.is_dir(), f"{folder} is missing: `python3 tools/bootstrap.py test` installs it, with other releases"
    return folder


def link(real: Path, made: Path, without: set[str]) -> None:
    """Links to what is in a folder; folders of `without` are made, and its files left out."""
    made.mkdir(parents=True)
    for path in real.iterdir():
        inside = {name.partition("/")[2] for name in without if name.partition("/")[0] == path.name}
        if inside == {""}:
            continue
        if inside:
            link(path, made / path.name, inside)
        else:
            (made / path.name).symlink_to(path)


def linked_triton(folder: Path, copied: set[str]) -> Path:
    """A Triton in `folder`: links to this Python's own, but for copies of some files, which a test may change."""
    real, made = find_triton().folder, folder / "triton"
    link(real, made, copied)
    for name in copied:
        shutil.copy2(real / name, made / name)
    return made


def copied_triton(folder: Path, name: str) -> Path:
    """A Triton in `folder` that is this Python's own by all digests: a copy of one file, and links to the others.

    Folders are real ones, since links to folders are not followed where sources are looked for.
    """
    real, made = find_triton().folder, folder / "triton"
    shutil.copytree(real, made, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    (made / name).unlink()
    shutil.copy2(real / name, made / name)
    return made


def python_with(packages: Path, folder: Path) -> str:
    """Make a Python in `folder` that finds what lies in `packages` first, and then all that this one has."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text("".join(f"{entry}\n" for entry in [packages, *own_search_path()]))
    return str(folder / "bin" / "python")


def python_of(release: str, folder: Path) -> str:
    """A Python that has this release of Triton; it is made in `folder` unless it is this one."""
    return sys.executable if release == INSTALLED else python_with(folder_of(release).parent, folder)
