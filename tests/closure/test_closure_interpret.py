"""The interpreter: it computes what Python computes, asks the world and nothing else, and leaves the rest undecided."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

import pytest
from closure_scratch import HEADER, Scratch
from closure_worlds import CUDA, HIP

from kiln.closure.interpret.interpreter import Interpreter, call, evaluate
from kiln.closure.interpret.values import ConfigValue, FunctionValue, OutsideValue, Undecided
from kiln.closure.resolve import Project
from kiln.closure.world import World


def value_of(scratch: Scratch, text: str, expression: str = "X", world: World = CUDA) -> object:
    """The value of an expression below the text of k.py."""
    project = Project(root=scratch.root)
    module = project.open(scratch.write(f"{textwrap.dedent(text)}\nRESULT = {expression}\n"))
    assign = module.units[-1].node
    assert isinstance(assign, ast.Assign)
    return evaluate(project, module, assign.value, world)


def asked(scratch: Scratch, text: str, expression: str = "X", world: World = CUDA) -> set[str]:
    project = Project(root=scratch.root)
    module = project.open(scratch.write(f"{textwrap.dedent(text)}\nRESULT = {expression}\n"))
    assign = module.units[-1].node
    assert isinstance(assign, ast.Assign)
    found: set[str] = set()
    evaluate(project, module, assign.value, world, asked=found)
    return found


PLAIN = [
    "def f(a=[], *, b={}):\n    return len(a), [*a, 1], dict(b, c=2)\nX = f(), f([3], b={'c': 1}), f()",
    "Y = 1\ndef f(a=Y):\n    return a, Y\nY = 2\nX = f()\nY = 3",
    "Y = 1\ndef f():\n    return Y\nX = f()\nY = 2",
    "X = []\ndef f(x):\n    x.append(1)\n    return len(x)\nn = f(X)",
    "X = [[1], [2]]\nfor i, row in enumerate(X):\n    row.append(i)",
    "def f():\n    a = b = {1, 2}\n    a |= {3}\n    a -= {1}\n    c = d = [1]\n    c *= 2\n    return b, d\nX = f()",
    "X = 1 + 2 * 3 ** 2 // 4 % 5 - -7",
    "X = 7 / 2, 7 // 2, 1 << 4, 0xF0 >> 4, 6 & 3, 6 | 3, 6 ^ 3, ~5, not 0",
    "X = [i * j for i in range(3) for j in (1, 2) if i != j]",
    "X = {k: v for k, v in zip('abc', [1, 2, 3])}, {i % 2 for i in range(5)}, tuple(i for i in range(3))",
    "a, (b, *c) = 1, (2, 3, 4)\nX = a, b, c",
    "X = 'abc'.upper() + '-'.join(str(i) for i in range(3)) + f'{3:>4}{2.5!r}' + '%d-%s' % (1, 'a') + '{}'.format(2)",
    "X = [1, 2, 3, 4][1:3], 'hello'[::-1], (1, 2)[-1], {'a': 1}['a']",
    "X = 1 < 2 < 3, 1 in [1], 'a' not in 'b', None is None, (1, 2) == (1, 2), [1] != [2]",
    "X = 0 or 'a', 1 and 2, 3 if [] else 4",
    "X = max(1, 2), min([3, 1]), sum([1, 2], 3), sorted([3, 1, 2], reverse=True), any([0, 1]), all([]), len('abc')",
    "X = max(['a', 'bbb'], key=len), sorted({'b': 1, 'a': 2}.items(), key=lambda kv: kv[1])",
    "X = list(map(lambda a, b: a + b, [1, 2], [3, 4])), list(filter(None, [0, 1])), list(enumerate('ab', 1))",
    "X = [*range(3), *[7]], {**{'a': 1}, 'b': 2}, dict(a=1, **{'c': 3}), dict([(1, 2)])",
    "X = int('7'), float('1.5'), str(3), bool([]), abs(-2), round(2.567, 1), divmod(7, 2), pow(2, 5)",
    "X = isinstance(1, int), isinstance('a', (int, str)), isinstance([], dict), isinstance(True, int)",
    "from math import log2, ceil\nimport math\nX = ceil(log2(9)), math.gcd(12, 18), math.pi, math.prod([2, 3])",
    "import itertools\nX = list(itertools.product([1, 2], 'ab')), list(itertools.chain([1], [2]))",
    "import itertools\nX = list(itertools.chain.from_iterable([[1], [2, 3]]))",
    (
        "from functools import partial, reduce\nf = partial(lambda a, b: a - b, 10)\n"
        "X = f(3), reduce(lambda a, b: a * b, [2, 3])"
    ),
    "X = []\nfor i in range(10):\n    if i == 2: continue\n    if i == 5: break\n    X.append(i)\nelse:\n    X = None",
    "X = [1]\nX.append(2)\nX += [3]\nX.extend([4])\nX[0] = 9\nX.insert(0, 7)\ndel X[1]",
    "X = {'a': 1}\nX['b'] = 2\nX.update(c=3)\nX.setdefault('d', 4)\nX.pop('a')",
    "def fill(l):\n    l.append(5)\nX = []\nfill(X)",
    "X = 1\nX = X + 1\nX *= 5",
    "def f(a, b=2, *c, d=4, **e):\n    return a, b, c, d, e\nX = f(1), f(1, 3, 5, d=6, z=7), f(*[1, 2], **{'d': 0})",
    "def f(n):\n    if n <= 1:\n        return 1\n    return n * f(n - 1)\nX = f(6)",
    "def f():\n    total = 0\n    n = 5\n    while n:\n        n -= 1\n        total += n\n    return total\nX = f()",
    "def f():\n    def g(y):\n        return y + z\n    z = 3\n    return g(1)\nX = f()",
    "def f():\n    for i in range(3):\n        for j in range(2):\n            yield i, j\nX = list(f())",
    (
        "def f(d):\n    try:\n        return d['k']\n    except KeyError:\n        return 'none'\n"
        "    finally:\n        d['z'] = 1\nX = f({}), f({'k': 2})"
    ),
    (
        "def f(x):\n    if x < 0:\n        raise ValueError('no')\n    return x\ntry:\n"
        "    X = f(-1)\nexcept (KeyError, ValueError):\n    X = 'caught'"
    ),
    "try:\n    X = 1\nexcept ImportError:\n    X = 2\nelse:\n    X = 3",
    "X = (n := 4) + n",
    (
        "class C:\n    A = 2\n    B = A * 3\n    L: int = 5\n    @staticmethod\n    def f(x):\n"
        "        return x + 1\nX = C.A, C.B, C.L, C.f(1)"
    ),
    "class C:\n    A = 2\nclass D(C):\n    B = 3\nX = D.A, D.B, hasattr(D, 'A'), hasattr(D, 'Z'), getattr(D, 'Z', 9)",
    "if len('ab') == 2:\n    X = 'yes'\nelif True:\n    X = 'elif'\nelse:\n    X = 'no'",
    "X = 5\nif X > 3:\n    X = 3\n    Y = 1",
    "import re\nX = re.match(r'a(\\d+)', 'a12').group(1), bool(re.match('b', 'a'))",
    "X = -1 if 'x'.isdigit() else 1, 'a,b'.split(','), 'sm_90'.startswith('sm'), 'abc'.replace('b', 'z')",
    "X = [c for c in [{'a': i} for i in range(4)] if c['a'] % 2], [[0] * 2] * 2, 'ab' * 2",
    (
        "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef f(x):\n    '''Doc.'''\n"
        "    assert x, 'text'\n    return x * 2\nX = f(4)"
    ),
    "def f():\n    it = iter([1, 2, 3])\n    return [next(it), next(it), next(it, 0), next(it, 0)]\nX = f()",
    "def f():\n    d = {}\n    v = d.keys()\n    d['a'] = 1\n    return len(v), list(v), 'a' in v\nX = f()",
    "y = 5\nL = [y := i for i in range(3)]\nX = y",
    "def f():\n    L = [y := i for i in range(3)]\n    return y\nX = f()",
    "class C:\n    F = 1\n    F += 1\n    if True:\n        G = F + 1\n    for i in range(2):\n        G = G + i\n"
    "X = C.F, C.G, C.i",
    "A = 1\nclass C:\n    F = A\n    L = [A for _ in range(F + 1)]\nA = 2\nX = C.F, C.L",
    "F = 7\nclass C:\n    F = 1\n    @staticmethod\n    def f(a=F):\n        return a, F\n    g = [F for _ in (F,)]\n"
    "X = C.f(), C.g",
    "class C:\n    @property\n    def F(self): return 1\n    F = 3\nclass D(C):\n    pass\nX = D.F",
    "class C:\n    @staticmethod\n    def f(x):\n        return x + 1\n    K = [1]\nclass D(C):\n    J = C.K + [2]\n"
    "X = D.f(1), D.J",
    "def g():\n    yield 1\n    yield 2\ndef f():\n    it = g()\n    return next(it), next(it)\nX = f()",
    "xs = [1, 2]\nX = list(zip(xs, xs))",
    "X = bool(i for i in []), isinstance(map(int, '1'), list)",
    "fs = [lambda: i for i in range(3)]\nX = [f() for f in fs]",
    "X = [(a, b) for a in range(3) for b in range(a) if b]",
    "import itertools\nX = list(itertools.accumulate([1, 2, 3]))",
    "one = 1\nX = one is True, one == True, one is None",
]


@pytest.mark.parametrize("text", PLAIN)
def test_it_computes_what_python_computes(scratch: Scratch, text: str) -> None:
    names: dict[str, object] = {}
    exec(text, names)
    assert repr(value_of(scratch, text)) == repr(names["X"])


def test_names_lead_through_the_files_of_a_project(scratch: Scratch) -> None:
    scratch.files(
        {
            "p/__init__.py": "from .a import A\n",
            "p/a.py": "from . import b as other\nA = other.B * 2\ndef twice(x):\n    return x * FACTOR\nFACTOR = 2\n",
            "p/b.py": "B = 21\n_C = 1\n",
            "star.py": "from p.b import *\nD = 4\n",
        }
    )
    text = "import p.a\nfrom p import A, b\nfrom star import *\nimport star\n"
    assert value_of(scratch, text, "(p.a.A, A, b.B, B, D, star.B, p.a.twice(5))") == (42, 42, 21, 21, 4, 21, 10)


def test_the_target_answers_probes(scratch: Scratch) -> None:
    text = """
        import torch
        import triton
        from triton.runtime import driver

        def is_hip():
            return driver.active.get_current_target().backend == "hip"

        def is_cuda():
            target = triton.runtime.driver.active.get_current_target()
            return target is not None and target.backend == "cuda"

        def capability():
            return torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 0

        def warp():
            return driver.active.get_current_target().warp_size

        X = is_hip(), is_cuda(), torch.version.hip is not None, bool(torch.version.cuda), capability(), warp()
    """
    assert value_of(scratch, text, world=CUDA) == (False, True, False, True, 9, 32)
    assert value_of(scratch, text, world=HIP) == (True, False, True, False, 9, 64)
    assert asked(scratch, text) == {"backend", "arch", "warp_size"}
    assert asked(scratch, text, "1") == set()


@pytest.mark.parametrize(
    ("expression", "cuda", "hip"),
    [
        ("torch.cuda.get_device_capability()", (9, 0), (9, 4)),
        ("torch.cuda.get_device_capability(0) >= (9, 0)", True, True),
        ("torch.cuda.get_device_properties(0).gcnArchName", 90, "gfx942"),
        ("driver.active.get_current_target().arch", 90, "gfx942"),
        ("tl.target_info.is_hip()", False, True),
        ("tl.target_info.cuda_capability_geq(8, 9)", True, False),
        ("tl.target_info.is_hip_cdna3()", False, True),
        ("has_triton()", True, True),
        ("'hip' if torch.version.hip else 'cuda'", "cuda", "hip"),
        ("hasattr(torch, 'npu')", False, False),
        ("torch.xpu.is_available()", False, False),
        ("platform.system()", "Linux", "Linux"),
        ("sys.version_info >= (3, 8)", True, True),
        ("sys.version_info.major", 3, 3),
        ("triton.__version__ >= '3.0.0'", True, True),
        ("version.parse(triton.__version__) >= version.parse('3.10')", False, False),
        ("importlib.import_module('triton').__version__[0]", "3", "3"),
        ("operator.ge(Version(importlib.import_module('triton').__version__), Version('3.0.0'))", True, True),
        ("version.parse('3.2.0rc1') < version.parse('3.2')", True, True),
        ("tuple(int(v) for v in triton.__version__.split('.')[:2]) >= (3, 1)", True, True),
        ("hasattr(tl, 'make_tensor_descriptor')", True, True),
        ("hasattr(tl, 'no_such_thing')", False, False),
        ("hasattr(triton.language, 'extra') and hasattr(tl.extra, 'libdevice')", True, True),
        ("os.environ.get('SET', '0') == '1'", True, True),
        ("int(os.getenv('UNSET', '4'))", 4, 4),
        ("os.environ['SET']", "1", "1"),
        ("'UNSET' in os.environ", False, False),
        ("triton.cdiv(7, 2) + triton.next_power_of_2(9)", 20, 20),
        ("torch.finfo(torch.float32).max", 3.4028234663852886e38, 3.4028234663852886e38),
        ("torch.finfo(torch.bfloat16).eps, torch.finfo(torch.half).tiny", (2**-7, 2**-14), (2**-7, 2**-14)),
        ("np.iinfo(np.int8).min, torch.iinfo(torch.uint8).max, torch.finfo(torch.float16).bits", (-128, 255, 16), None),
        (
            "torch.float16 == torch.half, torch.float16 in (torch.float32,), torch.int32.itemsize",
            (True, False, 4),
            None,
        ),
    ],
)
def test_answers(scratch: Scratch, expression: str, cuda: object, hip: object) -> None:
    text = """
        import importlib, operator, os, platform, sys
        import numpy as np
        import torch
        import triton
        import triton.language as tl
        from packaging import version
        from packaging.version import Version
        from torch.utils._triton import has_triton
        from triton.runtime import driver
    """
    assert value_of(scratch, text, expression, CUDA) == cuda
    assert value_of(scratch, text, expression, HIP) == (cuda if hip is None else hip)


def test_what_was_asked_has_names(scratch: Scratch) -> None:
    text = "import os, triton, sys\nX = os.getenv('SET'), triton.__version__, sys.version_info[0]"
    assert asked(scratch, text) == {"environment SET", "triton_version", "python"}


def test_imports_that_are_tried(scratch: Scratch) -> None:
    scratch.write("def f():\n    return 1\n", "own.py")
    text = """
        try:
            from flash_attn import f
        except ImportError:
            from own import f
        try:
            from triton.language.extra import libdevice
            HAS = True
        except ImportError:
            HAS = False
        try:
            from triton.language.no_such import thing
        except (ImportError, AttributeError):
            thing = None
        try:
            import torch
        except ImportError:
            torch = None
        X = f(), HAS, thing, torch is None
    """
    assert value_of(scratch, text) == (1, True, None, False)


def test_configurations(scratch: Scratch) -> None:
    text = """
        import itertools
        import triton

        def sizes():
            return [32, 64] if triton.runtime.driver.active.get_current_target().backend == "cuda" else [16]

        def keep(conf):
            return conf.kwargs["BM"] * conf.kwargs["BN"] < 64 * 64 or conf.num_warps == 8

        X = [
            triton.Config({"BM": m, "BN": n}, num_warps=w, num_stages=s)
            for m, n, (w, s) in itertools.product(sizes(), sizes(), [(4, 2), (8, 3)])
        ]
        X = list(filter(keep, X)) + [triton.Config(kwargs=dict(BM=1, BN=1), pre_hook=lambda nargs: None)]
        X.append(triton.Config({"BM": 2, "BN": 2}, 2))
    """
    found = value_of(scratch, text)
    assert isinstance(found, list)
    rows = [(*config.constants.values(), dict(config.options), config.has_hook) for config in found]
    assert rows[0] == (32, 32, {"num_warps": 4, "num_stages": 2}, False)
    assert len(rows) == 7 + 2
    assert rows[-2] == (1, 1, {}, True)
    assert rows[-1] == (2, 2, {"num_warps": 2}, False)
    assert isinstance(found[0], ConfigValue)
    assert str(found[0].position).startswith("k.py:12:")
    assert len(value_of(scratch, text, world=HIP)) == 2 + 2  # type: ignore[arg-type]  # a list


def test_functions_and_things_of_triton_are_values(scratch: Scratch) -> None:
    text = f"""{HEADER}
