"""Make .venv from the hash-locked requirements, then run doit, the tests or the benchmarks in it.

    python3 tools/bootstrap.py                    doit
    python3 tools/bootstrap.py WORDS...           doit WORDS...
    python3 tools/bootstrap.py test [WORDS...]    adds what the tests need to .venv, then pytest WORDS...
    python3 tools/bootstrap.py bench [WORDS...]   adds what the benchmarks need, then tests/benchmarks/bench.py WORDS...

It needs nothing but the standard library. The exit code is that of what ran, or 3 when nothing could run. Once .venv is
complete, no pip runs and the network is left alone.
"""

# Whatever interpreter somebody has as python3 reads this file. So that one which is too old says so, the file keeps to
# the syntax of Python 3.6, which rejects `from __future__ import annotations`, and nothing newer is executed before
# `unfit` has been asked.
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 11)  # both ends are those of Triton 3.9, the same as requires-python in pyproject.toml
NEWEST = (3, 15)
NAMES = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
CANNOT_RUN = 3  # doit's exit code for errors before a run
# First words that need more than a build: the lock is requirements/WORD.txt.
EXTRAS = {"test": "the tests need", "bench": "the benchmarks need"}


def fit_interpreter() -> "str | None":
    """The newest Python on PATH that can carry Kiln, such as python3.13, or None."""
    for name in NAMES:
        # Tried, since a version manager puts names on PATH that only say which versions there are.
        if shutil.which(name):
            null = subprocess.DEVNULL
            if subprocess.call([name, "-c", "import ensurepip"], stdout=null, stderr=null) == 0:
                return name
    return None


def unfit(version: "tuple[int, int]", platform: str) -> "str | None":
    """Why this interpreter (major, minor; sys.platform) cannot carry Kiln, or None."""
    if not platform.startswith("linux"):
        return f"Kiln builds on Linux, the only system that its Triton is published for; this one is {platform}"
    if OLDEST <= version <= NEWEST:
        return None
    need = "Kiln needs Python {}.{} to {}.{}, as its Triton does".format(*OLDEST, *NEWEST)
    return "{}; {} is {}.{}".format(need, sys.executable or "this interpreter", *version)


if __name__ == "__main__":
    _problem = unfit(sys.version_info[:2], sys.platform)
    _other = fit_interpreter() if _problem else None
    if _problem and _other and sys.platform.startswith("linux"):
        # A machine whose python3 is old often has a newer one beside it.
        sys.stderr.write(f"bootstrap: {_problem}; going on with {_other}\n")
        sys.stderr.flush()
        os.execvp(_other, [_other, *sys.argv])
    if _problem:
        sys.stderr.write(f"bootstrap: {_problem}\n  install one of {', '.join(reversed(NAMES))}\n")
        sys.exit(CANNOT_RUN)


class SetupError(Exception):
    """The set-up cannot go on; the text says why and what to do, for a person."""


# What is called and pip cannot bring: program, the variable that names another (as kiln.toolchain has it), where it
# comes from, what it is for.
_BINUTILS = "binutils (Debian, Ubuntu: apt-get install binutils; Fedora: dnf install binutils)"
_GCC = "gcc (Debian, Ubuntu: apt-get install gcc libc6-dev; Fedora: dnf install gcc glibc-devel)"
_RUST = "Rust (Debian, Ubuntu: apt-get install cargo rustc; Fedora: dnf install cargo rust; or rustup)"
FOR_BUILDS = (
    ("objcopy", "OBJCOPY", _BINUTILS, "it turns each image into an object file"),
    ("ar", "AR", _BINUTILS, "it makes the static archives"),
    ("gcc", "CC", _GCC, "it compiles the tables that describe the images"),
)
FOR_TESTS = (
    ("cargo", "", _RUST, "the tests build the Rust crate"),
    ("rustc", "", _RUST, "the tests build the Rust crate"),
)
_VENV = "the standard library in full (Debian, Ubuntu: apt-get install python3-venv)"


