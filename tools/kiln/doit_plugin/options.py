"""The options that every command of doit has with Kiln's loader: which build is meant, beside names of tasks."""

from __future__ import annotations

from doit.exceptions import InvalidCommand

BUILD_DIR = {
    "section": "Kiln",
    "name": "build_dir",
    "short": "",
    "long": "build-dir",
    "type": str,
    "default": None,
    "help": "folder for what is built, relative to the current one [default: what kernels.yaml says, or build]",
}
TARGETS = {
    **BUILD_DIR,
    "name": "targets",
    "long": "targets",
    "help": "make the library for these of its targets alone, with commas between them; what else lies in the build "
    "folder is removed, so give them one of their own [default: all]",
}
UNLOCKED = {
    **BUILD_DIR,
    "name": "unlocked",
    "long": "unlocked",
    "type": bool,
    "default": False,
    "help": "let `release` take another toolchain than kiln.lock has; the release says so",
}


def check_build_dir(text: str) -> None:
    """Refuse an option that can hardly mean the folder that it names."""
    if not text.strip():
        raise InvalidCommand("--build-dir names no folder: leave it out to build where kernels.yaml says")
    if text.startswith("~"):
        raise InvalidCommand(
            f"--build-dir is {text!r}: a shell makes a home folder of ~ at the start of a word that has no quotes, and "
            "nobody did here; put a space before it in place of =, or write the whole path"
        )
