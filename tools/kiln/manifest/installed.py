"""Finds the Python files of installed packages by their dotted names, without importing anything."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from kiln import files

FOLDER = "site-packages"
"""what stands for the folder of an installed package in names, wherever it lies"""

_FOLDERS = (FOLDER, "dist-packages")
"""folders that hold installed packages, even below a project: that of a virtual environment"""

FOREIGN = frozenset(
    {
        "cupy",
        "einops",
        "jax",
        "jaxlib",
        "numba",
        "numpy",
        "pandas",
        "packaging",
        "paddle",
        "scipy",
        "tensorflow",
        "torch",
        "torchvision",
        "transformers",
        "triton",
        "typing_extensions",
    }
)
"""packages that hold no kernels to cut, and need not be there: nothing is ever taken from their files"""


def search_path(project: Iterable[Path]) -> tuple[Path, ...]:
    """The folders on Python's path that hold installed packages.

    Python puts the folder that it is started in on its path too; what lies below the folders of the `project` belongs
    to the project, so that the same files are found from wherever a build is started.
    """
    own = [files.real(folder) for folder in project]
    library = {files.real(Path(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib")}
    found: dict[Path, Path] = {}
    for entry in sys.path:
        folder = Path(entry)
        real = files.real(folder)
        if not entry or real in library or real in found or not files.is_dir(real):
            continue
        if folder.name in _FOLDERS or not any(real.is_relative_to(below) for below in own):
            found[real] = folder.absolute()
    return tuple(found.values())


def is_candidate(name: str) -> bool:
    """Whether a package of that name can hold kernels: not Triton, Python's own library, or an array library."""
    return name not in FOREIGN and name not in sys.stdlib_module_names


def why_never(name: str) -> str | None:
    """Why nothing is ever taken from a package of that name, in words; None for one that may hold kernels."""
    if is_candidate(name):
        return None
    if name == "triton":
        return "Triton's own functions come with the compiler, and are no kernels"
    if name in sys.stdlib_module_names:
        return f"{name} is a module of Python itself"
    return f"{name} is never read, so that builds do not depend on it"


def find_package(name: str, folders: Iterable[Path]) -> tuple[Path, ...]:
    """The folders in which the top-level package or module `name` lies: several for one without `__init__.py`."""
    if not is_candidate(name):
        return ()
    portions = []
    for folder in folders:
        if files.is_file(folder / name / "__init__.py") or files.is_file(folder / f"{name}.py"):
            return (folder,)
        if files.is_dir(folder / name):
            portions.append(folder)
    return tuple(portions)


def find_module(parts: Sequence[str], folders: Iterable[Path]) -> Path | None:
    """The file of a module or, for a package, its `__init__.py`; None when there is none."""
    for folder in find_package(parts[0], folders):
        below = folder.joinpath(*parts)
        for path in (below / "__init__.py", below.with_name(f"{parts[-1]}.py")):
            if files.is_file(path):
                return path
    return None


def find_folder(parts: Sequence[str], folders: Iterable[Path]) -> Path | None:
    """The folder of a package, or None."""
    found = (folder.joinpath(*parts) for folder in find_package(parts[0], folders))
    return next((folder for folder in found if files.is_dir(folder)), None)


def modules(parts: Sequence[str], folders: Iterable[Path]) -> list[str]:
    """The names of the modules and packages right below a package, for suggestions."""
    folder = find_folder(parts, folders)
    below = [folder / name for name in files.names(folder)] if folder is not None else []
    return [path.stem for path in below if path.suffix == ".py" or (files.is_dir(path) and path.name.isidentifier())]
