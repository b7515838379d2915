"""Removes from the build folder what no step makes any more; what is none of a build's own is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from kiln.engine.rows import is_below
from kiln.engine.state import State
from kiln.engine.step import Step
from kiln.errors import os_failure


def remove_unknown(state: State, root: Path, known: set[str], outputs: Callable[[], set[str]]) -> list[str]:
    """Forget the steps that are not `known` any more, with all that they published, and return their names.

    Where the record of earlier builds is lost, what they left is told by its name: what is none of the `outputs` of
    known steps, in the folders that those write to. Raises StateError for what cannot be removed.
    """
    gone = [name for name in state.rows if name not in known]
    # To look into the rows of a large library takes long, and mostly nothing is gone.
    rows = state.rows.items() if gone else ()
    kept = {output.path for name, row in rows if name in known for output in row.outputs}
    for name in gone:
        row = state.rows[name]
        remove(root, [output.path for output in row.outputs if output.path not in kept])
        state.drop(name)
    if state.warnings or not state.rows:
        _remove_strangers(root, outputs())
    return gone


def _remove_strangers(root: Path, outputs: set[str]) -> None:
    for folder in {output.partition("/")[0] for output in outputs if "/" in output}:
        top = root / folder
        if top.is_dir() and not top.is_symlink():
            found = {path.relative_to(root).as_posix() for path in top.rglob("*") if not path.is_dir()}
            remove(root, found - outputs)


def remove_former(state: State, root: Path, name: str, step: Step) -> None:
    """Remove what the step made before and makes no more, unless another step makes it now. Raises StateError."""
    before = state.rows.get(name)
    left = {output.path for output in before.outputs} - set(step.outputs) if before else set()
    if left:
        others = (row for other, row in state.rows.items() if other != name)
        remove(root, left - {output.path for row in others for output in row.outputs})


def remove(root: Path, names: Iterable[str]) -> list[Path]:
    """Remove published files and the folders that this empties; what is no file any more is left alone.

    Links on the way are not followed, and nothing outside of `root` is touched. Raises StateError.
    """
    removed = []
    for name in names:
        path = root / name
        above = path.parents[: len(Path(name).parts) - 1]
        if not is_below(name) or any(parent.is_symlink() for parent in above):
            continue
        try:
            path.unlink()
            removed.append(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            pass
        except OSError as error:
            raise os_failure("an output that is not needed any more cannot be removed", error, path) from error
        for parent in above:
            try:
                parent.rmdir()
            except OSError:
                break
    return removed
