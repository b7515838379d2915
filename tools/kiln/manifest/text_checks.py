"""What texts in kernels.yaml can be: names, paths, functions. Each check takes text, position and the key's path.

All raise ManifestError at the position.
"""

from __future__ import annotations

import keyword
import re

from kiln.errors import ManifestError, Position
from kiln.manifest import cuda
from kiln.manifest.expression import RESERVED_NAMES
from kiln.manifest.names import PARAMETER_RULE, check_argument, check_library, check_name, check_parameter
from kiln.manifest.paths import check_outer_path, check_path
from kiln.manifest.wording import show


def check_kernel_key(text: str, position: Position, what: str) -> None:
    check_name(text, position, "a kernel's name")


def check_library_name(text: str, position: Position, what: str) -> None:
    check_library(text, position)


# https://semver.org, "Is there a suggested regular expression to check a SemVer string?"
_NUMERIC = r"(?:0|[1-9]\d*)"
_PRERELEASE = rf"(?:{_NUMERIC}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"({_NUMERIC})\.({_NUMERIC})\.({_NUMERIC})(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def check_library_version(text: str, position: Position, what: str) -> None:
    found = _VERSION.fullmatch(text)
    # Cargo has 64 bits for a number.
    if found is None or any(int(number) >= 2**64 for number in found.groups()):
        raise ManifestError(
            f"{show(text)} is no version of a library",
            where=position,
            expected="a semantic version, MAJOR.MINOR.PATCH, such as 0.1.0 or 1.2.0-rc.1",
            actual=show(text),
            remedy="write all three numbers" if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII) else None,
        )


def check_function(text: str, position: Position, what: str) -> None:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ManifestError(
            f"{show(text)} cannot be a function's name in Python",
            where=position,
            expected="the name of a function in `source`",
            actual=show(text),
        )
    if not text.isascii():
        raise ManifestError(
            f"the function {show(text)} has letters in its name that are not ASCII",
            where=position,
            expected="a name in ASCII: images, C and Rust call the kernel by it",
            actual=show(text),
            remedy="rename it in the source",
        )


def check_kernel_function(text: str, position: Position, what: str) -> None:
    """Of either language: which one it is, and so what else its name may be, the source says."""
    if not text.strip() or "\n" in text:
        raise ManifestError(
            f"`{what}` is no function's name",
            where=position,
            expected="the name of a function in `source`",
            actual=show(text),
        )


def check_kernel_source(text: str, position: Position, what: str) -> None:
    if text.endswith(cuda.SUFFIX):
        check_path(text, position, what)
    else:
        check_source(text, position, what)


def check_python_function(text: str, position: Position) -> None:
    """Refuse what cannot be a kernel in Python: a function, or one in a class or in another function, with dots.

    Raises ManifestError at `position`.
    """
    for part in text.split("."):
        check_function(part, position, "function")


def check_source(text: str, position: Position, what: str) -> None:
    check_path(text, position, what)
    if not text.endswith(".py"):
        raise ManifestError(
            f"`{what}` is no Python file",
            where=position,
            expected="a file whose name ends with .py, with the Triton kernel in it",
            actual=show(text),
        )


def check_included(text: str, position: Position, what: str) -> None:
    check_path(text, position, what)
    if not text.endswith((".yaml", ".yml")):
        raise ManifestError(
            f"`{what}` is no YAML file",
            where=position,
            expected="a file whose name ends with .yaml or .yml",
            actual=show(text),
        )


def check_root(text: str, position: Position, what: str) -> None:
    check_name(text, position, "a root's name")


def check_variable_name(text: str, position: Position, what: str) -> None:
    if not text.isascii() or not text.isidentifier():
        raise ManifestError(
            f"{show(text)} cannot be the name of a variable of the environment",
            where=position,
            expected=PARAMETER_RULE,
            actual=show(text),
        )


_MAX_MODULE = 250
"""characters in one part of a module's name: with `.py` it is a file's name"""


def check_module(text: str, position: Position, what: str) -> None:
    parts = text.split(".")
    if not text.isascii() or not all(
        part.isidentifier() and not keyword.iskeyword(part) and len(part) <= _MAX_MODULE for part in parts
    ):
        raise ManifestError(
            f"{show(text)} cannot be the name of a module",
            where=position,
            expected="a dotted name, such as liger_kernel.ops.softmax",
            actual=show(text),
            remedy="for a file, use `source`" if "/" in text or text.endswith(".py") else None,
        )


def check_build(text: str, position: Position, what: str) -> None:
    if text.strip("./").strip():
        check_outer_path(text, position, what)
    else:
        raise ManifestError(
            f"{show(text)} cannot be `{what}`: it is no folder of its own",
            where=position,
            expected="a folder that holds what is built, and nothing else",
            actual=show(text),
            remedy="write build",
        )


def check_reference(text: str, position: Position, what: str) -> None:
    path, colon, function = text.rpartition(":")
    if not colon:
        raise ManifestError(
            f"`{what}` names no function",
            where=position,
            expected="path/to/file.py:function",
            actual=show(text),
            remedy="add a colon and the function's name",
        )
    check_source(path, position, what)
    check_function(function, position, what)


def check_caller_name(text: str, position: Position, what: str) -> None:
    check_argument(text, position, "the name of an argument or an input")


def check_input(text: str, position: Position, what: str) -> None:
    check_parameter(text, position, "a launch input's name")
    if text in RESERVED_NAMES or keyword.iskeyword(text) or text.lower() in ("true", "false"):
        raise ManifestError(
            f"{show(text)} cannot be a launch input's name: it has a meaning of its own in expressions",
            where=position,
            expected="a name that grid and select can use",
            actual=show(text),
            remedy="choose another name",
        )
