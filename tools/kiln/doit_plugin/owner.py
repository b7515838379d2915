"""Whose a build folder is: one project's, since a build removes what its own manifest does not make."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from kiln.errors import StateError, os_failure

_FILE = "project.json"


def check_owner(private: Path, project: Path, manifest: str) -> None:
    """Refuse a build folder that another project builds into. `private` is Kiln's own folder in it.

    A folder that was moved or copied with its project, and one whose project is gone, is anybody's. `manifest` is what
    the file is called that makes a folder a project. Raises StateError.
    """
    try:
        noted = json.loads((private / _FILE).read_text("utf-8"))
        folder, other = Path(noted["folder"]), Path(noted["project"])
        is_other = folder.samefile(private.parent) and (other / manifest).is_file() and not other.samefile(project)
    except (OSError, ValueError, KeyError, TypeError):
        # No build has noted it, or what it noted is not there any more.
        return
    if is_other:
        raise StateError(
            "the build folder is another project's, whose files this build would remove",
            where=str(private.parent),
            expected=f"a folder for {project} alone",
            actual=f"the one that {other} builds into",
            remedy="name another folder: `build:` in kernels.yaml, or `doit --build-dir DIR`",
        )


def claim(private: Path, project: Path, manifest: str) -> None:
    """Note that the project builds here; to be called with the folder's lock. Raises StateError as `check_owner`."""
    check_owner(private, project, manifest)
    path = private / _FILE
    text = json.dumps({"project": str(project), "folder": str(private.parent)}, indent=1) + "\n"
    with suppress(OSError, ValueError):
        if path.read_text("utf-8") == text:
            return
    try:
        new = path.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(path)
    except OSError as error:
        raise os_failure("it cannot be noted whose the build folder is", error, path) from None