def missing(extra: "str | None", with_venv: bool) -> list[str]:
    """One message for each program, or module of the standard library, that is needed and not here.

    `extra` is one of EXTRAS; `with_venv` asks for what makes a virtual environment, which distributions package apart
    from Python.
    """
    programs = FOR_BUILDS + (FOR_TESTS if extra == "test" else ())
    lines = []
    for name, variable, source, use in programs:
        program = os.environ.get(variable) or name
        if not shutil.which(program):
            lines.append(f"{program} is missing: install {source}; {use}")
    if with_venv:
        from importlib.util import find_spec

        lines += [
            f"Python's module {name} is missing from {sys.executable}: install {_VENV}; it makes .venv"
            for name in ("venv", "ensurepip")
            if find_spec(name) is None
        ]
    return lines


STAMP = "kiln-bootstrap.txt"
UNFINISHED = "unfinished"


def read_stamp(venv: Path) -> dict[str, str]:
    """What a set-up noted in `venv`, one `key value` a line; empty where none did."""
    try:
        lines = (venv / STAMP).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {key: value for key, _, value in (line.partition(" ") for line in lines)}


def write_stamp(venv: Path, stamp: dict[str, str]) -> None:
    """Replaces the stamp of `venv` in one step, so that a reader sees the old one or the new one."""
    part = venv / (STAMP + ".part")
    part.write_text("".join(f"{key} {value}\n" for key, value in stamp.items()), encoding="utf-8")
    part.replace(venv / STAMP)


def wanted(root: Path, extra: "str | None") -> dict[str, str]:
    """The stamp of a complete .venv for the tree as it is now; `extra` is one of EXTRAS."""
    stamp = {
        "path": str(root / ".venv"),  # a virtual environment does not survive a move
        "python": f"{sys.implementation.cache_tag} {os.uname().machine}",
        "build": _digest((root / "requirements" / "build.txt").read_bytes()),
        "project": _digest(installed_part((root / "pyproject.toml").read_text(encoding="utf-8")).encode()),
    }
    if extra:
        stamp[extra] = _digest((root / "requirements" / (extra + ".txt")).read_bytes())
    if extra == "test":
        stamp.update((lock.stem, _digest(lock.read_bytes())) for lock in other_tritons(root))
    return stamp


