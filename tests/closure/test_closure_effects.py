"""What a module does to the kernel's objects when it is imported: kept or refused, never dropped in silence."""

from __future__ import annotations

import importlib
import sys

import pytest
from closure_scratch import HEADER, Scratch, kept

from kiln.closure.load import load

OBJECTS = """\
class Cfg:
    S = 2
    T = [1]


L = [2]
D = {"S": 2}
S = 2
"""

PUT = "def put(v=3):\n    L.append(v)\n    return 0\n"
CALLS = [
    "class O:\n    def __format__(self, s):\n        put()\n        return ''\nz = f'{O()}'",
    "class O:\n    def __str__(self):\n        put()\n        return ''\nz = str(O())",
    "class O:\n    def __hash__(self):\n        put()\n        return 1\nz = {O(): 1}",
    "class O:\n    def __bool__(self):\n        put()\n        return False\nwhile O(): pass",
    "class O:\n    def __bool__(self):\n        put()\n        return False\nif O(): pass",
    "class O:\n    def __del__(self): put()\no = O()\ndel o",
    "class M(type):\n    @classmethod\n    def __prepare__(m, n, b): return put() or {}\nclass Q(metaclass=M): pass",
    "if put(): pass",
    "assert put() == 0",
    "f = lambda a=put(): a",
    "z: put() = 1",
    "def f(a: put()): pass",
    "def f() -> put(): pass",
    "import collections\nd = collections.defaultdict(put)\nz = d['a']",
    "import dataclasses\n@dataclasses.dataclass\nclass C:\n    a: int = dataclasses.field(default_factory=put)\nC()",
    "import enum\nclass E(enum.Enum):\n    A = 0\n    @classmethod\n    def _missing_(cls, v): return cls(put())\nE(7)",
    "import enum\nclass E(enum.Enum):\n    A = 1\n    def __init__(self, v): put()",
    "class O:\n    def go(self): put()\ngetattr(O(), 'go')()",
    "class O:\n    def go(self): put()\ngetattr(O(), 'g' + 'o')()",
    "import operator\nclass O:\n    def go(self): put()\noperator.methodcaller('go')(O())",
    "HOOKS = []\ndef reg(f):\n    HOOKS.append(f)\n    return f\n@reg\ndef hook(): put()\nfor h in HOOKS: h()",
]
"""statements that call `put` without a word of it, or where a call is easily passed over"""

