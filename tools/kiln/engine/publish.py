"""Moves finished outputs into the build folder, whole or not at all, and tells whether they are what was put there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kiln.digests import FileDigests, digest_bytes, digest_file
from kiln.engine.rows import Output
from kiln.errors import KilnError, StateError, os_failure


def publish(staging: Path, root: Path, outputs: Sequence[str]) -> tuple[Output, ...]:
    """Rename each output from `staging` to `root`, and say what was published.

    All are published or none: when one cannot be put in place, those before it are taken back. A file that already
    holds the same bytes is left as it is, so that its time stamp does not move. `staging` must be on the same file
    system as `root`. Raises KilnError when the step did not make just what it declared, and StateError when the build
    folder cannot take it.
    """
    _check_made(staging, outputs)
    digests: dict[str, str] = {}
    changed: list[str] = []
    try:
        # What can fail comes before the first rename.
        for name in outputs:
            digests[name] = digest_file(staging / name)
            make_folder(root, (root / name).parent)
            if not _holds(root / name, (staging / name).stat().st_size, digests[name]):
                changed.append(name)
        _replace([(staging / name, root / name) for name in changed], staging)
        return tuple(_published(root, name, digests[name]) for name in outputs)
    except OSError as error:
        raise os_failure("an output cannot be put in place", error, root) from error


def publish_bytes(contents: Mapping[str, bytes], staging: Path, root: Path) -> tuple[Output, ...]:
    """Publish outputs whose bytes are at hand, like `publish`. `staging` is an empty folder, and is so afterwards.

    Raises StateError.
    """
    digests = {name: digest_bytes(data) for name, data in contents.items()}
    moves: list[tuple[Path, Path]] = []
    try:
        try:
            for index, (name, data) in enumerate(contents.items()):
                make_folder(root, (root / name).parent)
                if not _holds(root / name, len(data), digests[name]):
                    moves.append((staging / f"new-{index}", root / name))
                    moves[-1][0].write_bytes(data)
            _replace(moves, staging)
        finally:
            # One folder serves all: to make and to remove one takes longer than all else here.
            for left in staging.iterdir():
                left.unlink()
        return tuple(_published(root, name, digests[name]) for name in contents)
    except OSError as error:
        raise os_failure("an output cannot be put in place", error, root) from error


def _check_made(staging: Path, outputs: Sequence[str]) -> None:
    made: dict[str, int] = {}
    for folder, folders, files in os.walk(staging):
        for name in [*files, *(name for name in folders if Path(folder, name).is_symlink())]:
            path = Path(folder, name)
            made[path.relative_to(staging).as_posix()] = path.lstat().st_mode
    declared = set(outputs)
    if made.keys() != declared:
        missing, extra = sorted(declared - made.keys()), sorted(made.keys() - declared)
        raise KilnError(
            "a step did not make what it declared",
            expected=_some(list(outputs)),
            actual="; ".join(
                f"{kind}: {_some(names)}" for kind, names in (("missing", missing), ("not declared", extra)) if names
            ),
            remedy="this is a fault in the rule or in Kiln: report it with this message",
        )
    for name in outputs:
        if not stat.S_ISREG(made[name]):
            raise KilnError(
                "a step made something that is no regular file",
                where=name,
                remedy="this is a fault in the rule or in Kiln: report it with this message",
            )


def _some(names: Sequence[str]) -> str:
    return (", ".join(names[:5]) or "nothing") + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _replace(moves: Sequence[tuple[Path, Path]], staging: Path) -> None:
    """Rename files; when one fails, put back what was there before, which is kept in `staging` until all are done."""
    done: list[tuple[Path, Path | None]] = []
    try:
        for index, (source, target) in enumerate(moves):
            old = staging / f".replaced-{index}"
            kept = _keep(target, old)
            source.replace(target)
            # Where the file system has no hard links the new file stays: it is whole, and its step is stale.
            if kept is not None:
                done.append((target, old if kept else None))
    except BaseException:
        for target, before in reversed(done):
            with suppress(OSError):
                if before is None:
                    target.unlink()
                else:
                    before.replace(target)
        raise


def _keep(target: Path, old: Path) -> bool | None:
    """Keep the file that is going to be replaced: True when kept, False when there is none, None when it cannot be."""
    try:
        os.link(target, old, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return True


def _published(root: Path, name: str, digest: str) -> Output:
    found = (root / name).lstat()
    return Output(path=name, size=found.st_size, ctime_ns=found.st_ctime_ns, sha256=digest)


def make_folder(root: Path, folder: Path) -> None:
    """Make `folder`, which lies under `root`, without following a link below `root`; root itself may be one.

    Raises StateError when something other than a folder stands in the way, or when it cannot be made.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        current = root
        for part in folder.relative_to(root).parts:
            current = current / part
            try:
                current.mkdir()
            except FileExistsError:
                if not stat.S_ISDIR(current.lstat().st_mode):
                    raise StateError(
                        "something stands where the build folder needs a folder",
                        where=str(current),
                        expected="a folder that Kiln made",
                        actual="a symbolic link" if current.is_symlink() else "a file",
                        remedy="remove it; Kiln follows no links inside the build folder",
                    ) from None
    except OSError as error:
        raise os_failure("a folder of the build cannot be made", error, folder) from error


def intact(root: Path, outputs: Iterable[Output], files: FileDigests | None = None) -> str | None:
    """What is wrong with published outputs, in words; None when each still holds what was recorded.

    Size and ctime are asked first; when they moved the bytes decide. With `files=None` the bytes always decide.
    """
    for output in outputs:
        path = root / output.path
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                return f"{path} is no regular file any more"
            if files is not None and (found.st_size, found.st_ctime_ns) == (output.size, output.ctime_ns):
                continue
            if found.st_size != output.size or (files.of(path) if files else digest_file(path)) != output.sha256:
                return f"{path} does not hold what was built"
        except (FileNotFoundError, NotADirectoryError):
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
    return None


def faults(root: Path, outputs: Iterable[Output]) -> Iterator[StateError]:
    """What is wrong with each published output that does not hold what was recorded. Every byte is read."""
    for output in outputs:
        path = root / output.path
        expected = f"{output.size} bytes with sha256 {output.sha256}"
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                yield StateError("no regular file any more", where=str(path), expected=expected)
            elif (digest := digest_file(path)) != output.sha256:
                actual = f"{found.st_size} bytes with sha256 {digest}"
                yield StateError("not what was built", where=str(path), expected=expected, actual=actual)
        except (FileNotFoundError, NotADirectoryError):
            yield StateError("missing", where=str(path), expected=expected)
        except OSError as error:
            yield os_failure("cannot be read", error, path)


def _holds(target: Path, size: int, digest: str) -> bool:
    """Whether a file of that size and digest is there. Raises StateError when a folder is in the way."""
    try:
        found = target.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(found.st_mode):
        raise StateError(
            "a folder stands where the build puts a file",
            where=str(target),
            remedy="remove it and run again",
        )
    return stat.S_ISREG(found.st_mode) and found.st_size == size and digest_file(target) == digest