@triton.jit
def kernel(x):
    pass
X = [kernel, tl.float16, tl.float16 == tl.float16, tl.float16 is tl.float32, kernel.__name__]
"""
    kernel, dtype, *rest = value_of(scratch, text)  # type: ignore[misc]  # a tuple
    assert isinstance(kernel, FunctionValue)
    assert (kernel.module.file, kernel.name) == ("k.py", "kernel")
    assert dtype == OutsideValue(dotted="triton.language.float16")
    assert rest == [True, False, "kernel"]


def test_constexpr_stays_one(scratch: Scratch) -> None:
    found = value_of(scratch, f"{HEADER}A = tl.constexpr(3)\n", "A * 2")
    assert type(found).__name__ == "ConstexprValue"
    assert value_of(scratch, f"{HEADER}A = tl.constexpr(3)\n", "'a' if A * 2 == 6 else 'b', A.value") == ("a", 3)


def test_a_call_and_a_condition(scratch: Scratch) -> None:
    project = Project(root=scratch.root)
    module = project.open(scratch.write("K = 3\ndef f(a, b=1):\n    return a * K + b\nif f(1) == 4:\n    pass\n"))
    assert call(project, module, "f", [2], CUDA) == 7
    block = module.units[-1].inside[0]
    assert isinstance(block, ast.If)
    assert Interpreter(project, module, CUDA).holds(module, block)


@pytest.mark.parametrize(
    "text",
    [
        "it = iter([1, 2, 3, 4])\nX = list(zip(it, it))",
        "g = (i for i in range(3))\nX = list(g), list(g)",
        "m = map(int, '12')\nX = sum(m), sum(m)",
        "import itertools\ng = (i for i in (1, 2))\nX = list(itertools.chain(g)), list(itertools.chain(g))",
        "def f():\n    it = iter([1, 2, 3])\n    for a in it:\n        break\n    return list(it)\nX = f()",
        "import itertools\nX = list(itertools.takewhile(lambda n: n < 2, [1, 2]))",
        "it = iter([1, 2])\na = next(it)\nX = next(it)",
        "D = {}\nX = ('a', D.keys())\nD['a'] = 1\nX = list(X[1])",
    ],
)
def test_what_is_not_followed_step_by_step(scratch: Scratch, text: str) -> None:
    reasons = r"gone through more than once|is given is not known|is read is not followed|may change what X holds"
    with pytest.raises(Undecided, match=reasons):
        value_of(scratch, text)


@pytest.mark.parametrize(
    "text",
    [
        "X = [1]\nY = X\nY += [2]",
        "X = [1]\nY = X\nY.append(2)",
        "Y = [1]\nX = Y\nY.append(2)",
        "X = Y = {}\nY['a'] = 1",
    ],
)
def test_what_is_changed_under_another_name(scratch: Scratch, text: str) -> None:
    with pytest.raises(Undecided, match=r"line [23] of k\.py may change what X (stands for|holds)"):
        value_of(scratch, text)


@pytest.mark.parametrize(
    "text",
    [
        "def f(a=[]):\n    a.append(1)\n    return len(a)\nfirst = f()\nX = f()",
        "def f(*, a={}):\n    a['n'] = a.get('n', 0) + 1\n    return a['n']\nfirst = f()\nX = f()",
        "def f(a=([],)):\n    a[0].append(1)\n    return len(a[0])\nfirst = f()\nX = f()",
        "f = lambda a=[]: (a.append(1), len(a))\nfirst = f()\nX = f()",
        "L = []\ndef f():\n    L.append(1)\n    return len(L)\nfirst = f()\nX = f()",
        "L = {1}\ndef f():\n    a = L\n    a |= {2}\n    return len(a)\nX = f()",
        "def make():\n    s = []\n    def g():\n        s.append(1)\n        return len(s)\n    return g\n"
        "g = make()\nfirst = g()\nX = g()",
        "import triton\nL = [triton.Config({'A': 1})]\nfor c in L:\n    c.kwargs['A'] = 2\nX = L[0].kwargs['A']",
    ],
)
def test_what_is_changed_where_others_see_it(scratch: Scratch, text: str) -> None:
    with pytest.raises(Undecided, match=r"changes an object that other code sees too|may change what L stands for"):
        value_of(scratch, text)


def test_a_function_that_is_defined_twice(scratch: Scratch) -> None:
    text = "def f():\n    return 1\nfirst = f()\ndef f():\n    return 2\nX = (first, f())"
    with pytest.raises(Undecided, match="f is defined more than once"):
        value_of(scratch, text)


def test_another_name_alone_does_no_harm(scratch: Scratch) -> None:
    assert value_of(scratch, "Y = [1]\nY.append(2)\nX = Y\nN = 1\nM = N\nM += 1", "X, N, M") == ([1, 2], 1, 2)


def test_names_are_as_they_are_where_the_statement_stands(scratch: Scratch) -> None:
    text = "A = 1\nif A == 1:\n    X = 'first'\nelse:\n    X = 'second'\nA = 2\n"
    assert value_of(scratch, text) == "first"


UNDECIDED = [
    ("import torch\nX = torch.cuda.device_count()", "what torch.cuda.device_count() gives", 2),
    ("import random\nX = random.random()", "what random.random() gives", 2),
    ("X = open('f').read()", "open is not followed", 1),
    ("X = Y + 1", "it raises NameError: k.py has no name 'Y'", None),
    ("def f():\n    global X\n    X = 2\nX = 1", "a function of k.py changes X", 5),
    ("def f():\n    while True:\n        pass\nX = f()", "more steps", 2),
    ("def f(n):\n    return f(n + 1)\nX = f(0)", "nested too deeply", 2),
    ("X = 2 ** (2 ** 40)", "longer than any", 1),
    ("X = [0] * (1 << 40)", "longer than any", 1),
    ("X = [i for i in range(1 << 40)]", "longer than any", 1),
    ("X = 1 // 0", "it raises ZeroDivisionError", None),
    ("import os\nX = os.environ.get('HOME')", "the environment variable HOME is read", 2),
    ("import os\nX = os.listdir('.')", "what os.listdir() gives", 2),
    ("import platform\nX = platform.node()", "what platform.node() gives", 2),
    ("import einops\nX = einops.x", "ModuleNotFoundError: there is no einops where kernels are built", None),
    ("import torch\nX = torch.version.hip == '6.0'", "what the version of ROCm equals", 2),
    ("X = __file__", "__file__ is not followed", 1),
    ("X = X", "it raises NameError", None),
    ("@decorated\ndef f():\n    return 1\nX = f()", "what @decorated makes of f", 4),
    ("class M(type): pass\nclass C(metaclass=M):\n    A = 1\nX = C.A", "the class C is made in a way", 4),
    ("import triton\n@triton.jit\ndef f():\n    return 1\nX = f()", "f is a Triton function", 5),
    ("def f(a):\n    pass\nX = f()", "the arguments of a call do not fit", None),
    ("from triton.runtime import driver\nX = driver.active.utils.get_device_properties(0)['x']", "utils.get_device", 2),
]


@pytest.mark.parametrize(("text", "reason", "line"), UNDECIDED)
def test_what_only_a_run_can_tell_is_undecided(scratch: Scratch, text: str, reason: str, line: int | None) -> None:
    with pytest.raises(Undecided) as info:
        value_of(scratch, text, world=HIP)
    assert reason in info.value.reason
    assert (info.value.at.line if info.value.at else None) == line


def test_nothing_of_the_build_machine_is_read(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "other")
    monkeypatch.setenv("UNSET", "other")
    assert value_of(scratch, "import os\nX = os.environ['SET'], os.environ.get('UNSET')") == ("1", None)
    assert "torch" not in sys.modules


def test_the_world_of_targets() -> None:
    def capability(arch: str) -> tuple[int, int]:
        return World(backend="hip", arch=arch, warp_size=64, triton_version="3").capability

    assert [capability(arch) for arch in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")] == [
        (9, 0),
        (9, 4),
        (9, 5),
        (11, 0),
        (12, 0),
    ]


def test_a_folder_without_triton_answers_nothing(scratch: Scratch) -> None:
    bare = World(backend="cuda", arch=90, warp_size=32, triton_version="3.9.0", triton_folder=None)
    with pytest.raises(Undecided, match="has 'dot' is not known"):
        value_of(scratch, "import triton.language as tl\nX = hasattr(tl, 'dot')", world=bare)
    empty = World(backend="cuda", arch=90, warp_size=32, triton_version="3.9.0", triton_folder=Path(scratch.root))
    assert value_of(scratch, "import triton\nX = hasattr(triton, 'dot')", world=empty) is False