KEPT = [
    *((PUT + call, "L[-1]") for call in CALLS),
    ("for c in [Cfg]: c.S = 5", "Cfg.S"),
    ("alias = Cfg\nalias.S = 5", "Cfg.S"),
    ("a = b = Cfg\nb.S = 5", "Cfg.S"),
    ("a, b = Cfg, 1\na.S = 5", "Cfg.S"),
    ("(a := Cfg).S = 5", "Cfg.S"),
    ("if True:\n    z = Cfg\n    z.S = 5", "Cfg.S"),
    ("def f(c):\n    c.S = 5\nf(Cfg)", "Cfg.S"),
    (
        ("def f(c):\n    d = c\n    d.S = 5\nf(Cfg)"),
        "Cfg.S",
    ),
    (
        ("def f(c):\n    g(c)\ndef g(c):\n    setattr(c, 'S', 5)\nf(Cfg)"),
        "Cfg.S",
    ),
    ("def f(*cs):\n    for c in cs: c.S = 5\nf(Cfg)", "Cfg.S"),
    ("def f(**cs):\n    cs['c'].S = 5\nf(c=Cfg)", "Cfg.S"),
    ("def f(*cs):\n    for c in cs: c.S = 5\nf(*[Cfg])", "Cfg.S"),
    ("def f(c=Cfg):\n    c.S = 5\nf()", "Cfg.S"),
    ("def f():\n    Cfg.S = 5\nf()", "Cfg.S"),
    (
        ("def f():\n    def g():\n        Cfg.S = 5\n    g()\nf()"),
        "Cfg.S",
    ),
    ("def f():\n    return Cfg\nf().S = 5", "Cfg.S"),
    ("L2 = L\nL2.append(3)", "len(L)"),
    ("L2 = L\nL2 += [3]", "len(L)"),
    ("L2 = [L]\nL2[0].append(3)", "len(L)"),
    ("D2 = {'a': L}\nD2['a'].append(3)", "len(L)"),
    ("D2 = {}\nD2['a'] = L\nD2['a'].append(3)", "len(L)"),
    ("M = []\nM.append(L)\nM[0].append(3)", "len(L)"),
    ("list.append(L, 3)", "len(L)"),
    ("dict.update(D, S=5)", "D['S']"),
    ("D2 = D\nD2['S'] = 5", "D['S']"),
    ("D2 = D\ndel D2['S']", "len(D)"),
    ("setattr(Cfg, 'S', 5)", "Cfg.S"),
    ("alias = Cfg\nsetattr(alias, 'S', 5)", "Cfg.S"),
    ("type.__setattr__(Cfg, 'S', 5)", "Cfg.S"),
    ("t = Cfg.T\nt.append(3)", "len(Cfg.T)"),
    ("[setattr(c, 'S', 5) for c in [Cfg]]", "Cfg.S"),
    ("list(map(lambda c: setattr(c, 'S', 5), [Cfg]))", "Cfg.S"),
    ("(lambda c: setattr(c, 'S', 5))(Cfg)", "Cfg.S"),
    ("f = lambda c: setattr(c, 'S', 5)\nf(Cfg)", "Cfg.S"),
    ("def f(c):\n    c.S = 5\nlist(map(f, [Cfg]))", "Cfg.S"),
    (
        ("def f(c):\n    c.S = 5\nimport functools\nfunctools.partial(f, Cfg)()"),
        "Cfg.S",
    ),
    (
        ("def f(c):\n    c.S = 5\nimport functools\ng = functools.partial(f, Cfg)\ng()"),
        "Cfg.S",
    ),
    (
        ("def f(c):\n    c.S = 5\ng = f\ng(Cfg)"),
        "Cfg.S",
    ),
    (
        ("def f(c):\n    c.S = 5\nH = {'f': f}\nH['f'](Cfg)"),
        "Cfg.S",
    ),
    ("def f(c):\n    c.S = 5\nfor g in [f]: g(Cfg)", "Cfg.S"),
    (
        ("def deco(fn):\n    fn()\n    return fn\n@deco\ndef g():\n    Cfg.S = 5"),
        "Cfg.S",
    ),
    (
        ("def deco(c):\n    c.S = 5\n    return lambda f: f\n@deco(Cfg)\ndef g():\n    pass"),
        "Cfg.S",
    ),
    (
        ("def deco(c):\n    Cfg.S = 5\n    return c\n@deco\nclass X: pass"),
        "Cfg.S",
    ),
    ("class X:\n    Cfg.S = 5", "Cfg.S"),
    ("class X:\n    a = Cfg\nX.a.S = 5", "Cfg.S"),
    ("class X:\n    a = Cfg\n    a.S = 5", "Cfg.S"),
    (
        ("class X:\n    def __init__(self, c):\n        c.S = 5\nX(Cfg)"),
        "Cfg.S",
    ),
    (
        (
            "class X:\n"
            "    def __init__(self, c):\n"
            "        self.c = c\n"
            "    def go(self):\n"
            "        self.c.S = 5\n"
            "X(Cfg).go()"
        ),
        "Cfg.S",
    ),
    (
        ("class X:\n    @staticmethod\n    def go(c):\n        c.S = 5\nX.go(Cfg)"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __enter__(self):\n        Cfg.S = 5\n    def __exit__(self, *a): pass\nwith X(): pass"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __init__(self):\n        Cfg.S = 5\nX()"),
        "Cfg.S",
    ),
    (
        ("class Meta(type):\n    def __init__(c, *a):\n        Cfg.S = 5\nclass X(metaclass=Meta): pass"),
        "Cfg.S",
    ),
    (
        ("class Base:\n    def __init_subclass__(cls):\n        Cfg.S = 5\nclass X(Base): pass"),
        "Cfg.S",
    ),
    ("i = Cfg()\ni.T.append(3)", "len(Cfg.T)"),
    ("i = Cfg()\ntype(i).S = 5", "Cfg.S"),
    ("i = Cfg()\ni.__class__.S = 5", "Cfg.S"),
    (
        ("def init():\n    global S\n    S = 5\ninit()"),
        "S",
    ),
    (
        ("def init():\n    global S\n    S += 3\ninit()"),
        "S",
    ),
    (
        ("def init():\n    def inner():\n        global S\n        S = 5\n    inner()\ninit()"),
        "S",
    ),
    (
        ("def init():\n    global S\n    for S in (5,): pass\ninit()"),
        "S",
    ),
    (
        ("def init(f):\n    f()\ndef g():\n    global S\n    S = 5\ninit(g)"),
        "S",
    ),
    ("next(iter([Cfg])).S = 5", "Cfg.S"),
    ("[Cfg][0].S = 5", "Cfg.S"),
    ("(Cfg if 1 else 0).S = 5", "Cfg.S"),
    ("(Cfg or 0).S = 5", "Cfg.S"),
    ("getattr({'a': Cfg}, 'get')('a').S = 5", "Cfg.S"),
    ("def f(c):\n    yield c\nfor c in f(Cfg): c.S = 5", "Cfg.S"),
    ("import copy\nc = copy.copy([Cfg])[0]\nc.S = 5", "Cfg.S"),
    ("while Cfg.S < 5:\n    Cfg.S += 1", "Cfg.S"),
    ("import heapq\nheapq.heappush(L, 1)", "L[0]"),
    ("import operator\noperator.setitem(L, 0, 5)", "L[0]"),
    ("sub = Cfg\nclass Sub(sub): pass\nSub.T.append(3)", "len(Cfg.T)"),
    ("def f(c, /, *, k):\n    k.S = 5\nf(1, k=Cfg)", "Cfg.S"),
    ("a = b = c = []\na.append(Cfg)\nc[0].S = 5", "Cfg.S"),
    ("def get():\n    return L\nget().append(1)", "len(L)"),
    ("x, *rest = [1, L]\nrest[0].append(1)", "len(L)"),
    ("d = dict(a=L)\nfor k, v in d.items(): v.append(1)", "len(L)"),
    ("z = list(zip([L], [1]))\nfor a, b in z: a.append(b)", "len(L)"),
    (
        ("store = []\ndef reg(c):\n    store.append(c)\n    return c\nreg(Cfg)\nstore[0].S = 5"),
        "Cfg.S",
    ),
    (
        ("store = []\ndef reg(c):\n    store.append(c)\n    return c\nreg(Cfg)\nfor s in store: s.S = 5"),
        "Cfg.S",
    ),
    (
        ("def swap(a, b):\n    a, b = b, a\n    a.S = 5\nswap(0, Cfg)"),
        "Cfg.S",
    ),
    (
        ("def rec(c, n):\n    if n: rec(c, n - 1)\n    else: c.S = 5\nrec(Cfg, 3)"),
        "Cfg.S",
    ),
    ("list(map(setattr, [Cfg], ['S'], [5]))", "Cfg.S"),
    ("S2 = S\ntry_ = [S2]\nS = 5", "S"),
    ("assert not setattr(Cfg, 'S', 5)", "Cfg.S"),
    ("x = [1, setattr(Cfg, 'S', 5)]", "Cfg.S"),
    ("def f(a, b=setattr(Cfg, 'S', 5)): pass", "Cfg.S"),
    ("x: int = setattr(Cfg, 'S', 5)", "Cfg.S"),
    ("del S\nS = 5", "S"),
    (
        ("b = L\nb.append([])\nL[1].append(2)\nx = L[1]\nx.append(3)"),
        "len(L[1])",
    ),
    (
        ("a = []\nb = a\nb.append(Cfg)\na[0].S = 5"),
        "Cfg.S",
    ),
    ("t = Cfg.T\nt.append(L)\nCfg.T[1].append(1)", "len(L)"),
    ("b = (a := [])\na.append(Cfg)\nb[0].S = 5", "Cfg.S"),
    (
        ("class X:\n    def __call__(self, c):\n        c.S = 5\nX()(Cfg)"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __call__(self, c):\n        c.S = 5\nx = X()\nx(Cfg)"),
        "Cfg.S",
    ),
    (
        ("class X:\n    c = Cfg\n    def __setitem__(self, k, v):\n        self.c.S = v\nX()['S'] = 5"),
        "Cfg.S",
    ),
    (
        ("class X:\n    @property\n    def p(self):\n        Cfg.S = 5\nX().p"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __iadd__(self, n):\n        Cfg.S = n\n        return self\nx = X()\nx += 5"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __getattr__(self, n):\n        Cfg.S = 5\nX().foo"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __iter__(self):\n        Cfg.S = 5\n        return iter([])\nfor _ in X(): pass"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __set_name__(self, o, n):\n        Cfg.S = 5\nclass Y:\n    x = X()"),
        "Cfg.S",
    ),
    (
        ("class X:\n    def __add__(self, c):\n        c.S = 5\nX() + Cfg"),
        "Cfg.S",
    ),
    ("kernel_cfg = {'c': Cfg}\nkernel_cfg.get('c').S = 5", "Cfg.S"),
]
"""statements after OBJECTS, and an expression of the kernel whose value they change"""

REFUSED = [
    (
        ("import contextlib\nwith contextlib.nullcontext(Cfg) as c:\n    c.S = 5"),
        "Cfg.S",
    ),
    ("vars(Cfg)['T'].append(2)", "len(Cfg.T)"),
    ("Cfg.__dict__['T'].append(2)", "len(Cfg.T)"),
    ("match Cfg:\n    case c:\n        c.S = 5", "Cfg.S"),
    (
        ("async def f():\n    Cfg.S = 5\ntry:\n    f().send(None)\nexcept StopIteration: pass"),
        "Cfg.S",
    ),
    ("globals()['S'] = 5", "S"),
    ("globals().update(S=5)", "S"),
    ("g = globals()\ng['S'] = 5", "S"),
    ("for n in ('S',): globals()[n] = 5", "S"),
    ("vars()['S'] = 5", "S"),
    ("exec('S = 5')", "S"),
    ("exec('Cfg.S = 5')", "Cfg.S"),
    ("eval('setattr(Cfg, \"S\", 5)')", "Cfg.S"),
    ("import sys\nsys.modules[__name__].S = 5", "S"),
    ("import sys\nsetattr(sys.modules[__name__], 'S', 5)", "S"),
    ("import importlib\nimportlib.import_module(__name__).S = 5", "S"),
    ("__import__(__name__).S = 5", "S"),
    ("import sys\nsys.modules[__name__].Cfg.S = 5", "Cfg.S"),
    ("import sys\nsys.modules[__name__].__dict__['S'] = 5", "S"),
    ("import sys\nm = sys.modules[__name__]\nm.S = 5", "S"),
    ("import sys\nm = sys.modules\nm[__name__].S = 5", "S"),
    (
        ("import sys\ndef put(m):\n    m.S = 5\nput(sys.modules[__name__])"),
        "S",
    ),
    ("from sys import modules as ms\nms[__name__].L.append(3)", "len(L)"),
    (
        ("def f():\n    import k as me\n    me.S = 5\nf()"),
        "S",
    ),
    ("def f(a):\n    a['S'] = 5\nf(globals())", "S"),
]
"""the same, for changes that only a run can follow or that need what a kernel must not need"""

KEPT_ACROSS: list[tuple[dict[str, str], str]] = [
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\ncfg.S = 5"},
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\ncfg.configure(5)"},
        "cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "k.py": "import cfg\nfrom cfg import configure\nconfigure(5)",
        },
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\ncfg.Cfg.S = 5"},
        "cfg.Cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "k.py": "import cfg\nfrom cfg import Cfg as A\nA.S = 5",
        },
        "cfg.Cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "k.py": "from cfg import Cfg, Cfg as A\nb = A\nb.S = 5",
        },
        "Cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "from cfg import Cfg, put\nput(Cfg, 5)"},
        "Cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "from cfg import L\nL.append(1)"},
        "len(L)",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "h.py": ("import cfg\ndef go():\n    cfg.S = 5\n    cfg.Cfg.S = 5\n"),
            "k.py": "import cfg\nfrom h import go\ngo()",
        },
        "cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "h.py": ("import cfg\ndef go():\n    cfg.S = 5\n    cfg.Cfg.S = 5\n"),
            "k.py": "import cfg\nimport h\nh.go()",
        },
        "cfg.Cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "h.py": (
                "import cfg\ndef go():\n    cfg.S = 5\n    cfg.Cfg.S = 5\nclass G:\n    def __init__(self): go()\n"
            ),
            "k.py": "import cfg\nimport h\nh.G()",
        },
        "cfg.Cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "h.py": "from cfg import Cfg\nA = Cfg\n",
            "k.py": "from cfg import Cfg\nimport h\nh.A.S = 5",
        },
        "Cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "h.py": "from cfg import Cfg\nALL = [Cfg]\n",
            "k.py": "from cfg import Cfg\nfrom h import ALL\nfor a in ALL: a.S = 5",
        },
        "Cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "h.py": "from cfg import Cfg\ndef get(): return Cfg\n",
            "k.py": "from cfg import Cfg\nfrom h import get\nget().S = 5",
        },
        "Cfg.S",
    ),
    (
        {
            "cfg.py": ("<CFG>def init():\n    Cfg.S = 5\ninit()\n"),
            "k.py": "from cfg import Cfg",
        },
        "Cfg.S",
    ),
    (
        {"cfg.py": "<CFG>A = Cfg\nA.S = 5\n", "k.py": "import cfg"},
        "cfg.Cfg.S",
    ),
    (
        {
            "pk/__init__.py": ("from .cfg import Cfg\nfrom . import cfg\ncfg.S = 5\nCfg.S = 6\n"),
            "pk/cfg.py": "<CFG>",
            "k.py": "from pk import Cfg",
        },
        "Cfg.S",
    ),
    (
        {
            "pk/__init__.py": ("from .cfg import Cfg\nfrom . import cfg\nAL = Cfg\nAL.S = 6\n"),
            "pk/cfg.py": "<CFG>",
            "k.py": "import pk",
        },
        "pk.Cfg.S",
    ),
    (
        {"k.py": "t = tl\nORIG = tl.store\ntl.store = ORIG\nS = 2"},
        "S",
    ),
]

