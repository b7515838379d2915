"""What `from x import *` may bring is never guessed: it is read off the files, or the kernel's file runs as a whole."""

from __future__ import annotations

import pytest
from closure_scratch import HEADER, Scratch

from kiln.closure.load import load

G = HEADER + "S = tl.constexpr(5)\n"
H = HEADER + "S = tl.constexpr(2)\n"
KERNEL = "\n@triton.jit\ndef kernel(x):\n    tl.store(x, S)\n"
COMPUTED = "__all__ = sorted(n for n in globals() if n.{}())\n"


@pytest.mark.parametrize(
    ("imports", "files", "value"),
    [
        ("from g import *", {"h.py": H + COMPUTED.format("isupper")}, 2),
        ("from g import *", {"h.py": H + COMPUTED.format("islower")}, 5),
        ("from g import S", {"h.py": H + COMPUTED.format("isupper")}, 2),
        ("from g import S", {"h.py": H + "def names(): return ['S']\n__all__ = names()\n"}, 2),
        ("import j\nfrom g import S", {"h.py": H + "__all__ = []\n", "j.py": "import h\nh.__all__.append('S')\n"}, 2),
    ],
)
def test_a_list_that_only_a_run_makes(scratch: Scratch, imports: str, files: dict[str, str], value: int) -> None:
    scratch.files({"g.py": G, **files, "k.py": f"{HEADER}{imports}\nfrom h import *\n{KERNEL}"})
    closure = scratch.cut()
    assert closure.uncut is not None and "S may come from `from h import *`" in closure.uncut
    assert load(closure).fn.__globals__["S"].value == value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # The file cannot list a name that it does not have, and another `tl` would be the same one.
        ("from g import S", ""),
        # Its own binding comes later.
        ("", "S = tl.constexpr(5)"),
    ],
)
def test_a_list_that_makes_no_difference(scratch: Scratch, before: str, after: str) -> None:
    listed = HEADER + "R = 1\n__all__ = sorted(n for n in globals() if n)\n"
    scratch.files({"g.py": G, "h.py": listed, "k.py": f"{HEADER}{before}\nfrom h import *\n{after}\n{KERNEL}"})
    closure = scratch.cut()
    assert closure.uncut is None
    assert load(closure).fn.__globals__["S"].value == 5


def test_a_loop_without_items_hides_nothing(scratch: Scratch) -> None:
    scratch.files({"h.py": H, "k.py": f"{HEADER}from h import *\nfor S in ():\n    pass\n{KERNEL}"})
    assert load(scratch.cut()).fn.__globals__["S"].value == 2


@pytest.mark.parametrize(
    ("package", "value"),
    [
        # Whoever imports the module first decides; here `h` does, after the package's own statement.
        ("S = 4\n", 7),
        ("from .S import T as S\n", 6),
    ],
)
def test_a_module_by_the_name_of_a_packages_own(scratch: Scratch, package: str, value: int) -> None:
    scratch.files(
        {
            "p/__init__.py": package,
            "p/S.py": "T = 6\n",
            "h.py": "import p.S\n",
            "k.py": HEADER + "import p\nimport h\nS = tl.constexpr(p.S if isinstance(p.S, int) else 7)\n" + KERNEL,
        }
    )
    closure = scratch.cut()
    assert (closure.uncut is not None) == (value == 7)
    if closure.uncut is not None:
        assert "p/__init__.py:1:1: S of p/__init__.py is also a module there" in closure.uncut
        assert "actual: p/__init__.py and p/S.py" in closure.uncut
    assert load(closure).fn.__globals__["S"].value == value
