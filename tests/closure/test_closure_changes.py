"""Values that statements change in ways that nobody runs step by step: undecided, and never silently the old ones."""

from __future__ import annotations

import ast
import textwrap

import pytest
from closure_scratch import HEADER, Scratch
from closure_worlds import CUDA

from kiln.closure.imported import imported
from kiln.closure.interpret.interpreter import evaluate
from kiln.closure.interpret.values import Undecided
from kiln.closure.resolve import Project

KERNEL = """
@triton.jit
def kernel(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), S)
"""
CONFIG = "L = []\nD = {}\nX = 0\ndef add(item):\n    L.append(item)\ndef turn_on():\n    globals()['X'] = 1\n"


def value_of(scratch: Scratch, text: str, expression: str) -> object:
    """The value of an expression below the text of k.py, beside a file cfg.py."""
    scratch.write(CONFIG, "cfg.py")
    project = Project(root=scratch.root)
    module = project.open(scratch.write(f"{textwrap.dedent(text)}\nRESULT = {expression}\n"))
    assign = module.units[-1].node
    assert isinstance(assign, ast.Assign)
    return evaluate(project, module, assign.value, CUDA)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("L = []\ndef reg(f):\n    L.append(f)\n    return f\n@reg\ndef a(): pass", "len(L)"),
        ("L = []\ndef put():\n    L.append(1)\nput()", "L"),
        ("L = [1]\nE = L\nE.clear()", "L"),
        ("L = []\nap = L.append\nap(1)", "L"),
        ("L = []\nD = {'l': L}\nD['l'].append(1)", "L"),
        ("A = []\nB = []\nfor q in (A, B):\n    q.append(1)", "A"),
        ("L = []\nclass C:\n    L.append(1)", "L"),
        ("L = []\nD = [L]\nL.append(1)", "D"),
        ("X = 0\nglobals()['X'] = 1", "X"),
        ("X = 0\nexec('X = 1')", "X"),
        ("class C:\n    F = 0\ndef on(c):\n    c.F = 1\n    return c\nD = on(C)", "C.F"),
        ("import cfg\nimport cfg as other\nother.X = 1", "cfg.X"),
        ("import cfg\nfrom cfg import L\nL.append(1)", "cfg.L"),
        ("import cfg\nfrom cfg import L as M\nM.append(1)", "cfg.L"),
        ("import cfg\nfrom cfg import add\nadd(1)", "cfg.L"),
        ("import cfg\ncfg.turn_on()", "cfg.X"),
        ("import cfg\nsetattr(cfg, 'X', 1)", "cfg.X"),
        ("import cfg\nvars(cfg).update(X=1)", "cfg.X"),
        ("import cfg\ncfg.__dict__['X'] = 1", "cfg.X"),
        ("import cfg\ncfg.X, cfg.D = 1, 2", "cfg.X"),
        (
            "import triton\nC = [triton.Config({'M': 1})]\ndef more(c):\n    c.append(triton.Config({'M': 2}))\n"
            "    return c\nD = more(C)",
            "D",
        ),
        ("import triton\nC = [triton.Config({'M': 1})]\nfor c in C:\n    c.kwargs['M'] = 5", "C"),
        ("import triton\nC = [triton.Config({'M': 1})]\nfor c in C:\n    c.num_warps = 8", "C"),
        ("import triton\nd = {'M': 1}\nC = [triton.Config(d)]\nd['M'] = 6", "C"),
        (
            "def f():\n    L = [1]\n    for x in L:\n        L.append(x)\n        if len(L) > 5: break\n    return L",
            "f()",
        ),
        ("def f():\n    L = [1]\n    g = (x for x in L)\n    L.append(2)\n    return list(g)", "f()"),
        ("def f():\n    L = [1]\n    g = map(str, L)\n    L[0] = 2\n    return list(g)", "f()"),
        ("A = [1]\nB = [1]", "A is B"),
        ("import triton.language as tl", "'{}'.format(tl.float16)"),
        ("import operator\nL = [1]\ndef f():\n    operator.iadd(L, [1])\n    return len(L)", "f()"),
        ("class C:\n    F = 1\nD = C\nclass C:\n    F = 2", "D.F, C.F"),
        ("class B:\n    def __init_subclass__(cls):\n        B.A = 2\nclass C(B):\n    A = 1", "C.A"),
        ("class A:\n    T = 2\nclass B(A): pass\nclass C(A):\n    T = 3\nclass D(B, C): pass", "D.T"),
        ("B = 5\nclass C:\n    B = unknown\n    A = B * 2", "C.A"),
    ],
)
def test_what_others_change_is_undecided(scratch: Scratch, text: str, expression: str) -> None:
    with pytest.raises(Undecided):
        value_of(scratch, text, expression)


