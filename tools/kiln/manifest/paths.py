"""Paths in kernels.yaml: written one way, relative to its folder, and never out of it."""

from __future__ import annotations

import re
from pathlib import Path

from kiln.errors import ManifestError, Position
from kiln.manifest.wording import show

PATH_RULE = "a path relative to the manifest's folder, with forward slashes, and no `.`, `..` or empty part"

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\:]")


def check_path(text: str, position: Position, what: str) -> None:
    """Refuse a path that is not in the one form that Kiln takes: `kernels/softmax.py`. Raises ManifestError."""
    why, remedy = None, None
    forbidden = _FORBIDDEN.search(text)
    if not text:
        why = "it is empty"
    elif text.startswith("/"):
        why, remedy = "it is absolute", "move the file under the manifest's folder"
    elif forbidden is not None:
        why = f"it holds {forbidden[0]!a}"
        remedy = "use forward slashes" if forbidden[0] == "\\" else "rename the file"
    elif ".." in text.split("/"):
        why, remedy = "it leads out of a folder", "move the file under the manifest's folder"
    elif any(part in ("", ".") for part in text.split("/")):
        # One spelling a file, because sources are named by it in builds that must not depend on who wrote the path.
        why = "it has parts that mean nothing"
        remedy = f"write {'/'.join(part for part in text.split('/') if part not in ('', '.')) or 'the name of a file'}"
    if why is not None:
        raise ManifestError(
            f"{show(text)} cannot be `{what}`: {why}",
            where=position,
            expected=PATH_RULE,
            actual=show(text),
            remedy=remedy,
        )


def find_file(root: Path, text: str, position: Position, what: str) -> Path:
    """The absolute path of the file that the checked path `text` names under `root`.

    Raises ManifestError when it is not there, is no file, or lies outside `root` once symbolic links are followed.
    """
    path = root / text
    try:
        real = path.resolve(strict=True)
        is_file = real.is_file()
    except FileNotFoundError:
        raise ManifestError(
            f"the file of `{what}` does not exist",
            where=position,
            expected=f"a file {show(text)} under {root}",
            actual="nothing there",
            remedy="correct the path, or create the file",
        ) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        reason = error.strerror if isinstance(error, OSError) else "a loop of symbolic links"
        raise ManifestError(
            f"the file of `{what}` cannot be read",
            where=position,
            expected=f"a file {show(text)} under {root}",
            actual=reason,
            remedy="correct the path",
        ) from None
    if not is_file:
        raise ManifestError(f"`{what}` is no file", where=position, expected="a file", actual=f"{show(text)} is none")
    if not real.is_relative_to(root.resolve()):
        raise ManifestError(
            f"the file of `{what}` lies outside the manifest's folder",
            where=position,
            expected=f"a file under {root.resolve()}",
            actual=f"{show(text)} is a link to {real}",
            remedy="move the file under the manifest's folder",
        )
    return path