REFUSED_ACROSS: list[tuple[dict[str, str], str]] = [
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\nc = cfg\nc.S = 5"},
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\nsetattr(cfg, 'S', 5)"},
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\nvars(cfg)['S'] = 5"},
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\ncfg.__dict__['S'] = 5"},
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\ncfg.__dict__.update(S=5)"},
        "cfg.S",
    ),
    (
        {
            "cfg.py": "<CFG>",
            "k.py": "import cfg\nfor n in ['S']: setattr(cfg, n, 5)",
        },
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\ndef f(m): m.S = 5\nf(cfg)"},
        "cfg.S",
    ),
    (
        {"cfg.py": "<CFG>", "k.py": "import cfg\nfor m in [cfg]: m.S = 5"},
        "cfg.S",
    ),
]
"""files, of which <CFG> stands for CONFIG, and an expression as above"""

EVERYDAY = [
    "__all__ = ['kernel', S]",
    "__all__ = [n for n in globals() if not n.startswith('_')]",
    "REGISTRY['x'] = kernel",
    "REGISTRY[S] = (kernel, Cfg)",
    "REGISTRY.update(kernel=kernel, s=S, w=W)",
    "wrapped = triton.autotune(configs=[], key=[])(helper)",
    "log.info('loaded %s %s', Cfg, L)",
    "logging.getLogger('x').warning('x', L)",
    "print(Cfg, L, D, S)",
    "assert len(L) == 1 and Cfg.S == 2, (L, D)",
    ("lib.define('op(Tensor x) -> Tensor')\nlib.impl('op', lambda x: kernel[(1,)](x, N=Cfg.S), 'CUDA')"),
    (
        "@torch.library.custom_op('x::y', mutates_args=())\n"
        "def op(x: torch.Tensor) -> torch.Tensor:\n"
        "    L.append(1)\n"
        "    return x\n"
        "@op.register_fake\n"
        "def _(x):\n"
        "    return x"
    ),
    "torch.library.register_fake('x::y')(lambda x: x)",
    "torch.fx.wrap('kernel')",
    "TABLE = torch.tensor(L, device='cuda')",
    "ARR = np.array(L)\nARR[0] = 5",
    "third_register(kernel)",
    "third_register('a', helper, S, C, DT)",
    ("@third_register\ndef launch(x, cfg=Cfg):\n    kernel[(1,)](x, N=cfg.S)"),
    ("def launch(x):\n    Cfg.S = 5\n    L.append(3)\n    global S\n    S = 1"),
    (
        "class Op(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        L.append(1)\n"
        "        return kernel[(1,)](x, N=Cfg.S)\n"
        "apply = Op.apply"
    ),
    "OTHER = sorted(L)\nOTHER.append(3)",
    "OTHER = dict(D)\nOTHER['S'] = 9",
    "OTHER = L + [1]\nOTHER.append(1)",
    "OTHER = [v for v in L]\nOTHER.append(1)",
    "OTHER = L.copy()\nOTHER.append(1)",
    "OTHER = Cfg()\nOTHER.S = 7\nOTHER.device = torch.device('cuda')",
    ("V = W\nV += 1\ntorch.foo(V)\nthird_register(V)"),
    "for s in L:\n    REGISTRY[s] = torch.empty(s)",
    ("if torch.cuda.is_available():\n    REGISTRY['y'] = kernel\n    print(Cfg.S)"),
    ("try:\n    import flash\n    HAS = True\nexcept ImportError:\n    HAS = False"),
    "os.environ['X'] = str(S)\nos.environ.setdefault('Y', '1')",
    "import sys\nsys.path.insert(0, os.path.dirname(__file__))",
    "torch.backends.cuda.matmul.allow_tf32 = True",
    ("def reads(cfg, xs):\n    y = cfg.S\n    return [x + y for x in xs]\nVALUES = reads(Cfg, L)"),
    (
        "def run():\n"
        "    x = torch.empty(Cfg.S)\n"
        "    kernel[(1,)](x, N=Cfg.S)\n"
        "    torch.testing.assert_close(x, torch.tensor(L))\n"
        "run()"
    ),
    "kernel.warmup(torch.float32, N=Cfg.S, grid=(1,))",
    "kernel[(1,)](torch.empty(L[0]), N=Cfg.S)",
    ("from dataclasses import dataclass\n@dataclass\nclass Opt:\n    cfg: object = Cfg\n    n: int = S"),
    ("import functools\n@functools.lru_cache(maxsize=None)\ndef tables(n):\n    return [n, *L]"),
    "from enum import Enum\nclass E(Enum):\n    A = S",
    "globals()[f'launch_{S}'] = None",
    "for n in ('a', 'b'): globals()[f'launch_{n}'] = torch.zeros(1)",
    "warn = __import__('warnings')",
    "M = sys.modules if False else None",
    "if __name__ == '__main__':\n    Cfg.S = 7",
    "launchers = {d: functools_partial for d in D}",
    "x = [torch.zeros(1) for _ in range(S)]\nx.append(L)",
    "s2 = S\ns2 += 4",
    "import json\njson.dumps(D)\njson.loads('{}').update(D)",
    "key = tuple(L)\nhash(key)\nid(Cfg)",
    "kernel_name = Cfg.__name__.lower()",
    "triton.Config({'x': L})",
    (
        "do_bench = triton.testing.do_bench\n"
        "best = triton.testing.perf_report([triton.testing.Benchmark(x_names=L, args=D)])"
    ),
    (
        "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['n'], x_vals=L, args=D))\n"
        "def bench(n):\n"
        "    return L.pop()"
    ),
    "op = torch.compile(lambda: L.append(1))",
]
"""statements after KERNEL that say nothing of what it is compiled from"""