@pytest.mark.parametrize(
    ("text", "expression", "expected"),
    [
        ("import cfg\nY = cfg.X", "Y, cfg.L, cfg.D", (0, [], {})),
        ("A, B = [], []\nfor q in (A, B):\n    q.append(1)", "A", [1]),
        (
            "def f():\n    L = [1, 2]\n    for x in L:\n        L.append(3)\n        break\n    return L",
            "f()",
            [1, 2, 3],
        ),
        ("C = [1]\ndef more(c):\n    c.append(2)\n    return c\nD = more(C)", "C", [1, 2]),
        ("L = [1]\nM = [*L]\nM.append(2)", "L, M", ([1], [1, 2])),
        ("L = [1]\nL.append(2)\nM = L", "M", [1, 2]),
        ("def f(l):\n    return [*l, 1]\nL = [0]\nM = f(L)", "L, M", ([0], [0, 1])),
        ("L = [1]\nN = len(L)\nL.append(2)", "N", 1),
    ],
)
def test_what_nobody_changes_is_told(scratch: Scratch, text: str, expression: str, expected: object) -> None:
    assert value_of(scratch, text, expression) == expected


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    s = 'ab'\n    for i in range(33):\n        s += s\n    return len(s)\nX = f()",
        "def f():\n    s = [1]\n    for i in range(33):\n        s += s\n    return len(s)\nX = f()",
        "X = '{:>6000000000}'.format(1)",
        "w = 6000000000\nX = f'{1:>{w}}'",
        "X = '%*d' % (6000000000, 1)",
        "X = 'a'.ljust(10**10)",
        "X = ('a' * 1000000).replace('a', 'b' * 1000000)",
        "X = ('a' * 1000).join(['b'] * 100000)",
        "import re\nX = re.sub('a', 'b' * 1000000, 'a' * 1000000)",
        "import math\nX = math.factorial(3000000)",
        "import math\nX = math.prod([1 << 900000] * 100000)",
        "import operator\nX = operator.mul('a', 10**10)",
        "import itertools\nX = len(list(itertools.product([1, 2], repeat=10**9)))",
        "import itertools\nX = len(list(itertools.product(range(100), repeat=10)))",
        "import fractions\nX = fractions.Fraction('1e1000000000')",
        "def f():\n    x = 3\n    while True:\n        x = x * x\nX = f()",
        "X = bytes(10**10)",
        "X = round(5, -10**9)",
    ],
)
def test_nothing_grows_out_of_hand(scratch: Scratch, text: str) -> None:
    with pytest.raises(Undecided, match="longer than any that is worth following"):
        value_of(scratch, text, "X")


def test_large_values_are_steps_too(scratch: Scratch) -> None:
    text = "def f():\n    L = []\n    for i in range(1000):\n        L.append([0] * 1000000)\n    return 1"
    with pytest.raises(Undecided, match="more steps"):
        value_of(scratch, text, "f()")


@pytest.mark.parametrize(
    "files",
    [
        {"h.py": "assert 1 == 2\nX = 1\n"},
        {"h.py": "X = 1\nraise ImportError('no')\n"},
        {"h.py": "import sys\nX = 1\nsys.exit()\n"},
        {"h.py": "import nowhere\nX = 1\n"},
        {"h.py": "import deeper\nX = 1\n", "deeper.py": "from h2 import NOT_THERE\n", "h2.py": "\n"},
        {"h/__init__.py": "raise ImportError('no')\n", "h/X.py": "\n"},
        {"h.py": "try:\n    import torch\nexcept ImportError:\n    raise ImportError('install torch')\nX = 1\n"},
    ],
)
def test_an_import_that_may_raise_decides_no_try(scratch: Scratch, files: dict[str, str]) -> None:
    scratch.files(files)
    with pytest.raises(Undecided, match=r"may be missing|raises is not followed"):
        value_of(scratch, "try:\n    from h import X\n    S = 1\nexcept ImportError:\n    S = 2", "S")


