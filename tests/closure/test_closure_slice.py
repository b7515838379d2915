"""What a slice keeps of a project, at which lines, and what is said when it cannot be cut."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from closure_scratch import HEADER, Scratch, kept

from kiln.closure.function_parameters import FunctionParameter
from kiln.closure.slice import cut
from kiln.errors import ClosureError, Position

KERNEL = """
@triton.jit
def kernel(x, N: tl.constexpr):
    {body}
"""


def with_body(body: str, before: str = "", after: str = "") -> str:
    return HEADER + textwrap.dedent(before) + KERNEL.format(body=body) + textwrap.dedent(after)


KEPT = {
    "nothing but the kernel": (
        with_body("tl.store(x, N)", "import torch\nimport os\nSIZE = 1\ndef launch(x): kernel[(1,)](x, N=SIZE)\n"),
        "triton tl kernel",
    ),
    "a constant and what it is computed from": (
        with_body("tl.store(x, S)", "import math\nB = 3\nS: tl.constexpr = tl.constexpr(math.ceil(B / 2))\nT = 1\n"),
        "triton tl math B S kernel",
    ),
    "a helper and a plain function that computes a constant": (
        with_body(
            "tl.store(x, helper(N))",
            """
            def twice(n):
                return 2 * n
            W = tl.constexpr(twice(4))
            @triton.jit
            def helper(n):
                return n + W
            @triton.jit
            def other(n):
                return n
            """,
        ),
        "triton tl twice W helper kernel",
    ),
    "a default given by name and an alias of a dtype": (
        HEADER + "D = tl.float16\nL = 4\n@triton.jit\ndef kernel(x, y=L):\n    tl.store(x, tl.zeros((1,), D))\n",
        "triton tl D L kernel",
    ),
    "triton imported in other words": (
        "from triton import jit as j, autotune\nfrom triton.language import constexpr as C, store as put\n"
        "import triton.language.extra\n@j\ndef kernel(x, N: C):\n    put(x, N)\n",
        "j C put kernel",
    ),
    "later changes of a constant": (
        with_body("tl.store(x, T[0] + S)", "S = 1\nT = [S]\nU = []\n", "S += 1\nT.append(2)\nU.append(3)\nT[0] = 5\n"),
        "triton tl S T kernel",
    ),
    "changes by a loop and by a function": (
        with_body(
            "tl.store(x, T[0] + G)",
            "T = {}\nG = 0\ndef init():\n    global G\n    G = 7\ndef fill(t):\n    t[0] = 1\n",
            "for i in range(3):\n    T[i] = i\ninit()\nfill(T)\nprint(T)\n",
        ),
        "triton tl T G i init fill kernel",
    ),
    "tuning decorators are not followed": (
        HEADER
        + "import torch\nCONFIGS = [triton.Config({'N': n}) for n in (1, 2)]\n"
        + "@triton.autotune(configs=CONFIGS, key=['n'], prune_configs_by=torch)\n"
        + "@triton.heuristics({'E': lambda a: a['n'] % 2 == 0})\n"
        + "@triton.jit(repr=torch.name, launch_metadata=torch.x, do_not_specialize=['n'])\n"
        + "def kernel(x, n, N: tl.constexpr, E: tl.constexpr):\n    tl.store(x, n)\n",
        "triton tl kernel",
    ),
    "local names hide the module's": (
        with_body(
            "for i in range(N):\n        a = i\n        tl.store(x + a, i)",
            "import torch\na = torch.a\ni = torch.i\nx = torch.x\n",
        ),
        "triton tl kernel",
    ),
    "the live branch of a condition that is decided": (
        with_body(
            "tl.store(x, A + B)",
            """
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                import torch
                A = torch.a
            else:
                A = 1
            if False:
                B = 1
            elif True:
                B = 2
            if __name__ == "__main__":
                A = 3
            """,
        ),
        "triton tl A B kernel",
    ),
    "what only another branch needs may be undecided": (
        with_body("tl.store(x, N)", "import sys\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n"),
        "triton tl kernel",
    ),
    "a class and what it reads": (
        with_body(
            "tl.store(x, S)",
            "from dataclasses import dataclass\n@dataclass\nclass Config:\n    size: int = 4\n"
            "S = tl.constexpr(Config().size)\n",
        ),
        "triton tl dataclass Config S kernel",
    ),
    "several modules of one package in one statement": (
        "import triton.language.extra, triton\n@triton.jit\ndef kernel(x):\n    triton.language.store(x, 1)\n",
        "triton kernel",
    ),
    "a jitted alias": (
        HEADER + "def f(x):\n    tl.store(x, 1)\nkernel = triton.jit(f, repr=print)\n",
        "triton tl f kernel",
    ),
    "a function jitted in place": (
        HEADER + "def kernel(x):\n    tl.store(x, 1)\nkernel = triton.jit(kernel)\n",
        "triton tl kernel",
    ),
    "a tuned alias": (
        HEADER
        + "import torch\n@triton.jit\ndef f(x):\n    tl.store(x, 1)\n"
        + "kernel = triton.autotune(configs=torch.configs, key=[])(f)\n",
        "triton tl f kernel",
    ),
    "star imports that bring nothing else": (
        with_body(
            "tl.store(x, S + max(1, 2))",
            "from late import *\nS = tl.constexpr(2)\nfrom early import *\n",
        ),
        "triton tl S kernel",
    ),
    "postponed annotations of plain functions are not evaluated": (
        "from __future__ import annotations\nimport torch\n"
        + with_body(
            "tl.store(x, S)", "def size(t: torch.Tensor | None = None) -> torch.Size:\n    return 4\nS = size()\n"
        ),
        "annotations triton tl size S kernel",
    ),
}


@pytest.mark.parametrize(("text", "names"), KEPT.values(), ids=KEPT)
def test_keeps(scratch: Scratch, text: str, names: str) -> None:
    scratch.write("S = 1\n", "late.py")
    scratch.write("import triton.language as tl\nimport triton\n_S = 2\n", "early.py")
    scratch.write(text)
    assert kept(scratch.cut()) == set(names.split())


ACROSS = {
    "a name from a file beside": (
        {
            "k.py": with_body("tl.store(x, f(N))", "from h import f\n"),
            "h.py": HEADER + "import torch\nf = abs\ng = 1\n",
        },
        "triton tl f kernel h.py:f",
    ),
    "from a file below the root": (
        {
            "k.py": with_body("tl.store(x, C)", "from lib.consts import C, D\n"),
            "lib/consts.py": "import torch\nBASE = 2\nC = BASE + 1\nD = torch.d\n",
        },
        "triton tl C kernel lib/consts.py:BASE lib/consts.py:C",
    ),
    "one attribute of a module": (
        {
            "k.py": with_body("tl.store(x, c.S)", "import lib.cfg as c\n"),
            "lib/cfg.py": "import torch\nS = 1\nT = torch.t\n",
        },
        "triton tl c kernel lib/cfg.py:S",
    ),
    "a dotted path through packages": (
        {
            "k.py": with_body("tl.store(x, lib.deep.cfg.S)", "import lib.deep.cfg\nimport lib.other\n"),
            "lib/deep/__init__.py": "import torch\n",
            "lib/deep/cfg.py": "S = 1\nT = 2\n",
            "lib/other.py": "import torch\n",
        },
        "triton tl lib kernel lib/deep/cfg.py:S",
    ),
    "triton handed on by the project": (
        {
            "k.py": "from compat import triton, tl, jit\n@jit\ndef kernel(x, N: tl.constexpr):\n    tl.store(x, N)\n",
            "compat.py": "import torch, triton\nimport triton.language as tl\njit = triton.jit\n",
        },
        "tl jit kernel compat.py:triton compat.py:tl compat.py:jit",
    ),
    "a package's own name before a module of it": (
        {
            "k.py": with_body("tl.store(x, f(1) + m.S)", "from lib import f, m\n"),
            "lib/__init__.py": "from .impl import f\n",
            "lib/impl.py": HEADER + "@triton.jit\ndef f(a):\n    return a\n",
            "lib/m.py": "S = 2\n",
        },
        "triton tl f m kernel lib/__init__.py:f lib/impl.py:triton lib/impl.py:f lib/m.py:S",
    ),
    "an undecided change of what is not read": (
        {
            "k.py": with_body("tl.store(x, c.S)", "import os\nimport c\nif os.name:\n    c.T = 2\n"),
            "c.py": "S = 1\nT = 1\n",
        },
        "triton tl c kernel c.py:S",
    ),
    "a change that a file makes to another": (
        {
            "k.py": with_body("tl.store(x, f())", "import cfg\nfrom h import f\ncfg.S = 4\ncfg.T = 5\n"),
            "h.py": HEADER + "import cfg\n@triton.jit\ndef f():\n    return cfg.S\n",
            "cfg.py": "S = 1\nT = 1\n",
        },
        "triton tl cfg f kernel h.py:triton h.py:cfg h.py:f cfg.py:S",
    ),
}


@pytest.mark.parametrize(("files", "names"), ACROSS.values(), ids=ACROSS)
def test_keeps_across_files(scratch: Scratch, files: dict[str, str], names: str) -> None:
    scratch.files(files)
    closure = scratch.cut()
    assert kept(closure) == set(names.split())
    assert closure.modules[0].file == "k.py"
    assert [scratch.root / module.file for module in closure.modules] == list(closure.sources)


def test_relative_imports(scratch: Scratch) -> None:
    scratch.files(
        {
            "ops/norm/k.py": with_body(
                "tl.store(x, f(N) + c.S + P)", "from .h import f\nfrom .. import c\nfrom ..p.q import P\n"
            ),
            "ops/norm/h.py": HEADER + "from . import own\n@triton.jit\ndef f(n):\n    return n + own.O\n",
            "ops/norm/own.py": "O = 1\n",
            "ops/c.py": "S = 1\n",
            "ops/p/q.py": "P = 1\n",
        }
    )
    closure = scratch.cut("ops/norm/k.py")
    assert [module.file for module in closure.modules] == [
        "ops/norm/k.py",
        "ops/c.py",
        "ops/norm/h.py",
        "ops/norm/own.py",
        "ops/p/q.py",
    ]
    assert closure.modules[0].name == "kiln_slice.ops.norm.k"
    assert "from kiln_slice.ops.norm.h import f as f" in closure.modules[0].text


def test_lines_stay_where_they_were(scratch: Scratch) -> None:
    """Statements keep their lines, decorators theirs, and what shares a line with something dropped loses only that."""
    scratch.write(
        """\
        # a comment
        import torch, triton; import triton.language as tl
        A = 1; junk = torch.x; B = [
            A,
        ]; C = 3
        if True:
            # inside
            D = '''
        text'''
            if 1: E = 5; F = torch.y
        else:
            D = 0


        @triton.autotune(
            configs=torch.configs,
            key=[],
        )

        @triton.jit(
            noinline=True,
            repr=torch.repr,
        )
        # between
        def kernel(x):
            '''A docstring.'''
            # a comment
            tl.store(x, A + B[0] + C + E)
            tl.store(x, D)  # at the end

        # after
        """
    )
    expected = """\

        import triton; import triton.language as tl
        A = 1; B = [A]

        C = 3
        if True:

            D = '''
        text'''
            E = 5









        @triton.jit(noinline=True)




        def kernel(x):
            '''A docstring.'''
            # a comment
            tl.store(x, A + B[0] + C + E)
            tl.store(x, D)
        """
    assert scratch.cut().modules[0].text == textwrap.dedent(expected)


def test_text_of_every_kind_of_file(scratch: Scratch) -> None:
    """Line ends, byte order marks, encodings, tabs and wide characters do not move or change what is kept."""
    text = (
        HEADER
        + "GREEK = 'αβ'; OTHER = 1\nif True:\n\tTAB = 2\n"
        + "@triton.jit\ndef kernel(x):\n    tl.store(x, TAB + len(GREEK))\n"
    )
    path = scratch.write(text)
    plain = scratch.cut()
    assert "GREEK = 'αβ'\n" in plain.modules[0].text
    for content in (
        text.replace("\n", "\r\n").encode(),
        text.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + text.encode(),
        ("# coding: iso-8859-7\n" + text).encode("iso-8859-7"),
    ):
        path.write_bytes(content)
        assert scratch.cut().digest == plain.digest


def test_parameters(scratch: Scratch) -> None:
    scratch.write(
        "from triton.language import constexpr as const\n"
        + HEADER
        + "@triton.jit\n"
        + "def kernel(a, b: tl.int64, C: const, D: 'tl.constexpr' = 1, *, e=2, F: tl.constexpr):\n    pass\n"
    )
    closure = scratch.cut()
    assert closure.position == Position(file="k.py", line=5)
    assert closure.parameters == tuple(
        FunctionParameter(name=name, is_constexpr=constexpr, has_default=default, annotation=annotation)
        for name, constexpr, default, annotation in (
            ("a", False, False, None),
            ("b", False, False, "tl.int64"),
            ("C", True, False, "const"),
            ("D", True, True, "'tl.constexpr'"),
            ("e", False, True, None),
            ("F", True, False, "tl.constexpr"),
        )
    )
    assert pickle.loads(pickle.dumps(closure)) == closure


def test_a_project_reached_through_links(tmp_path: Path) -> None:
    real = Scratch(tmp_path / "real")
    real.write(with_body("tl.store(x, C)", "from h import C\n"), "kernels/k.py")
    real.write("C = 1\n", "kernels/h.py")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    expected = real.cut("kernels/k.py")
    for root, source in (("link", "link"), ("link", "real"), ("real", "link")):
        found = cut(tmp_path / source / "kernels/k.py", "kernel", root=tmp_path / root, where=None)
        assert (found.digest, found.position) == (expected.digest, expected.position)


def test_cut_imports_nothing_heavy_and_runs_nothing(scratch: Scratch) -> None:
    """A null build cuts every kernel: Triton and the user's modules stay out, and bytecode is not written."""
    scratch.write(with_body("tl.store(x, C)", "from h import C\nraise SystemExit('executed')\n"))
    scratch.write("C = 1\nprint('executed')\n", "h.py")
    script = """
import sys
from pathlib import Path
from kiln.closure.bind import bind
from kiln.closure.slice import cut
cut(Path("k.py").absolute(), "kernel", root=Path.cwd(), where=None)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"triton", "jinja2", "elftools", "msgpack", "k", "h"}))
"""
    tools = Path(__file__).parents[2] / "tools"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=scratch.root,
        env={"PYTHONPATH": str(tools)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert sorted(path.name for path in scratch.root.iterdir()) == ["h.py", "k.py"]


def test_an_edit_in_the_same_process_is_seen(scratch: Scratch) -> None:
    assert scratch.digest(with_body("tl.store(x, 1)")) != scratch.digest(with_body("tl.store(x, 2)"))


HERE = Position(file="kernels.yaml", line=9, column=5)

REFUSED = {
    "a name that is nearly there": (
        {"k.py": with_body("tl.store(x, BLOK)", "BLOCK = 1\n")},
        "k.py:7:17: the name 'BLOK' is not defined in k.py",
        "did you mean 'BLOCK'?",
    ),
    "a name that is nowhere in a helper's file": (
        {
            "k.py": with_body("tl.store(x, f())", "from h import f\n"),
            "h.py": HEADER + "@triton.jit\ndef f():\n    return  zz\n",
        },
        "h.py:5:13: the name 'zz' is not defined in h.py",
        "reached by k.py:kernel -> k.py:f -> h.py:f",
    ),
    "torch": (
        {"k.py": with_body("tl.store(x, torch.zeros(1).item())", "import torch\n")},
        "k.py:7:17: the kernel needs 'torch' at compile time",
        "write the value that torch.zeros stands for into the file",
    ),
    "a module that reads the machine": (
        {"k.py": with_body("tl.store(x, S)", "import os\nS = tl.constexpr(int(os.environ['S']))\n")},
        "k.py:4:22: the kernel depends on the environment variable S, which kernels.yaml does not declare",
        'add `environment: {S: "..."}`',
    ),
    "Triton's driver": (
        {"k.py": with_body("tl.store(x, S)", "S = triton.runtime.driver.active.get_current_device()\n")},
        "k.py:3:5: the kernel needs 'triton.runtime.driver.active.get_current_device' at compile time: it asks",
        "",
    ),
    "Triton's driver by an import inside a function": (
        {
            "k.py": with_body(
                "tl.store(x, S)",
                "def hip():\n    from triton.runtime import driver\n    return driver.active\nS = hip()\n",
            )
        },
        "k.py:5:12: the kernel needs 'triton.runtime.driver.active' at compile time",
        "driver.active, reached by k.py:kernel -> k.py:S -> k.py:hip",
    ),
    "Triton's driver by an alias": (
        {"k.py": with_body("tl.store(x, S)", "t = triton\nS = t.runtime.driver.active.get_current_device()\n")},
        "k.py:4:5: the kernel needs 'triton.runtime.driver.active.get_current_device' at compile time",
        "",
    ),
    "Triton as a whole inside a function": (
        {
            "k.py": with_body(
                "tl.store(x, S)", "def f():\n    import triton\n    return triton.runtime.driver.active\nS = f()\n"
            )
        },
        "k.py:5:12: the kernel needs 'triton.runtime.driver.active' at compile time: it asks the machine",
        "",
    ),
    "a module behind a module": (
        {"k.py": with_body("tl.store(x, S)", "import logging\nS = len(logging.os.environ['PATH'])\n")},
        "k.py:4:9: the kernel needs 'logging.os.environ' at compile time: it can read the machine",
        "",
    ),
    "a module behind a module that computes": (
        {"k.py": with_body("tl.store(x, S)", "import dataclasses as d\nS = len(d.sys.path)\n")},
        "k.py:4:9: the kernel needs 'dataclasses.sys.path' at compile time: it is not among the names",
        "",
    ),
    "a module behind a module, by an import of it": (
        {"k.py": with_body("tl.store(x, S)", "from dataclasses import sys as s\nS = len(s.path)\n")},
        "k.py:4:9: the kernel needs 'dataclasses.sys.path' at compile time: it is not among the names",
        "",
    ),
    "a module behind a module inside a function": (
        {
            "k.py": with_body(
                "tl.store(x, S)", "def f():\n    import enum as e\n    return len(e.bltns.open('x').read())\nS = f()\n"
            )
        },
        "k.py:5:16: the kernel needs 'enum.bltns.open' at compile time: it is not among the names",
        "e.bltns.open, reached by k.py:kernel -> k.py:S -> k.py:f",
    ),
    "a module of Python as a value": (
        {"k.py": with_body("tl.store(x, S)", "import math\nS = len(str(math))\n")},
        "k.py:4:13: the kernel needs 'math' at compile time: a module is used as a value",
        "read the names that are needed off the module",
    ),
    "the globals of a function of Python's": (
        {"k.py": with_body("tl.store(x, S)", "import functools\nS = functools.wraps.__globals__['x']\n")},
        "k.py:4:5: __globals__ tells of the source's text or place",
        "",
    ),
    "what differs from run to run": (
        {"k.py": with_body("tl.store(x, S)", "S = hash('x')\n")},
        "k.py:3:5: hash() gives another value in another run",
        "",
    ),
    "the name of the module": (
        {"k.py": with_body("tl.store(x, S)", "S = len(__name__)\n")},
        "k.py:3:9: __name__ is not the same in a slice as in the file",
        "",
    ),
    "a project import inside a function": (
        {
            "k.py": with_body("tl.store(x, S)", "def f():\n    from h import C\n    return C\nS = f()\n"),
            "h.py": "C = 1\n",
        },
        "k.py:4:5: `from h import C` inside another statement cannot be cut",
        "move the import to the top of the file",
    ),
    "run-time code": (
        {"k.py": with_body("tl.store(x, S)", "S = eval('1')\n")},
        "k.py:3:5: eval() reaches what cannot be read off the source",
        "",
    ),
    "a condition": (
        {"k.py": with_body("tl.store(x, S)", "import time\nif time.time() > 1:\n    S = 1\nelse:\n    S = 2\n")},
        "k.py:4:1: S is bound or changed under a condition that only a run can decide",
        "`if time.time() > 1:`; S is read at k.py:11:17 by k.py:kernel; what time.time() gives is not known",
    ),
    "a try": (
        {"k.py": with_body("tl.store(x, S)", "try:\n    S = int(open('s').read())\nexcept OSError:\n    S = 2\n")},
        "k.py:3:1: S is bound or changed under a condition that only a run can decide",
        "`try:`",
    ),
    "the function under a condition": (
        {"k.py": HEADER + "import time\nif time.time():\n    @triton.jit\n    def kernel(x):\n        pass\n"},
        "k.py:4:1: kernel is bound or changed under a condition that only a run can decide",
        "`if time.time():`; kernel is read at kernels.yaml:9:5",
    ),
    "a star import": (
        {"k.py": with_body("tl.store(x, S)", "from lib import *\n")},
        "k.py:7:17: S may come from `from lib import *` in line 3, which cannot be cut",
        "write `from lib import S` if it comes from there",
    ),
    "a star import that may hide a builtin": (
        {
            "k.py": "import triton\nfrom triton.language import store\nfrom numpy import *\n"
            "@triton.jit\ndef kernel(x):\n    store(x, max(1, 2))\n"
        },
        "k.py:6:14: max may come from `from numpy import *` in line 3",
        "",
    ),
    "a star import of a name that the file binds as well": (
        {"k.py": with_body("tl.store(x, S)", "S = 1\nfrom lib import *\n")},
        "k.py:8:17: S may come from `from lib import *` in line 4, which cannot be cut",
        "write `from lib import S`",
    ),
    "a value taken from a docstring": (
        {"k.py": with_body("tl.store(x, S)", "def f():\n    'text'\nS = tl.constexpr(len(f.__doc__))\n")},
        "k.py:5:22: __doc__ tells of the source's text or place",
        "write the value",
    ),
    "a star import of a builtin's name": (
        {
            "k.py": with_body("tl.store(x, max(N, 2))", "from h import *\n"),
            "h.py": "from g import *\n__all__ = g.__all__ + [name for name in ('max',)]\n",
            "g.py": "max = 1\n",
        },
        "k.py:7:17: max may come from `from h import *` in line 3, which cannot be cut",
        "write `from h import max` if it comes from there",
    ),
    "another decorator": (
        {
            "k.py": HEADER + "from lib import entry\n@entry()\n@triton.jit\ndef kernel(x):\n    pass\n",
            "lib.py": "entry = 1\n",
        },
        "k.py:4:2: kernel has a decorator that Kiln does not know: @entry",
        "triton.jit, triton.autotune and triton.heuristics, and above them what only launches",
    ),
    "another decorator on a helper": (
        {
            "k.py": with_body(
                "f(x)", "from triton.experimental import gluon\n@gluon.x\n@triton.jit\ndef f(x):\n    pass\n"
            ),
        },
        "k.py:4:2: f has a decorator that Kiln does not know: @gluon.x",
        "@gluon.x, which is triton.experimental.gluon.x",
    ),
    "tuned, not jitted": (
        {"k.py": HEADER + "@triton.autotune(configs=[], key=[])\ndef kernel(x):\n    pass\n"},
        "k.py:4:1: kernel is tuned but not jitted",
        "put @triton.jit directly above the def",
    ),
    "an argument of jit": (
        {"k.py": HEADER + "@triton.jit(fast=True)\ndef kernel(x):\n    pass\n"},
        "k.py:3:2: triton.jit has an argument that Kiln does not know: fast=True",
        "",
    ),
    "a plain function": (
        {"k.py": HEADER + "def kernel(x):\n    pass\n"},
        "k.py:3:1: kernel is not a Triton function",
        "decorate it with @triton.jit",
    ),
    "a launcher": (
        {"k.py": HEADER + "@triton.jit\ndef other(x):\n    pass\n\ndef kernel(x):\n    other[(1,)](x)\n"},
        "k.py:7:1: kernel is not a Triton function",
        "decorate it with @triton.jit, or set `function` to one that is: other",
    ),
    "no such function": (
        {"k.py": HEADER + "@triton.jit\ndef kernal(x):\n    pass\n"},
        "kernels.yaml:9:5: k.py has no function 'kernel'",
        "did you mean 'kernal'?",
    ),
    "a dead function": (
        {"k.py": HEADER + "if False:\n    def kernel(x):\n        pass\n"},
        "k.py:4:1: kernel is defined only in a branch that never runs",
        "",
    ),
    "an imported function": (
        {"k.py": "from h import kernel\n", "h.py": HEADER + "@triton.jit\ndef kernel(x):\n    pass\n"},
        "k.py:1:1: kernel is imported into k.py, not defined there",
        "declare the defining file as the kernel's source",
    ),
    "a variable number of arguments": (
        {"k.py": HEADER + "@triton.jit\ndef kernel(x, *rest):\n    pass\n"},
        "k.py:4:16: kernel takes a variable number of arguments, *rest",
        "",
    ),
    "a missing attribute": (
        {"k.py": with_body("tl.store(x, h.SIZ)", "import h\n"), "h.py": "SIZE = 1\n"},
        "k.py:7:17: h.py has no name 'SIZ' that can be read off its source",
        "did you mean 'SIZE'?",
    ),
    "a module as a value": (
        {"k.py": with_body("tl.store(x, getattr(h, 'S'))", "import h\n"), "h.py": "S = 1\n"},
        "k.py:7:25: h is a module, and is used as a value",
        "",
    ),
    "a missing module": (
        {"k.py": with_body("tl.store(x, S)", "from lib.nope import S\n"), "lib/a.py": ""},
        "k.py:3:1: `from lib.nope import S` names a module that the project does not have",
        "lib/nope.py",
    ),
    "a relative import out of the project": (
        {"k.py": with_body("tl.store(x, S)", "from ..lib import S\n")},
        "k.py:3:1: the relative import `from ..lib import S` leads out of the project",
        "",
    ),
    "not Python": ({"k.py": "def kernel(:\n"}, "k.py:1:12: the source file is not valid Python", "invalid syntax"),
    "a name of a dead branch": (
        {"k.py": with_body("tl.store(x, S)", "if False:\n    S = 1\n")},
        "k.py:8:17: the name 'S' is not defined in k.py",
        "bound only in line 4, in a branch that never runs",
    ),
}


@pytest.mark.parametrize(("files", "head", "detail"), REFUSED.values(), ids=REFUSED)
def test_refuses(scratch: Scratch, files: dict[str, str], head: str, detail: str) -> None:
    scratch.files(files)
    message = scratch.refusal(HERE)
    print(message)
    assert message.startswith(head)
    assert detail in message
    assert "remedy: " in message


def test_refuses_a_name_that_means_two_files(scratch: Scratch) -> None:
    scratch.files(
        {"ops/k.py": with_body("tl.store(x, S)", "from h import S\n"), "ops/h.py": "S = 1\n", "h.py": "S = 2\n"}
    )
    with pytest.raises(ClosureError, match="could mean two files"):
        scratch.cut("ops/k.py")


def test_refuses_files_that_are_not_there_or_not_text(scratch: Scratch, tmp_path: Path) -> None:
    with pytest.raises(ClosureError, match=r"k\.py: cannot read the source file: No such file"):
        scratch.cut()
    (tmp_path / "k.py").write_bytes(HEADER.encode() + b"\xff\n")
    with pytest.raises(ClosureError, match=r"k\.py:3:1: the source file is not text"):
        scratch.cut()
    (tmp_path / "k.py").write_bytes(b"a = '\0'\n")
    with pytest.raises(ClosureError, match=r"(?s)k\.py:1:1: the source file .*null bytes"):
        scratch.cut()
    (tmp_path / "k.py").write_text(with_body("tl.store(x, S)", f"S = {'+'.join(['1'] * 20000)}\n"))
    with pytest.raises(ClosureError, match="nested too deeply"):
        scratch.cut()


def test_refuses_files_outside_the_project(tmp_path: Path) -> None:
    inside, outside = Scratch(tmp_path / "in"), Scratch(tmp_path / "out")
    outside.write("S = 1\n", "h.py")
    inside.write(with_body("tl.store(x, S)", "from h import S\n"))
    (tmp_path / "in" / "h.py").symlink_to(tmp_path / "out" / "h.py")
    with pytest.raises(ClosureError, match="the file lies outside the project"):
        inside.cut()
