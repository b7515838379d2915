"""Paths in kernels.yaml: written one way, and relative; only roots and the build folder may lie outside its folder."""

from __future__ import annotations

import re
from pathlib import Path

from kiln import files
from kiln.errors import ManifestError, Position
from kiln.manifest.wording import show

PATH_RULE = "a path relative to the manifest's folder, with forward slashes, and no `.`, `..` or empty part"

OUTER_RULE = (
    "a path relative to the manifest's folder, with forward slashes, `..` at its start only, and no `.` or empty part"
)

_UP = re.compile(r"(?:\.\./)*(?:\.\.$)?")
"""the part of a path that leads out of the folder which it is relative to"""
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\:]")


def check_path(text: str, position: Position, what: str) -> None:
    """Refuse a path that is not in the one form that Kiln takes: `kernels/softmax.py`. Raises ManifestError."""
    fault = _fault(text)
    if fault is not None:
        raise _refusal(text, position, what, *fault, PATH_RULE)


def check_outer_path(text: str, position: Position, what: str) -> None:
    """The same for a path that may lead out of the manifest's folder: `../third_party/flash`. Raises ManifestError."""
    inner = _UP.sub("", text, count=1)
    fault = _fault(inner) if inner or not text else None
    if text.startswith("~"):
        fault = "`~` is a shell's word for a home folder, and Kiln takes it for a name", None
    if fault is not None:
        why, remedy = fault
        if inner.startswith(("/", "~")):
            remedy = "write it relative to the manifest's folder"
        elif ".." in inner.split("/"):
            why, remedy = "`..` stands behind a folder", "write the shortest path"
        raise _refusal(text, position, what, why, remedy, OUTER_RULE)


def _fault(text: str) -> tuple[str, str | None] | None:
    """What is wrong with a path, and what to do."""
    forbidden = _FORBIDDEN.search(text)
    if not text:
        return "it is empty", None
    if text.startswith("/"):
        return "it is absolute", "move the file under the manifest's folder"
    if forbidden is not None:
        remedy = "use forward slashes" if forbidden[0] == "\\" else "use names without it"
        return f"it holds {forbidden[0]!a}", remedy
    if ".." in text.split("/"):
        return "it leads out of a folder", "move the file under the manifest's folder, or declare its own under `roots`"
    if any(part in ("", ".") for part in text.split("/")):
        # One spelling a file, because sources are named by it in builds that must not depend on who wrote the path.
        shorter = "/".join(part for part in text.split("/") if part not in ("", "."))
        return "it has parts that mean nothing", f"write {shorter or 'the name of a file'}"
    return None


def _refusal(text: str, position: Position, what: str, why: str, remedy: str | None, expected: str) -> ManifestError:
    return ManifestError(
        f"{show(text)} cannot be `{what}`: {why}",
        where=position,
        expected=expected,
        actual=show(text),
        remedy=remedy,
    )


def find_file(
    root: Path,
    text: str,
    position: Position,
    what: str,
    *,
    within: Path | None = None,
    folder: str = "the manifest's folder",
) -> Path:
    """The absolute path of the file that the checked path `text` names under `root`.

    Raises ManifestError when it is not there, is no file, or lies outside `within`, or `root` where that is None, once
    symbolic links are followed; `folder` is how messages name that one.
    """
    within = within or root
    path = root / text
    try:
        real = files.real(path, strict=True)
        is_file = files.is_file(real)
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
    if not real.is_relative_to(files.real(within)):
        raise ManifestError(
            f"the file of `{what}` lies outside {folder}",
            where=position,
            expected=f"a file under {files.real(within)}",
            actual=f"{show(text)} is a link to {real}",
            remedy="move the file under that folder, or declare the folder that it lies in under `roots`",
        )
    return path
