"""`kiln init`: writes a project of its own, ready to build."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kiln.errors import KilnError, ManifestError, Position
from kiln.manifest import json_schema
from kiln.manifest.names import check_library

TEMPLATE = Path(__file__).parent / "template"
IGNORE = ".gitignore"
_RENAMED = {"gitignore": IGNORE}
"""template file -> its name in a project: under its own name it would act here"""


class ProjectError(KilnError):
    """A project cannot be written where it was asked for."""


def init(folder: Path) -> list[Path]:
    """Write a new project into `folder`, which need not exist, and return the files that were written.

    The library is named after the folder. A .gitignore that is there is left as it is. Raises ProjectError, with
    nothing written, when another file is already there or the folder cannot be written.
    """
    files = dict(project_files(library_name(folder)))
    if (folder / IGNORE).exists():
        del files[IGNORE]
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise ProjectError(
            "there is a project already, and nothing was written",
            where=str(folder),
            expected="a new or empty folder",
            actual=f"{', '.join(taken)} would be overwritten",
            remedy="choose another folder, or move those files away",
        )
    written = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    except OSError as error:
        for path in written:
            path.unlink()
        raise ProjectError(
            f"the project cannot be written: {error.strerror}",
            where=str(error.filename),
            remedy="choose a folder that you can write to",
        ) from error
    return written


def project_files(library: str) -> Mapping[str, str]:
    """Path in the project -> text. The schema is not a template: it is that of the Kiln that writes the project."""
    found = {json_schema.FILE: json_schema.json_schema()}
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(TEMPLATE).as_posix()
            found[_RENAMED.get(name, name)] = path.read_text("utf-8").replace("LIBRARY", library)
    return found


def library_name(folder: Path) -> str:
    """A library name from the folder's: what C and Rust can take of it, or `kernels`."""
    name = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")
    try:
        check_library(name, Position(file=str(folder), line=1))
    except ManifestError:
        return "kernels"
    return name
