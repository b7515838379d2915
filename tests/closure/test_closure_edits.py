"""Edits that change what is compiled: each changes the digest, and the slice compiles to what the whole file does."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch

from kiln.closure.load import load

KERNEL = """
@triton.jit
def kernel({parameters}):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n)
{body}    tl.store(out + i, {value}, mask=i < n)
"""
PARAMETERS = "out, x, n, N: tl.constexpr"


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A project, and the text in one of its files that is replaced."""

    before: str
    """stands above the kernel"""
    value: str
    """what the kernel stores, where v is what it loads"""
    files: dict[str, str] = field(default_factory=dict)
    """the others; <HEADER> is the import of Triton"""
    parameters: str = PARAMETERS
    body: str = ""
    after: str = ""
    edit: tuple[str, str, str]
    """file, old, new"""

    def write(self, project: Scratch, edited: bool) -> None:
        text = self.before + KERNEL.format(parameters=self.parameters, body=self.body, value=self.value) + self.after
        texts = {**self.files, KERNEL_FILE: HEADER + text}
        file, old, new = self.edit
        assert old in texts[file]
        if edited:
            texts[file] = texts[file].replace(old, new)
        project.files({name: text.replace("<HEADER>", HEADER) for name, text in texts.items()})


KERNEL_FILE = "p/k.py"
EDITS = {
    "constant": Edit(
        before="S = tl.constexpr(2)\n",
        value="v * S",
        edit=("p/k.py", "constexpr(2)", "constexpr(3)"),
    ),
    "annotated constant": Edit(
        before="S: tl.constexpr = tl.constexpr(2)\n",
        value="v * S",
        edit=("p/k.py", "(2)", "(3)"),
    ),
    "dtype alias": Edit(
        before="DT = tl.float16\n",
        value="v.to(DT).to(tl.float32)",
        edit=("p/k.py", "tl.float16", "tl.bfloat16"),
    ),
    "dtype alias of alias": Edit(
        before="from h import DT as D2\nDT = D2\n",
        value="v.to(DT).to(tl.float32)",
        files={"h.py": "<HEADER>DT = tl.float16\n"},
        edit=("h.py", "tl.float16", "tl.bfloat16"),
    ),
    "libdevice alias": Edit(
        before="from h import f\n",
        value="f(v)",
        files={
            "h.py": "from triton.language.extra import libdevice\nf = libdevice.rint\n",
        },
        edit=("h.py", "rint", "floor"),
    ),
    "import alias target": Edit(
        before="from h import a as f\n",
        value="f(v)",
        files={
            "h.py": ("<HEADER>@triton.jit\ndef a(v): return v + 1\n@triton.jit\ndef b(v): return v + 2\n"),
        },
        edit=("p/k.py", "import a as", "import b as"),
    ),
    "cfg.S": Edit(
        before="import cfg\n",
        value="v * cfg.S",
        files={"cfg.py": "<HEADER>S = tl.constexpr(2)\nT = 2\n"},
        edit=("cfg.py", "S = tl.constexpr(2)", "S = tl.constexpr(3)"),
    ),
    "default by name": Edit(
        before="from h import helper\n",
        value="helper(v)",
        files={
            "h.py": ("<HEADER>B = tl.constexpr(2)\nD = 3\n@triton.jit\ndef helper(a, d=D):\n    return a * B + d\n"),
        },
        edit=("h.py", "D = 3", "D = 4"),
    ),
    "kernel default by name": Edit(
        before="D = 3\n",
        value="v * m",
        parameters="out, x, n, N: tl.constexpr, m: tl.constexpr = D",
        edit=("p/k.py", "D = 3", "D = 4"),
    ),
    "helper global": Edit(
        before="from h import helper\n",
        value="helper(v)",
        files={
            "h.py": ("<HEADER>B = tl.constexpr(2)\nD = 3\n@triton.jit\ndef helper(a, d=D):\n    return a * B + d\n"),
        },
        edit=("h.py", "constexpr(2)", "constexpr(5)"),
    ),
    "live branch": Edit(
        before=("if True:\n    S = tl.constexpr(2)\nelse:\n    S = tl.constexpr(9)\n"),
        value="v * S",
        edit=("p/k.py", "constexpr(2)", "constexpr(3)"),
    ),
    "which branch": Edit(
        before=("if True:\n    S = tl.constexpr(2)\nelse:\n    S = tl.constexpr(9)\n"),
        value="v * S",
        edit=("p/k.py", "if True", "if False"),
    ),
    "computing helper": Edit(
        before=("def g(n):\n    return n * 2\nS = tl.constexpr(g(3))\n"),
        value="v * S",
        edit=("p/k.py", "n * 2", "n * 4"),
    ),
    "computing helper two deep": Edit(
        before="from h import g\nS = tl.constexpr(g(3))\n",
        value="v * S",
        files={
            "h.py": ("Q = 3\ndef q():\n    return Q\ndef g(n):\n    return n * q()\n"),
        },
        edit=("h.py", "Q = 3", "Q = 4"),
    ),
    "class constant": Edit(
        before=("class Cfg:\n    S = tl.constexpr(2)\n    T = 3\nV = Cfg.S\nS = tl.constexpr(V.value)\n"),
        value="v * S",
        edit=("p/k.py", "S = tl.constexpr(2)", "S = tl.constexpr(4)"),
    ),
    "class constant in another file": Edit(
        before=("from h import Cfg\nV = Cfg.S\nS = tl.constexpr(V.value)\n"),
        value="v * S",
        files={"h.py": "<HEADER>class Cfg:\n    S = tl.constexpr(2)\n"},
        edit=("h.py", "constexpr(2)", "constexpr(4)"),
    ),
    "class constant by alias": Edit(
        before=("from h import Cfg\nalias = Cfg\nalias.S = tl.constexpr(3)\nV = Cfg.S\nS = tl.constexpr(V.value)\n"),
        value="v * S",
        files={"h.py": "<HEADER>class Cfg:\n    S = tl.constexpr(2)\n"},
        edit=("p/k.py", "constexpr(3)", "constexpr(4)"),
    ),
    "loop alias": Edit(
        before=("from h import Cfg\nfor c in [Cfg]: c.S = tl.constexpr(3)\nV = Cfg.S\nS = tl.constexpr(V.value)\n"),
        value="v * S",
        files={"h.py": "<HEADER>class Cfg:\n    S = tl.constexpr(2)\n"},
        edit=("p/k.py", "constexpr(3)", "constexpr(4)"),
    ),
    "called setter": Edit(
        before="import cfg\ncfg.setup(3)\n",
        value="v * cfg.S",
        files={
            "cfg.py": ("<HEADER>S = tl.constexpr(1)\ndef setup(n):\n    global S\n    S = tl.constexpr(n)\n"),
        },
        edit=("p/k.py", "setup(3)", "setup(5)"),
    ),
    "setter body": Edit(
        before="import cfg\ncfg.setup(3)\n",
        value="v * cfg.S",
        files={
            "cfg.py": ("<HEADER>S = tl.constexpr(1)\ndef setup(n):\n    global S\n    S = tl.constexpr(n + 1)\n"),
        },
        edit=("cfg.py", "n + 1", "n + 2"),
    ),
    "aug assign": Edit(
        before=("s = 2\ns += 1\nS = tl.constexpr(s)\n"),
        value="v * S",
        edit=("p/k.py", "s += 1", "s += 2"),
    ),
    "list constant": Edit(
        before=("L = [1, 2]\nL.append(3)\nS = tl.constexpr(sum(L))\n"),
        value="v * S",
        edit=("p/k.py", "append(3)", "append(4)"),
    ),
    "list alias": Edit(
        before=("L = [1, 2]\nM = L\nM.append(3)\nS = tl.constexpr(sum(L))\n"),
        value="v * S",
        edit=("p/k.py", "append(3)", "append(4)"),
    ),
    "comprehension constant": Edit(
        before="K = 3\nS = tl.constexpr(sum(i * K for i in range(4)))\n",
        value="v * S",
        edit=("p/k.py", "K = 3", "K = 4"),
    ),
    "lambda constant": Edit(
        before="f = lambda n: n * 3\nS = tl.constexpr(f(2))\n",
        value="v * S",
        edit=("p/k.py", "n * 3", "n * 5"),
    ),
    "lambda default": Edit(
        before=("Q = 3\nf = lambda n, q=Q: n * q\nS = tl.constexpr(f(2))\n"),
        value="v * S",
        edit=("p/k.py", "Q = 3", "Q = 7"),
    ),
    "star args": Edit(
        before=("A = (1, 2, 3)\ndef f(*a, **k): return sum(a) + k['z']\nS = tl.constexpr(f(*A, **{'z': 1}))\n"),
        value="v * S",
        edit=("p/k.py", "2, 3)", "2, 4)"),
    ),
    "function of a constant": Edit(
        before=("def make():\n    inner = 3\n    def g(): return inner\n    return g()\nS = tl.constexpr(make())\n"),
        value="v * S",
        edit=("p/k.py", "inner = 3", "inner = 4"),
    ),
    "noinline": Edit(
        before=("@triton.jit\ndef helper(a):\n    return a * 2\n"),
        value="v * helper(n)",
        edit=("p/k.py", "@triton.jit\ndef helper", "@triton.jit(noinline=True)\ndef helper"),
    ),
    "param annotation constexpr": Edit(
        before="",
        value="v * m",
        parameters="out, x, n, N: tl.constexpr, m: tl.constexpr = 2",
        edit=("p/k.py", "m: tl.constexpr = 2", "m: tl.constexpr = 3"),
    ),
    "helper constexpr annotation": Edit(
        before=("@triton.jit\ndef f(a, b):\n    return a + b\n"),
        value="f(v, 3)",
        edit=("p/k.py", "return a + b", "return a - b"),
    ),
    "operator": Edit(
        before="",
        value="v * 2",
        edit=("p/k.py", "v * 2", "v + 2"),
    ),
    "int to float": Edit(
        before="import cfg\n",
        value="v * cfg.S",
        files={"cfg.py": "<HEADER>S = tl.constexpr(2)\n"},
        edit=("cfg.py", "(2)", "(2.5)"),
    ),
    "relative import": Edit(
        before="from .c import S\n",
        value="v * S",
        files={"p/c.py": "<HEADER>S = tl.constexpr(2)\n"},
        edit=("p/c.py", "(2)", "(3)"),
    ),
    "package reexport": Edit(
        before="from p import f\n",
        value="f(v)",
        files={
            "p/__init__.py": "from .a import f\n",
            "p/a.py": "<HEADER>@triton.jit\ndef f(v): return v + 1\n",
            "p/b.py": "<HEADER>@triton.jit\ndef f(v): return v + 2\n",
        },
        edit=("p/__init__.py", ".a", ".b"),
    ),
    "tl re-exported": Edit(
        before="from c import tl, triton\n",
        value="v * 2",
        files={"c.py": "<HEADER>"},
        edit=("p/k.py", "v * 2", "v * 3"),
    ),
    "constexpr_function": Edit(
        before=("@triton.constexpr_function\ndef f(n):\n    return n * 2\n"),
        value="v * f(3)",
        edit=("p/k.py", "n * 2", "n * 5"),
    ),
    "static_range": Edit(
        before="R = tl.constexpr(2)\n",
        value="v",
        body="    for j in tl.static_range(R):\n        v += j + 1\n",
        edit=("p/k.py", "constexpr(2)", "constexpr(4)"),
    ),
    "if constexpr": Edit(
        before="F = tl.constexpr(True)\n",
        value="v",
        body=("    if F:\n        v += 1\n    else:\n        v += 2\n"),
        edit=("p/k.py", "(True)", "(False)"),
    ),
    "function as a constant": Edit(
        before="from h import a, b\n",
        value="m(v)",
        files={
            "h.py": ("<HEADER>@triton.jit\ndef a(v): return v + 1\n@triton.jit\ndef b(v): return v + 2\n"),
        },
        parameters="out, x, n, N: tl.constexpr, m: tl.constexpr = a",
        edit=("h.py", "v + 1", "v + 7"),
    ),
    "tuple constant": Edit(
        before="P = tl.constexpr((1, 2))\n",
        value="v * P[1]",
        edit=("p/k.py", "(1, 2)", "(1, 5)"),
    ),
    "dict constant": Edit(
        before="D = {'a': 2}\nS = tl.constexpr(D['a'])\n",
        value="v * S",
        edit=("p/k.py", "'a': 2", "'a': 6"),
    ),
    "dataclass": Edit(
        before=("from dataclasses import dataclass\n@dataclass\nclass C:\n    s: int = 2\nS = tl.constexpr(C().s)\n"),
        value="v * S",
        edit=("p/k.py", "= 2", "= 6"),
    ),
    "enum": Edit(
        before=("import enum\nclass E(enum.IntEnum):\n    A = 2\nS = tl.constexpr(int(E.A))\n"),
        value="v * S",
        edit=("p/k.py", "A = 2", "A = 6"),
    ),
    "namedtuple": Edit(
        before=("from typing import NamedTuple\nclass P(NamedTuple):\n    s: int = 2\nS = tl.constexpr(P().s)\n"),
        value="v * S",
        edit=("p/k.py", "= 2", "= 6"),
    ),
    "math": Edit(
        before="import math\nS = tl.constexpr(math.ceil(2.5))\n",
        value="v * S",
        edit=("p/k.py", "math.ceil", "math.floor"),
    ),
    "math by name": Edit(
        before="from math import ceil as f\nS = tl.constexpr(f(2.5))\n",
        value="v * S",
        edit=("p/k.py", "ceil as", "floor as"),
    ),
    "f-string": Edit(
        before="W = 3\nS = tl.constexpr(int(f'{W}0'))\n",
        value="v * S",
        edit=("p/k.py", "W = 3", "W = 4"),
    ),
    "asm": Edit(
        before="ASM = tl.constexpr('mov.b32 $0, $1;')\n",
        value="tl.inline_asm_elementwise(ASM, '=r,r', [v], dtype=tl.float32, is_pure=True, pack=1)",
        edit=("p/k.py", "mov.b32", "neg.f32"),
    ),
    "rebinding": Edit(
        before="S = tl.constexpr(2)\n",
        value="v * S",
        after="S = tl.constexpr(3)\n",
        edit=("p/k.py", "\nS = tl.constexpr(3)", "\nS = tl.constexpr(4)"),
    ),
    "walrus": Edit(
        before="T = (S := tl.constexpr(2))\n",
        value="v * S",
        edit=("p/k.py", "(2)", "(3)"),
    ),
    "with": Edit(
        before=(
            "class W:\n"
            "    def __enter__(self): return tl.constexpr(2)\n"
            "    def __exit__(self, *a): pass\n"
            "with W() as S: pass\n"
        ),
        value="v * S",
        edit=("p/k.py", "(2)", "(3)"),
    ),
    "for": Edit(
        before="for S in (tl.constexpr(1), tl.constexpr(2)): pass\n",
        value="v * S",
        edit=("p/k.py", "(2)", "(3)"),
    ),
    "swap of imports": Edit(
        before="from a import S\nfrom b import S\n",
        value="v * S",
        files={
            "a.py": "<HEADER>S = tl.constexpr(2)\n",
            "b.py": "<HEADER>S = tl.constexpr(3)\n",
        },
        edit=("p/k.py", "from a import S\nfrom b import S", "from b import S\nfrom a import S"),
    ),
    "del": Edit(
        before=("D = {'a': 1, 'b': 2}\ndel D['a']\nS = tl.constexpr(sum(D.values()))\n"),
        value="v * S",
        edit=("p/k.py", "D['a']\n", "D['b']\n"),
    ),
    "setattr": Edit(
        before=("class Cfg: pass\nsetattr(Cfg, 'S', tl.constexpr(2))\nV = Cfg.S\nS = tl.constexpr(V.value)\n"),
        value="v * S",
        edit=("p/k.py", "(2)", "(3)"),
    ),
    "inheritance": Edit(
        before=("from h import A\nclass B(A): pass\nV = B.S\nS = tl.constexpr(V.value)\n"),
        value="v * S",
        files={"h.py": "<HEADER>class A:\n    S = tl.constexpr(2)\n"},
        edit=("h.py", "(2)", "(3)"),
    ),
    "static method": Edit(
        before=("class A:\n    @staticmethod\n    def f(): return 2\nS = tl.constexpr(A.f())\n"),
        value="v * S",
        edit=("p/k.py", "return 2", "return 3"),
    ),
    "property": Edit(
        before=("class A:\n    @property\n    def f(self): return 2\nS = tl.constexpr(A().f)\n"),
        value="v * S",
        edit=("p/k.py", "return 2", "return 3"),
    ),
    "generator": Edit(
        before=("def g():\n    yield 2\nS = tl.constexpr(next(g()))\n"),
        value="v * S",
        edit=("p/k.py", "yield 2", "yield 3"),
    ),
    "decorated plain helper": Edit(
        before=(
            "import functools\n"
            "def deco(f):\n"
            "    def w(): return f() + 1\n"
            "    return w\n"
            "@deco\n"
            "def g(): return 2\n"
            "S = tl.constexpr(g())\n"
        ),
        value="v * S",
        edit=("p/k.py", "f() + 1", "f() + 3"),
    ),
    "partial": Edit(
        before=("import functools\ndef g(a, b): return a * b\np = functools.partial(g, 2)\nS = tl.constexpr(p(3))\n"),
        value="v * S",
        edit=("p/k.py", "g, 2)", "g, 5)"),
    ),
    "jit of a function": Edit(
        before=("def f(v):\n    return v * 2\nhelper = triton.jit(f)\n"),
        value="helper(v)",
        edit=("p/k.py", "v * 2", "v * 4"),
    ),
    "jit by alias": Edit(
        before=("j = triton.jit\n@j\ndef helper(v):\n    return v * 2\n"),
        value="helper(v)",
        edit=("p/k.py", "v * 2", "v * 4"),
    ),
    "monkeypatched method": Edit(
        before=("class A:\n    def f(self): return 2\ndef g(self): return 3\nA.f = g\nS = tl.constexpr(A().f())\n"),
        value="v * S",
        edit=("p/k.py", "return 3", "return 4"),
    ),
    "device_assert off": Edit(
        before="from c import *\nfrom c import S\n",
        value="v * S",
        files={"c.py": "<HEADER>S = tl.constexpr(2)\n"},
        edit=("c.py", "(2)", "(3)"),
    ),
    "dotted package": Edit(
        before="import a.b.c\n",
        value="v * a.b.c.S",
        files={"a/b/c.py": "<HEADER>S = tl.constexpr(2)\n"},
        edit=("a/b/c.py", "(2)", "(3)"),
    ),
    "assignment from outside": Edit(
        before=("import c\nimport h\nc.S = tl.constexpr(4)\n"),
        value="v * h.f()",
        files={
            "h.py": ("<HEADER>import c\n@triton.jit\ndef f():\n    return c.S\n"),
            "c.py": "<HEADER>S = tl.constexpr(2)\n",
        },
        edit=("p/k.py", "(4)", "(5)"),
    ),
    "condition inside helper": Edit(
        before=(
            "F = tl.constexpr(1)\n"
            "@triton.jit\n"
            "def f(v):\n"
            "    if F == 1:\n"
            "        return v + 1\n"
            "    else:\n"
            "        return v + 2\n"
        ),
        value="f(v)",
        edit=("p/k.py", "constexpr(1)", "constexpr(0)"),
    ),
    "package init changes module": Edit(
        before="from .c import S as T\nS = tl.constexpr(T)\n",
        value="v * S",
        files={"p/__init__.py": "from . import c\nc.S = 7\n", "p/c.py": "S = 2\n"},
        edit=("p/__init__.py", "7", "8"),
    ),
    "order of imports": Edit(
        before=("import a\nimport b\nX = a.S + b.X\nS = tl.constexpr(X)\n"),
        value="v * S",
        files={"a.py": "S = 2\n", "b.py": "import a\na.S = 5\nX = 1\n"},
        edit=("b.py", "= 5", "= 6"),
    ),
    "order of imports swap": Edit(
        before=("from a import S\nfrom b import X\nQ = tl.constexpr(S + X)\n"),
        value="v * Q",
        files={"a.py": "S = 2\n", "b.py": "import a\na.S = 5\nX = 1\n"},
        edit=("p/k.py", "from a import S\nfrom b import X", "from b import X\nfrom a import S"),
    ),
    "star that brings nothing": Edit(
        before="S = tl.constexpr(2)\nfrom h import *\n",
        value="v * S",
        files={"h.py": "<HEADER>Q = 3\n"},
        edit=("p/k.py", "(2)", "(4)"),
    ),
    "star before": Edit(
        before="from h import *\nS = tl.constexpr(2)\n",
        value="v * S",
        files={"h.py": "<HEADER>S = tl.constexpr(3)\n"},
        edit=("p/k.py", "(2)", "(4)"),
    ),
    "default that is an alias": Edit(
        before=("from h import c as q\n@triton.jit\ndef f(v, k=q):\n    return v * k\n"),
        value="f(v)",
        files={"h.py": "c = 3\nd = 4\n"},
        edit=("p/k.py", "c as q", "d as q"),
    ),
    "method mutates list": Edit(
        before=(
            "class A:\n    L = [1]\n    def add(self, n): self.L.append(n)\nA().add(4)\nS = tl.constexpr(sum(A.L))\n"
        ),
        value="v * S",
        edit=("p/k.py", "add(4)", "add(5)"),
    ),
    "nested class": Edit(
        before=("class A:\n    class B:\n        S = 3\nS = tl.constexpr(A.B.S)\n"),
        value="v * S",
        edit=("p/k.py", "S = 3", "S = 4"),
    ),
    "closure over a loop": Edit(
        before=("fs = [lambda i=i: i + 1 for i in range(3)]\nS = tl.constexpr(sum(f() for f in fs))\n"),
        value="v * S",
        edit=("p/k.py", "i + 1", "i + 2"),
    ),
    "star-args of a jitted helper": Edit(
        before=("@triton.jit\ndef f(a, b):\n    return g(a, b)\n@triton.jit\ndef g(a, b):\n    return a + b\n"),
        value="f(v, 1)",
        edit=("p/k.py", "a + b", "a - b"),
    ),
    "tl.reduce combine": Edit(
        before=("@triton.jit\ndef comb(a, b):\n    return a + b\n"),
        value="v + tl.reduce(v, 0, comb)",
        edit=("p/k.py", "a + b", "tl.maximum(a, b)"),
    ),
    "constexpr by chained names": Edit(
        before=("A = 2\nB = A\nC = tl.constexpr(B)\n"),
        value="v * C",
        edit=("p/k.py", "A = 2", "A = 3"),
    ),
    "if TYPE_CHECKING else": Edit(
        before=("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    S = 1\nelse:\n    S = tl.constexpr(2)\n"),
        value="v * S",
        edit=("p/k.py", "(2)", "(3)"),
    ),
    "recursion": Edit(
        before=("def f(n): return 1 if n == 0 else n * f(n - 1)\nS = tl.constexpr(f(3))\n"),
        value="v * S",
        edit=("p/k.py", "f(3)", "f(4)"),
    ),
    "set order free": Edit(
        before="S = tl.constexpr(sum({1, 2, 3}))\n",
        value="v * S",
        edit=("p/k.py", "2, 3}", "2, 4}"),
    ),
    "bytes": Edit(
        before="S = tl.constexpr(b'a'[0])\n",
        value="v * S",
        edit=("p/k.py", "b'a'", "b'b'"),
    ),
    "try in a function": Edit(
        before=(
            "def f():\n    try:\n        return 2\n    except ValueError:\n        return 3\nS = tl.constexpr(f())\n"
        ),
        value="v * S",
        edit=("p/k.py", "return 2", "return 4"),
    ),
    "global in a helper": Edit(
        before=("T = 1\ndef f():\n    global T\n    T += 2\nf()\nS = tl.constexpr(T)\n"),
        value="v * S",
        edit=("p/k.py", "+= 2", "+= 3"),
    ),
    "changed after it was read": Edit(
        before=("T = [1]\nS = tl.constexpr(T[0])\nT[0] = 5\n"),
        value="v * S",
        edit=("p/k.py", "[1]", "[2]"),
    ),
    "import in function": Edit(
        before=("def f():\n    import math\n    return math.floor(2.5)\nS = tl.constexpr(f())\n"),
        value="v * S",
        edit=("p/k.py", "floor", "ceil"),
    ),
    "operator overload": Edit(
        before=("class A:\n    def __add__(self, o): return 4\nS = tl.constexpr(A() + 1)\n"),
        value="v * S",
        edit=("p/k.py", "return 4", "return 5"),
    ),
    "metaclass": Edit(
        before=(
            "class M(type):\n"
            "    def __new__(m, n, b, d):\n"
            "        d['S'] = 3\n"
            "        return type.__new__(m, n, b, d)\n"
            "class A(metaclass=M): pass\n"
            "S = tl.constexpr(A.S)\n"
        ),
        value="v * S",
        edit=("p/k.py", "= 3", "= 4"),
    ),
    "ternary": Edit(
        before=("import sys\nA = 1\nS = tl.constexpr(2 if A else 3)\n"),
        value="v * S",
        edit=("p/k.py", "A = 1", "A = 0"),
    ),
}