def other_tritons(root: Path) -> list[Path]:
    """The locks of the other releases of Triton that the tests build with; each gets a folder of its own in .venv."""
    return sorted((root / "requirements").glob("triton-*.txt"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def installed_part(pyproject: str) -> str:
    """The lines of pyproject.toml that an installation can depend on: [build-system], [project*], [tool.setuptools*].

    Read by line, since importing a TOML parser would cost every run more than all the rest here.
    """
    kept, keep = [], False
    for line in pyproject.splitlines():
        header = re.match(r"\[+\s*([\w.\"'-]+)", line)
        if header:
            keep = bool(re.match(r"(build-system|project|tool\.setuptools)(\.|$)", header.group(1)))
        if keep and line.strip() and not line.lstrip().startswith("#"):
            kept.append(line.strip())
    return "\n".join(kept)


def stale_parts(have: dict[str, str], want: dict[str, str]) -> tuple[str, ...]:
    """What a set-up has to do: nothing, ("all",), or any of EXTRAS (add packages), "project" (install Kiln) and a
    release of Triton for the tests, "triton-3.6".

    The packages of an extra are the build's and some more, in the same versions: adding them leaves those of the
    build as they are.
    """
    if any(have.get(key) != want[key] for key in ("path", "python", "build")):
        return ("all",)
    extras = [extra for extra in EXTRAS if extra in want]
    if any(have.get(extra, want[extra]) != want[extra] for extra in extras):
        return ("all",)
    if any(have.get(extra) == UNFINISHED for extra in EXTRAS) and any(extra not in have for extra in extras):
        # Packages that both need may be there by half.
        return ("all",)
    tritons = [key for key in want if key.startswith("triton-")]
    return tuple(key for key in (*extras, "project", *tritons) if have.get(key) != want[key])


def set_up(root: Path, extra: "str | None") -> None:
    """Leaves a complete .venv behind, or raises SetupError with what was there before still in its place."""
    venv = root / ".venv"
    want = wanted(root, extra)

    def is_complete() -> bool:
        return not stale_parts(read_stamp(venv), want) and os.access(venv / "bin" / "python", os.X_OK)

    complete = is_complete()
    problems = missing(extra, with_venv=not complete)
    if problems:
        raise SetupError("\n".join(problems))
    if complete:
        return
    with _locked(root / ".venv.lock") as lock:
        if is_complete():  # by the set-up that held the lock
            return
        have = read_stamp(venv)
        parts = stale_parts(have, want) if os.access(venv / "bin" / "python", os.X_OK) else ("all",)
        releases = [path.stem for path in other_tritons(root) if path.stem in want]
        packages = {key: value for key, value in want.items() if key not in releases}
        if "all" in parts:
            _make(root, packages, extra or "build", lock)
            have = packages
        else:
            releases = [release for release in releases if release in parts]
            have = {key: value for key, value in have.items() if key not in releases}
            if extra in parts:
                _say(f"adding what {EXTRAS[extra]} to .venv: at most 40 MB to download, under a minute")
                write_stamp(venv, {**have, extra: UNFINISHED})
                _install_locked(root, extra, lock)
            if extra in parts or "project" in parts:
                _install_kiln(root, lock)
            have.update(packages)
        write_stamp(venv, have)
        if releases:
            _install_tritons(root, releases, lock)
            write_stamp(venv, {**have, **want})


def _make(root: Path, want: dict[str, str], name: str, lock: int) -> None:
    """Makes .venv from nothing, with what requirements/`name`.txt locks.

    On failure one that was complete for another state of the tree comes back.
    """
    venv, aside = root / ".venv", root / ".venv.old"
    if venv.exists() and any(venv.iterdir()) and not (venv / STAMP).exists():
        raise SetupError(f"{venv} was not made by tools/bootstrap.py: move it away or delete it, then run this again")
    _say(
        f"making .venv with Python {sys.version_info[0]}.{sys.version_info[1]}: about 300 MB to download and 1 GB to"
        " unpack, most of it Triton; one to five minutes"
    )
    began = time.monotonic()
    if read_stamp(venv).get("build"):
        shutil.rmtree(aside, ignore_errors=True)
        venv.rename(aside)
    elif venv.exists():
        shutil.rmtree(venv)
    try:
        venv.mkdir()
        write_stamp(venv, {UNFINISHED: ""})
        # The base interpreter, since sys.executable may be the one in the .venv that was just moved aside.
        base = getattr(sys, "_base_executable", None) or sys.executable
        _call([base, "-I", "-m", "venv", str(venv)], root, lock)
        _install_locked(root, name, lock)
        _install_kiln(root, lock)
        write_stamp(venv, want)
    except BaseException:
        shutil.rmtree(venv, ignore_errors=True)
        if aside.exists():
            aside.rename(venv)
            _say("the set-up failed; the .venv of before is back in its place")
        raise
    shutil.rmtree(aside, ignore_errors=True)
    _say(f".venv is ready after {time.monotonic() - began:.0f} s")


def _install_locked(root: Path, name: str, lock: int, *words: str) -> None:
    # Wheels alone: to build a package from source would ask for compilers, and run code before any kernel is built.
    requirements = ("--requirement", str(root / "requirements" / (name + ".txt")))
    _pip(root, lock, "--require-hashes", "--only-binary=:all:", *requirements, *words)


def _install_tritons(root: Path, releases: "list[str]", lock: int) -> None:
    """Puts other releases of Triton into .venv/triton-3.6 and so on, all at the same time.

    They are beside the packages of .venv: only a Python that a test makes sees one.
    """
    from concurrent.futures import ThreadPoolExecutor

    _say(
        f"adding {', '.join(releases)}, which the tests build with besides: about 200 MB to download and 750 MB to"
        " unpack for each"
    )

    def install(release: str) -> None:
        folder = root / ".venv" / release
        part = folder.with_name(release + ".part")
        for old in (folder, part):
            shutil.rmtree(old, ignore_errors=True)
        _install_locked(root, release, lock, "--no-deps", "--target", str(part))
        part.mkdir(exist_ok=True)  # where its wheels are not for this Python
        part.rename(folder)

    with ThreadPoolExecutor(len(releases)) as pool:
        for done in [pool.submit(install, release) for release in releases]:
            done.result()


def _install_kiln(root: Path, lock: int) -> None:
    # Editable, so that an edit under tools/kiln is what runs next; setuptools is locked and installed, so offline.
    _pip(root, lock, "--no-index", "--no-deps", "--no-build-isolation", "--editable", str(root))


def _pip(root: Path, lock: int, *words: str) -> None:
    python = root / ".venv" / "bin" / "python"
    _call(
        [str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", *words],
        root,
        lock,
    )


def _call(command: list[str], root: Path, lock: int) -> None:
    """Runs a step of the set-up; raises SetupError with its output and a remedy when it fails.

    The step inherits the lock: should this process be killed, no other set-up starts before the step has ended, too.
    """
    # What would send packages elsewhere than to .venv, or make pip see packages that are not in it.
    dropped = (
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_ROOT",
        "PIP_USER",
        "PIP_REQUIREMENT",
        "PIP_CONSTRAINT",
    )
    environment = {key: value for key, value in os.environ.items() if key not in dropped}
    environment["PIP_USER"] = "0"
    done = subprocess.run(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode:
        text = done.stdout.strip()
        raise SetupError(f"{text}\n\nthe set-up of .venv stopped there (exit code {done.returncode}).\n{remedy(text)}")


# Words that pip 23 to 26 and the C library print, and what a person can do about it; the first match counts.
_REMEDIES = (
    (
        ("DO NOT MATCH THE HASHES",),
        "A downloaded file is not the one that requirements/ names. If `pip cache purge` and another run do not help,\n"
        "the package index that pip is set up with (see `pip config list`) serves a changed file: do not use it.",
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        "The disk is full: .venv takes about 1.3 GB, with what the tests need 3.8 GB, twice that while an old one is\n"
        "replaced; the downloads take 300 MB, for the tests 1 GB, each in the folder for temporary files (TMPDIR) and\n"
        "in pip's cache (`pip cache dir`), and what is unpacked passes through TMPDIR, too.",
    ),
    (
        (
            "name resolution",
            "Name or service not known",
            "Failed to establish a new connection",
            "Connection refused",
            "Connection reset",
            "Connection aborted",
            "Network is unreachable",
            "timed out",
            "Cannot connect to proxy",
            "CERTIFICATE_VERIFY_FAILED",
            "connection failed",
            "(from versions: none)",
        ),
        "No package index was reached. This step needs the network, once; behind a proxy set HTTPS_PROXY, for a\n"
        "mirror PIP_INDEX_URL, for its certificate PIP_CERT, and leave PIP_NO_INDEX unset. Then run the same again.",
    ),
    (
        ("No matching distribution found", "Could not find a version"),
        "The package index that pip is set up with (see `pip config list`; PIP_INDEX_URL) has no file of that\n"
        "version for this interpreter and machine. Wheels of all that is locked exist for Linux with glibc on\n"
        "x86_64 and aarch64.",
    ),
)


def remedy(output: str) -> str:
    """What to do about a failed step with this output."""
    for words, text in _REMEDIES:
        if any(word in output for word in words):
            return text
    return "Run the same again; if it stops at the same place, the lines above say why."


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    import fcntl

    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another set-up of this folder is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _say(text: str) -> None:
    # To stderr: stdout belongs to what is run, which may be read by a program.
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Sets up and becomes doit, pytest or the benchmarks; returns an exit code only where it could not."""
    root = Path(__file__).resolve().parent.parent
    extra = words[0] if words and words[0] in EXTRAS else None
    try:
        set_up(root, extra)
    except SetupError as error:
        print(error, file=sys.stderr)
        return CANNOT_RUN
    except OSError as error:
        print(f"the set-up of .venv stopped: {error}\n{remedy(str(error))}", file=sys.stderr)
        return CANNOT_RUN
    except KeyboardInterrupt:
        _say("stopped; the next run starts the set-up anew")
        return 130
    programs = root / ".venv" / "bin"
    if extra == "bench":
        command = [str(root / "tests" / "benchmarks" / "bench.py"), *words[1:]]
    elif extra == "test":
        command = [str(programs / "pytest"), *words[1:]]
    else:
        command = [str(programs / "doit"), *words]
    os.chdir(root)
    # Through the interpreter: a script's first line cannot hold every path that .venv may have.
    os.execv(programs / "python", [str(programs / "python"), *command])
    return CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
