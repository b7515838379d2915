"""A stamp and a depfile of a build, for the build tools around it: when make, ninja or Cargo are to ask Kiln again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kiln.errors import os_failure
from kiln.files import Noted, Question

_SPECIAL = re.compile(r"([ #\\])")
"""what the lexers of make, ninja and CMake want a backslash before; a dollar they want twice"""


def write_stamp(stamp: Path, answers: Mapping[Question, Noted], began_ns: int) -> None:
    """Write `stamp`, and beside it `<stamp>.d`, in make's syntax: what is newer than the stamp is to be asked about.

    `<stamp>.env` names the variables of the environment that count, one a line; a depfile has no word for them.
    `answers` are those that the build went by; `began_ns` is when it began, ns since the epoch. Raises StateError.
    """
    paths = sorted(depended_on(answers))
    variables = "".join(f"{name}\n" for kind, name in sorted(answers) if kind == "variable")
    text = " \\\n ".join([f"{_escaped(str(stamp))}:", *map(_escaped, paths)]) + "\n"
    try:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        # The stamp last: one without the others would stand for good.
        for path, content in ((Path(f"{stamp}.env"), variables), (Path(f"{stamp}.d"), text), (stamp, "")):
            part = path.with_name(f"{path.name}.part")
            part.write_text(content, "utf-8", "surrogateescape")
            part.replace(path)
        if any(_changed_since(path, began_ns) for path in paths):
            # An edit that the build may have come too early for.
            os.utime(stamp, ns=(began_ns, began_ns))
    except OSError as error:
        raise os_failure("the stamp of the build cannot be written", error, stamp) from error


def depended_on(answers: Mapping[Question, Noted]) -> set[str]:
    """The files, and the folders, whose time stamps move where an answer changes.

    What was not there is told by the folder that it would be in. Variables, and files that are added to an installed
    package and to nothing else, are not told here.
    """
    found: set[str] = set()
    for (kind, subject), (answer, _) in answers.items():
        if kind == "program":
            found |= {answer} if answer is not None else set()
        elif kind in ("bytes", "kind", "entry"):
            if answer is None:
                found |= set(_nearest(subject))
            elif kind == "bytes" or answer == "file":
                found.add(subject)
    return {path for path in found if os.path.exists(path)}  # noqa: PTH110  # names


def _nearest(path: str) -> Iterator[str]:
    """The folder that a file which is not there would show in."""
    for parent in Path(path).parents:
        if parent.is_dir():
            yield str(parent)
            return


def _changed_since(path: str, moment: int) -> bool:
    # The times of folders move when Python keeps what it compiled there.
    return os.path.isfile(path) and os.stat(path).st_mtime_ns > moment  # noqa: PTH113, PTH116  # names


def _escaped(path: str) -> str:
    return _SPECIAL.sub(r"\\\1", path).replace("$", "$$")