def test_an_import_that_ends_well_decides(scratch: Scratch) -> None:
    scratch.files(
        {
            "h/__init__.py": "from .a import X\nimport torch, math\nif False:\n    raise ImportError\n",
            "h/a.py": "X = 1\ntry:\n    import nowhere\nexcept ImportError:\n    pass\ndef f():\n    raise KeyError\n",
        }
    )
    assert value_of(scratch, "try:\n    from h import X\n    S = 1\nexcept ImportError:\n    S = 2", "S") == 1


REGISTERS = [
    ("cfg.L.append(1)", "S = tl.constexpr(len(cfg.L))"),
    ("from cfg import L\nL.append(1)", "S = tl.constexpr(len(cfg.L))"),
    ("cfg.add(1)", "S = tl.constexpr(len(cfg.L))"),
    ("from cfg import add as put\nput(1)", "S = tl.constexpr(len(cfg.L))"),
    ("from cfg import add\n@add\ndef f(): pass", "S = tl.constexpr(len(cfg.L))"),
    ("cfg.X = 1", "S = tl.constexpr(cfg.X)"),
    ("setattr(cfg, 'X', 1)", "S = tl.constexpr(cfg.X)"),
    ("cfg.turn_on()", "S = tl.constexpr(cfg.X)"),
    ("cfg.X = 1", "if cfg.X:\n    S = tl.constexpr(1)\nelse:\n    S = tl.constexpr(2)"),
    ("cfg.add(1)", "if cfg.L:\n    S = tl.constexpr(1)\nelse:\n    S = tl.constexpr(2)"),
]


@pytest.mark.parametrize(("register", "use"), REGISTERS)
@pytest.mark.parametrize("chain", ["import register", "import between"])
def test_a_file_that_is_imported_for_what_it_does(scratch: Scratch, register: str, use: str, chain: str) -> None:
    scratch.files({"cfg.py": CONFIG, "register.py": f"import cfg\n{register}\n", "between.py": "import register\n"})
    scratch.write(f"{HEADER}{chain}\nimport cfg\n{use}\n{KERNEL}")
    message = scratch.refusal()
    print(message)
    assert "register.py" in message
    assert ("changes" in message and " of cfg.py" in message) or "may change what" in message


def test_a_file_that_nothing_imports_changes_nothing(scratch: Scratch) -> None:
    scratch.files({"cfg.py": CONFIG, "register.py": "import cfg\ncfg.add(1)\ncfg.X = 1\n"})
    scratch.write(f"{HEADER}import cfg\nS = tl.constexpr(cfg.X + len(cfg.L))\n{KERNEL}")
    assert scratch.cut().uncut is None


def test_the_files_that_are_imported_are_found_anew(scratch: Scratch) -> None:
    def names() -> list[str]:
        found = imported(Project(root=scratch.root), scratch.root / "p" / "k.py").naming({"MARK"})
        return [path.relative_to(scratch.root).as_posix() for path in found]

    scratch.files(
        {
            "p/__init__.py": "MARK = 1\n",
            "p/k.py": "from . import (a,  # MARK\n    b as c)\nimport q.r, \\\n    s\nif True: import t\n",
            "p/a.py": "MARK = 2\n",
            "p/b/__init__.py": "from ..d import *\n",
            "p/d.py": "MARK = 3\n",
            "q/r.py": "MARK = 4\n",
            "t.py": "MARK = 5\n",
            "u.py": "MARK = 6\n",
        }
    )
    assert names() == ["p/__init__.py", "p/a.py", "p/d.py", "p/k.py", "q/r.py", "t.py"]
    scratch.files({"s.py": "MARK = 7\n", "p/d.py": "import u\n"})
    assert names() == ["p/__init__.py", "p/a.py", "p/k.py", "q/r.py", "s.py", "t.py", "u.py"]
