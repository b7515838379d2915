"""Builds a release again from the sources alone, in a fresh folder, with everything around it another than here."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kiln.engine.machine import cores
from kiln.errors import ReleaseError, os_failure
from kiln.release.names import FOLDER

_FRESH = "kiln rebuild é"
"""The folder of the copy: tools and scripts that take no blank, or no letter beyond ASCII, show here."""
_UP = "up"
"""the folders above the project, as far as its roots lead out of it"""

_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj", ".bzr", "CVS", "_darcs", ".pijul"})
_MADE = frozenset({"__pycache__"})
_MARKS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""files that a folder has which a tool made, and can make again"""
_STATE = Path(".kiln", "state.sqlite")
"""what Kiln keeps in each of its build folders"""

_OLD = 1_000_000_000
"""of files in the copy: when they were changed last, in seconds; in 2001"""
_SHOWN_LINES = 40
_LOCALES = ("tr_TR.utf8", "de_DE.utf8", "C.utf8", "C.UTF-8")
"""others than C, with the most telling first: in Turkish, i and I are no pair"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """What is built."""

    folder: Path
    """absolute"""
    build: Path
    """the build folder, absolute: nothing of it is taken along"""
    roots: tuple[str, ...] = ()
    """the folders that kernels.yaml declares, relative to the project's"""
    words: tuple[str, ...] = ("-m", "doit", "run")
    """behind Python's: what builds in the project's folder"""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """In what a rebuild differs from a build here."""

    environment: Mapping[str, str]
    umask: int
    jobs: int
    """steps that run at once"""

    @property
    def text(self) -> str:
        """In a line for people."""
        names = ("LC_ALL", "TZ", "PYTHONHASHSEED")
        given = ", ".join(f"{name} {self.environment[name]}" for name in names)
        return f"without a cache, another HOME, {given}, umask {self.umask:03o}, -n {self.jobs}"


def rebuild(
    project: Project, fresh: Path, tell: Callable[[str], None], *, part: Sequence[str] = (), is_locked: bool = True
) -> Path:
    """Copy the sources below `fresh`, an empty folder, and make the release there; the folder that holds it.

    `part` are the targets of a release that leaves others out, and `is_locked` says whether its tools have to be those
    of kiln.lock. `tell` is told what is going to be done. What doit prints goes to `fresh`/log. Raises ReleaseError
    where it fails, with the end of that, and StateError where files cannot be copied.
    """
    copy = copy_project(project, fresh / _FRESH)
    build = fresh / "out é" / "build"
    around = surroundings(project.folder, copy, fresh)
    command = [
        *(sys.executable, *project.words),
        *("--build-dir", str(build), "-n", str(around.jobs), "--no-cache"),
        *(("--targets", ",".join(part)) if part else ()),
        *(("--unlocked",) if not is_locked else ()),
        "release",
    ]
    tell(f"rebuilding in {fresh}: {around.text}")
    log = fresh / "log"
    code = _run(command, copy, around, log)
    made = build / FOLDER
    if code != 0 or not made.is_dir():
        lines = log.read_text("utf-8", "replace").rstrip().splitlines()
        shown = [f"... {len(lines) - _SHOWN_LINES} lines before"] if len(lines) > _SHOWN_LINES else []
        raise ReleaseError(
            "the sources do not make a release: the build of a copy failed",
            where=str(project.folder),
            expected="the release, built again from the sources alone",
            actual="\n    ".join([f"exit code {code}", *shown, *lines[-_SHOWN_LINES:]]),
            remedy="see what that says; all that a build needs has to lie in the project, in one of its roots, or in "
            "installed packages",
        )
    return made


def copy_project(project: Project, to: Path) -> Path:
    """Copy a project's sources, and those of its roots in the same places around it; the folder of the copy.

    Left out is what is made: the build folder, environments, caches, and the folders of version control. All that is
    copied was changed last in 2001, and folders list it in another order. Raises StateError.
    """
    ways_out = [os.path.normpath(root) for root in project.roots]
    depth = max((Path(way).parts.count("..") for way in ways_out), default=0)
    copy = to.joinpath(*(_UP for _ in range(depth)), "copy")
    places = {project.folder.resolve(): copy}
    for way in ways_out:
        source = (project.folder / way).resolve()
        if not source.is_relative_to(project.folder.resolve()):
            places[source] = Path(os.path.normpath(copy / way))
    try:
        for source, place in places.items():
            # The copy may lie in the project, where its folder for temporary files does.
            left_out = {project.build.resolve(), to.resolve(), *(each for each in places if each != source)}
            _copy_folder(source, place, left_out)
    except OSError as error:
        raise os_failure("the sources cannot be copied", error, project.folder) from error
    return copy