def compiled(function: Any) -> str:
    """The PTX for sm_80, with no GPU and without the names of modules."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import ASTSource, make_backend

    backend = make_backend(GPUTarget("cuda", 80, 32))
    options = backend.parse_options({"num_warps": 4, "enable_fp_fusion": True})
    constants = {parameter.name: parameter.default for parameter in function.params if parameter.has_default}
    signature = {"out": "*fp32", "x": "*fp32", "n": "i32", "N": "constexpr"} | dict.fromkeys(constants, "constexpr")
    source = ASTSource(function, signature, {"N": 128, **constants}, {})
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    del stages["cubin"]
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    metadata = dict(vars(options))
    module = source.make_ir(
        backend.target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    for stage in stages.values():
        module = stage(module, metadata)
    return re.sub(r"(kiln_slice_\$_)?p_\$_k_\$_", "", str(module))


def imported(project: Scratch) -> Any:
    """The kernel of the whole file, as Python imports it."""
    tops = {path.relative_to(project.root).parts[0].removesuffix(".py") for path in project.root.rglob("*.py")}
    importlib.invalidate_caches()
    try:
        return importlib.import_module("p.k").kernel
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
            del sys.modules[name]


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_edit(scratch: Scratch, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit that reaches the PTX of the whole file reaches the digest; slice and file compile to the same."""
    monkeypatch.syspath_prepend(str(scratch.root))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    digests, images = [], []
    for edited in (False, True):
        edit.write(scratch, edited)
        closure = scratch.cut(KERNEL_FILE)
        whole = compiled(imported(scratch))
        assert compiled(load(closure)) == whole
        digests.append(closure.digest)
        images.append(whole)
    assert images[0] != images[1]
    assert digests[0] != digests[1]
