"""What is checked of every file: format, lint, types, and no word of the machine that it was written on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def check(*words: str) -> None:
    """Runs `python -m WORDS` in the repository; what it says is the failure."""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        pytest.fail(f"{' '.join(words)}:\n{done.stdout}", pytrace=False)


def test_format() -> None:
    check("ruff", "format", "--check", ".")


def test_ruff() -> None:
    check("ruff", "check", ".")


def test_types_of_kiln() -> None:
    check("mypy", "--strict", "-p", "kiln")


def test_types_of_bootstrap() -> None:
    check("mypy", "--strict", "tools/bootstrap.py")


UNTRACKED = {".git", ".venv", ".venv.old", "build", "target", "__pycache__", ".hypothesis"}


def source_files() -> list[Path]:
    """All files that git tracks or would; where there is no git, all files but those that are made."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        files = [ROOT / name for name in names if name]
    except (OSError, subprocess.CalledProcessError):
        files = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [name for name in folders if name not in UNTRACKED and not name.endswith("_cache")]
            files += [Path(folder, name) for name in names]
    return [path for path in files if path.is_file()]


INDEX_HOST = re.compile(r"https?://[^ ]*(pypi|pythonhosted|crates\.io|npmjs|debian)")
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:root|home|Users)/")


def test_format_of_rust() -> None:
    """The crate's runtime is formatted as a part of a crate, by test_packaging_rust_crate.py."""
    sources = [path for path in source_files() if path.suffix == ".rs" and "runtime" not in path.parts]
    assert len(sources) > 20
    command = ["rustfmt", "--edition=2021", "--check", "-l", *sources]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_no_file_names_a_package_index_or_a_machines_folders() -> None:
    """Which index serves the packages is the user's setting, and a path of one machine means nothing on another.

    Tests may make up such paths: that none gets into an image is one of the things they prove.
    """
    files = source_files()
    assert Path(__file__).resolve() in [path.resolve() for path in files]
    found = []
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT)
        patterns = (INDEX_HOST,) if name.parts[0] == "tests" else (INDEX_HOST, MACHINE_PATH)
        for number, line in enumerate(lines, 1):
            if any(pattern.search(line) for pattern in patterns):
                found.append(f"{name}:{number}: {line.strip()[:120]}")
    assert not found, "\n".join(found)


def test_patterns_find_what_they_are_for() -> None:
    scheme, root = "https:" + "//", "/" + "root"  # in two pieces, for this file is searched as well
    for text in (
        f"{scheme}files.pythonhosted.org/x",
        f"--index-url {scheme}mirror/pypi/simple",
        f"at {scheme}crates.io",
    ):
        assert INDEX_HOST.search(text), text
    assert not INDEX_HOST.search(f"pip install x, from PyPI; {scheme}example.org/")
    for text in (f'"{root}/work"', f"at {root}/x", f"path={root}/x"):
        assert MACHINE_PATH.search(text), text
    assert not MACHINE_PATH.search(f"{scheme}example.org{root}/, ~{root}/ and build{root}/")