KERNEL = """
import torch, logging, os, numpy as np
from third import register as third_register
class Cfg:
    S = 2
    T = [1]
L = [2]
D = {'S': 2}
S = 2
C = tl.constexpr(3)
DT = tl.float16
W = Cfg.S
log = logging.getLogger(__name__)
lib = torch.library.Library('x', 'DEF')
REGISTRY = {}
@triton.jit
def helper(x):
    return x + Cfg.S + L[0] + D['S'] + S + W
@triton.autotune(configs=[triton.Config({'N': S}, num_warps=n) for n in (1, 2)], key=[])
@triton.jit
def kernel(x, N: tl.constexpr):
    tl.store(x, helper(x).to(DT) + C)
"""

CONFIG = (
    OBJECTS
    + """

def configure(n):
    global S
    S = n


def put(c, n):
    c.S = n
"""
)


@pytest.fixture
def imported(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """A scratch project that Python itself can import."""
    monkeypatch.syspath_prepend(str(scratch.root))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return scratch


def value(project: Scratch, use: str) -> object:
    """What Python gives for `use` when it imports the whole of k.py."""
    names = [".".join(path.relative_to(project.root).with_suffix("").parts) for path in project.root.rglob("*.py")]
    names = [name.removesuffix(".__init__") for name in names]
    importlib.invalidate_caches()
    try:
        return eval(use, vars(importlib.import_module("k")))
    finally:
        for name in names:
            sys.modules.pop(name, None)


def body(use: str) -> str:
    return f"\n@triton.jit\ndef kernel(x):\n    x + {use}\n"


@pytest.mark.parametrize(("statements", "use"), KEPT)
def test_keeps_changes(imported: Scratch, statements: str, use: str) -> None:
    """The slice gives what the whole file gives."""
    imported.write(HEADER + OBJECTS + statements + "\n" + body(use))
    assert eval(use, load(imported.cut()).fn.__globals__) == value(imported, use)


@pytest.mark.parametrize(("statements", "use"), REFUSED)
def test_refuses_changes(imported: Scratch, statements: str, use: str) -> None:
    imported.write(HEADER + OBJECTS + statements + "\n" + body(use))
    value(imported, use)
    message = imported.refusal()
    assert "remedy: " in message
    assert "which may change" in message or "is bound or changed under a condition" in message


def across(project: Scratch, files: dict[str, str], use: str) -> None:
    texts = {name: text.replace("<CFG>", CONFIG) for name, text in files.items()}
    project.files({**texts, "k.py": HEADER + texts["k.py"] + "\n" + body(use)})


@pytest.mark.parametrize(("files", "use"), KEPT_ACROSS)
def test_keeps_changes_across_files(imported: Scratch, files: dict[str, str], use: str) -> None:
    across(imported, files, use)
    assert eval(use, load(imported.cut()).fn.__globals__) == value(imported, use)


@pytest.mark.parametrize(("files", "use"), REFUSED_ACROSS)
def test_refuses_changes_across_files(imported: Scratch, files: dict[str, str], use: str) -> None:
    across(imported, files, use)
    value(imported, use)
    assert "remedy: " in imported.refusal()


def test_a_change_that_needs_torch_names_its_line(scratch: Scratch) -> None:
    """Who reads the message sees which statement is in the way, and of what."""
    scratch.write(HEADER + "import torch\n" + OBJECTS + "D['S'] = torch.cuda.device_count()\n" + body("D['S']"))
    message = scratch.refusal()
    assert message.startswith("k.py:12:10: the kernel needs 'torch' at compile time")
    assert "torch.cuda.device_count, reached by line 12 of k.py, which may change D" in message
    assert "move line 12 of k.py to a file that the kernel does not need" in message


@pytest.mark.parametrize("statements", EVERYDAY)
def test_everyday_statements_are_dropped(scratch: Scratch, statements: str) -> None:
    scratch.write(HEADER + KERNEL)
    plain = scratch.cut()
    scratch.write(HEADER + KERNEL + statements + "\n")
    assert kept(scratch.cut()) == kept(plain)
    assert scratch.cut().digest == plain.digest
