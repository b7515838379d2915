"""The depfile that nvcc writes, a rule of make, and what becomes of the files in it."""

from __future__ import annotations

import pytest

from kiln.compilers.nvcc_found import depfile


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (
            "x.ptx : ../unit.cu \\\n    /usr/include/a.h \\\n    ./kernels/k.cu\n",
            ["../unit.cu", "/usr/include/a.h", "./kernels/k.cu"],
        ),
        ("x : a\\ b.h c$$d.h e\\#f.h\n", ["a b.h", "c$d.h", "e#f.h"]),
        ("x : a a b\n", ["a", "b"]),
        ("x :\n", []),
        ("", []),
    ],
)
def test_files_of_a_rule(text: str, files: list[str]) -> None:
    assert depfile(text) == files
