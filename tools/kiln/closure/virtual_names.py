"""The file names that images with line tables have: of files on no disk, and the same on every machine.

They are absolute, since readers of line tables look relative ones up below another folder that a table names. And they
are ASCII: ptxas refuses anything else in a PTX, and takes a backslash for the end of a folder's name.
"""

from __future__ import annotations

PROJECT = "/<kiln>"
"""the folder of kernels.yaml"""
TRITON = "/<triton>"
"""the folder of Triton's package"""
CUDA = "/<cuda>"
"""the headers of the CUDA toolkit"""
SYSTEM = "/<system>"
"""the root of the machine that nvcc ran on: headers of the host's compiler and C library"""
_UP = "<up>"
"""in place of `..`, which debuggers would resolve"""


def virtual_name(file: str) -> str:
    """The virtual name of a file of the project, given as it is called on every machine, which `..` may lead out of."""
    return f"{PROJECT}/{virtual_path(file)}"


def virtual_path(file: str) -> str:
    """The same below the virtual folder: kernels/softmax.py, <up>/third_party/flash/tile.cuh."""
    return "/".join(_UP if part == ".." else part for part in plain(file).split("/"))


def plain(file: str) -> str:
    """A file's name in ASCII: what else is in it stands as its bytes do in a URL, kernels/%C3%BCbung.py."""
    return "".join(
        letter
        if letter.isascii() and letter.isprintable() and letter not in '%"\\'
        else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogateescape"))
        for letter in file
    )