def surroundings(project: Path, copy: Path, fresh: Path) -> Surroundings:
    """Others than this process has; what decides which tools are found stays as it is."""
    here = os.environ
    home, temporary = fresh / "home", fresh / "tmp"
    home.mkdir()
    temporary.mkdir()
    environment = {
        **here,
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "USER": "rebuilder",
        "LOGNAME": "rebuilder",
        "LC_ALL": _other_locale(here),
        "TZ": "REB-13:45" if here.get("TZ") != "REB-13:45" else "UTC",
        "PYTHONHASHSEED": "1" if here.get("PYTHONHASHSEED") != "1" else "2",
        "KILN_CACHE": "off",
        "PYTHONPATH": _moved_paths(here.get("PYTHONPATH", ""), project, copy),
        "PWD": str(copy),
    }
    if site.ENABLE_USER_SITE:
        # Packages that a user installed lie below the home folder.
        environment["PYTHONUSERBASE"] = site.getuserbase()
    for name in ("LANG", "LANGUAGE", "OLDPWD", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HOSTNAME"):
        environment.pop(name, None)
    if not environment["PYTHONPATH"]:
        del environment["PYTHONPATH"]
    count = cores()
    return Surroundings(
        environment=environment,
        umask=0o027 if _umask() == 0o077 else 0o077,
        jobs=count - 1 if count > 1 else 2,
    )


def _copy_folder(source: Path, to: Path, left_out: set[Path]) -> None:
    """With the last name first, so that the copy lists its files in another order where a file system keeps one."""
    to.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir(), reverse=True):
        place = to / path.name
        if path.name in _VERSION_CONTROL or path.name in _MADE:
            continue
        if path.is_symlink() and _stays(path, source):
            place.symlink_to(path.readlink())
        elif path.is_dir():
            is_loop = source.resolve().is_relative_to(path.resolve())
            if path.resolve() not in left_out and not is_loop and not _is_made(path):
                _copy_folder(path, place, left_out)
        elif path.is_file():
            shutil.copyfile(path, place)
            if os.access(path, os.X_OK):
                place.chmod(place.stat().st_mode | 0o100)
            os.utime(place, (_OLD, _OLD))


def _stays(link: Path, folder: Path) -> bool:
    """Whether a link leads, by a relative way, to what lies in its own folder, and so to its copy."""
    target = link.readlink()
    return not target.is_absolute() and ".." not in target.parts and (folder / target).exists()


def _is_made(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in _MARKS) or (folder / _STATE).is_file()


def _moved_paths(text: str, project: Path, copy: Path) -> str:
    """PYTHONPATH for the copy: what lies in the project is meant to be that of the copy."""
    found = []
    for entry in filter(None, text.split(os.pathsep)):
        path = Path(entry).absolute()
        inner = path.is_relative_to(project) and (copy / path.relative_to(project)).is_dir()
        found.append(str(copy / path.relative_to(project) if inner else path))
    return os.pathsep.join(found)


def _other_locale(here: Mapping[str, str]) -> str:
    """One that is installed, and is not the one in use."""
    now = here.get("LC_ALL") or here.get("LC_CTYPE") or here.get("LANG") or "C"
    if now not in ("C", "POSIX"):
        return "C"
    installed: set[str] = set()
    with suppress(OSError):
        done = subprocess.run(["locale", "-a"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        installed = set(done.stdout.decode("utf-8", "replace").split())
    return next((name for name in _LOCALES if name in installed), "C.UTF-8")


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _run(command: Sequence[str], folder: Path, around: Surroundings, log: Path) -> int:
    """Run to the end; when this process is told to stop, so is what it runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(around.environment),
            umask=around.umask,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
            raise
