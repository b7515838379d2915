"""What changes a closure's digest, and what does not."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from closure_scratch import Scratch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kiln.closure.digest import canonical, lines_of
from kiln.closure.module import index
from kiln.closure.slice import cut

FILES = {
    "k.py": '''\
"""A kernel."""

import torch
import triton
import triton.language as tl

import cfg as c
from lib.helpers import helper, shown as seen
from lib import half

DT = tl.float16
LIMIT = 4
UNUSED = 9


def size_of(n):
    return n * 2


SIZE: tl.constexpr = tl.constexpr(size_of(8))
if False:
    MODE = 1
else:
    MODE = tl.constexpr(2)


@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.jit(repr=torch.repr, do_not_specialize=["n"])
def kernel(x, n, y=LIMIT, N: tl.constexpr = 1):
    """Stores."""
    # a comment
    i = tl.arange(0, N)
    value = helper(i) + seen(i) + c.S + SIZE + MODE + half
    tl.store(x + i, value.to(DT), mask=i < n)


def launch(x):
    kernel[(1,)](x, 1)
''',
    "cfg.py": "S = 1\nT = 2\n",
    "lib/__init__.py": "half = 3\nwhole = 6\n",
    "lib/helpers.py": """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

rint = libdevice.rint
BIAS = tl.constexpr(1)
DEPTH = 2


@triton.jit
def helper(a, depth=DEPTH):
    return rint(a.to(tl.float32)) + BIAS


@triton.jit
def shown(a):
    return a + 1


@triton.jit
def hidden(a):
    return a + 2
""",
}

CHANGES = {
    "the body": ("k.py", "mask=i < n", "mask=i <= n"),
    "an operator": ("k.py", "c.S + SIZE", "c.S - SIZE"),
    "a dtype alias": ("k.py", "DT = tl.float16", "DT = tl.bfloat16"),
    "an aliased function": ("lib/helpers.py", "libdevice.rint", "libdevice.floor"),
    "what an import alias stands for": ("k.py", "shown as seen", "hidden as seen"),
    "the attribute that is read of another module": ("cfg.py", "S = 1", "S = 2"),
    "its type alone": ("cfg.py", "S = 1", "S = 1.0"),
    "a name of a package": ("lib/__init__.py", "half = 3", "half = 4"),
    "a default by name": ("k.py", "LIMIT = 4", "LIMIT = 5"),
    "a helper's default by name": ("lib/helpers.py", "DEPTH = 2", "DEPTH = 3"),
    "a helper's constant": ("lib/helpers.py", "constexpr(1)", "constexpr(2)"),
    "a helper's body": ("lib/helpers.py", "return a + 1", "return a + 3"),
    "a helper that computes a constant": ("k.py", "return n * 2", "return n * 3"),
    "a later change of a constant": ("k.py", "def launch", "LIMIT += 1\n\n\ndef launch"),
    "the branch that is live": ("k.py", "if False", "if True"),
    "the live branch": ("k.py", "constexpr(2)", "constexpr(3)"),
    "an annotation": ("k.py", "x, n, y", "x, n: tl.int64, y"),
    "noinline": ("k.py", "jit(repr=torch.repr,", "jit(noinline=True,"),
    "a parameter's name": ("k.py", "(x, n, y", "(x, n, z"),
    "postponed annotations": ("k.py", '"""A kernel."""\n', '"""A kernel."""\nfrom __future__ import annotations\n'),
    "Triton's own module behind a name": (
        "lib/helpers.py",
        "triton.language.extra import",
        "triton.language.extra.cuda import",
    ),
}

SAME = {
    "a comment": ("k.py", "# a comment", "# another, longer comment"),
    "a docstring": ("k.py", '"""Stores."""', '"""Stores\n    a value."""'),
    "no docstring": ("k.py", '    """Stores."""\n', ""),
    "the module's docstring": ("k.py", '"""A kernel."""\n', ""),
    "a shift of lines": ("k.py", "import torch\n", "\n\n\nimport torch\n\n"),
    "formatting": (
        "k.py",
        "tl.store(x + i, value.to(DT), mask=i < n)",
        "tl.store(\n        (x+i),value.to( DT ),\n        mask=(i<n),)",
    ),
    "a function next to it": ("k.py", "kernel[(1,)](x, 1)", "return torch.launch(x)"),
    "an unused constant": ("k.py", "UNUSED = 9", "UNUSED = torch.nine"),
    "an unused helper": ("lib/helpers.py", "return a + 2", "return a + 3"),
    "another attribute of a module": ("cfg.py", "T = 2", "T = 3\nU = 4"),
    "another name of a package": ("lib/__init__.py", "whole = 6", "import torch"),
    "an unused import": ("k.py", "import torch\n", "import torch, numpy\nfrom os import path\n"),
    "imports in one line": (
        "k.py",
        "import triton\nimport triton.language as tl\n",
        "import triton, triton.language as tl\n",
    ),
    "sorted imports": (
        "k.py",
        "import torch\nimport triton\nimport triton.language as tl\n\nimport cfg as c\n",
        "import cfg as c\nimport triton.language as tl\nimport triton\n",
    ),
    "tuning": (
        "k.py",
        "triton.Config({}, num_warps=4)",
        "triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)",
    ),
    "no tuning": ("k.py", '@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])\n', ""),
    "repr": ("k.py", "repr=torch.repr", "repr=torch.other"),
    "do_not_specialize": ("k.py", ', do_not_specialize=["n"]', ""),
    "launch_metadata": ("k.py", "jit(repr=torch.repr", "jit(launch_metadata=torch.m"),
    "the dead branch": ("k.py", "MODE = 1", "MODE = torch.one"),
    "a condition that was settled": ("k.py", "if False:\n    MODE = 1\nelse:\n    MODE", "if True:\n    MODE"),
    "no condition": ("k.py", "if False:\n    MODE = 1\nelse:\n    MODE", "MODE"),
    "how a number is written": ("k.py", "LIMIT = 4", "LIMIT = 0x4"),
    "Windows line ends": ("k.py", "\n", "\r\n"),
}


@pytest.fixture
def project(scratch: Scratch) -> Scratch:
    scratch.files(FILES)
    return scratch


def edit(project: Scratch, file: str, old: str, new: str) -> None:
    text = FILES[file]
    assert old in text
    (project.root / file).write_bytes(text.replace(old, new).encode())


@pytest.mark.parametrize(("file", "old", "new"), CHANGES.values(), ids=CHANGES)
def test_changes(project: Scratch, file: str, old: str, new: str) -> None:
    before = project.cut()
    edit(project, file, old, new)
    after = project.cut()
    assert after.digest != before.digest
    assert after.components != before.components


@pytest.mark.parametrize(("file", "old", "new"), SAME.values(), ids=SAME)
def test_does_not_change(project: Scratch, file: str, old: str, new: str) -> None:
    before = project.cut()
    edit(project, file, old, new)
    after = project.cut()
    assert after.components == before.components
    assert after.digest == before.digest


def test_components_tell_which_definition_changed(project: Scratch) -> None:
    before = project.cut().components
    edit(project, "lib/helpers.py", "return a + 1", "return a + 3")
    after = project.cut().components
    assert {name for name in before | after if before.get(name) != after.get(name)} == {"lib/helpers.py:shown"}


def test_the_lines_that_a_component_is_over() -> None:
    """With decorators, and with all statements that bind or change the name, wherever they stand."""
    text = "import a, b\n\nSIZES = [1]\n\n\n@a.jit\n@b\ndef k(x):\n    return x\n\n"
    text += "if True:\n    SIZES.append(\n        4)\n"
    assert lines_of(text, "k.py", "k") == [(6, "@a.jit"), (7, "@b"), (8, "def k(x):"), (9, "    return x")]
    assert lines_of(text, "k.py", "SIZES") == [(3, "SIZES = [1]"), (12, "    SIZES.append("), (13, "        4)")]
    assert lines_of(text, "k.py", "b") == [(1, "import a, b")]
    assert lines_of(text, "k.py", "missing") == []


def test_every_component_of_a_slice_has_lines(project: Scratch) -> None:
    closure = project.cut()
    texts = {module.file: module.text for module in closure.modules}
    for component in closure.components:
        file, _, name = component.rpartition(":")
        assert lines_of(texts[file], file, name), component


def test_the_place_of_the_project_does_not_count(project: Scratch, tmp_path: Path) -> None:
    other = Scratch(tmp_path / "else where")
    other.files(FILES)
    assert other.cut().digest == project.cut().digest


def test_the_same_on_every_python() -> None:
    """The canonical text of syntax whose tree differs between Python 3.10 and 3.14, as 3.11 gives it."""
    cases = {
        "def f(x, *, y): return 1": (
            "FunctionDef(name='f',args=arguments(args=[arg(arg='x',),]kwonlyargs=[arg(arg='y',),]kw_defaults=[None,]),"
            "body=[Return(value=Constant(int 0x1),),])"
        ),
        "f'{{{x:>{w}}}}'": (
            "Expr(value=JoinedStr(values=[Constant(str '{'),FormattedValue(value=Name(id='x',),conversion=-1,"
            "format_spec=JoinedStr(values=[Constant(str '>'),FormattedValue(value=Name(id='w',),conversion=-1,),]),),"
            "Constant(str '}'),]),)"
        ),
        "x[1:2, ...] = u'\\xe9'": (
            "Assign(targets=[Subscript(value=Name(id='x',),slice=Tuple(elts=[Slice(lower=Constant(int 0x1),"
            "upper=Constant(int 0x2),),Constant(ellipsis Ellipsis),]),),]value=Constant(str '\\xe9'),)"
        ),
        "f''": "Expr(value=JoinedStr(),)",
        "{**a, 'b': None}": (
            "Expr(value=Dict(keys=[None,Constant(str 'b'),]values=[Name(id='a',),Constant(NoneType None),]),)"
        ),
    }
    for source, expected in cases.items():
        assert "".join(canonical(ast.parse(source).body[0])) == expected


OUTSIDE = ["comment", "blank", "unused", "function", "attribute", "import", "docstring"]


@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    edits=st.lists(st.tuples(st.sampled_from(OUTSIDE), st.integers(0, 99), st.integers(0, 10**6)), max_size=6),
    literal=st.integers(0, 99),
    number=st.integers(10, 10**9),
)
def test_edits_outside_do_not_count_and_literals_inside_do(
    scratch: Scratch, edits: list[tuple[str, int, int]], literal: int, number: int
) -> None:
    """Random text between the statements leaves the digest; a random number inside the closure changes it."""
    scratch.files(FILES)
    plain = scratch.cut()
    for kind, where, value in edits:
        file = sorted(FILES)[where % len(FILES)]
        text = (scratch.root / file).read_text()
        statements = [unit.node for unit in index(text.encode(), Path(file), file).units if not unit.inside]
        node = statements[where % len(statements)]
        line = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))]) - 1
        added = {
            "comment": f"# {value}",
            "blank": "\n" * (value % 5),
            "unused": f"_u{value} = torch.zeros({value})",
            "function": f"def _f{value}(x):\n    return x + {value}",
            "attribute": f"_a{value} = _b{value}.c",
            "import": f"import _m{value}",
            "docstring": f"'''{value}'''",
        }[kind]
        lines = text.split("\n")
        (scratch.root / file).write_text("\n".join([*lines[:line], added, *lines[line:]]))
    edited = scratch.cut()
    assert (edited.digest, edited.components) == (plain.digest, plain.components)
    for module in edited.modules:
        compile(module.text, module.file, "exec")
        source = (scratch.root / module.file).read_text().split("\n")
        for here, there in zip(module.text.split("\n"), source, strict=False):
            # Line by line, a slice holds what the file holds, or a part of it, or what stands for a part of it.
            assert (
                not here
                or here in there
                or here.strip() in there
                or here.startswith(("import ", "from ", "@", "if True"))
            )
    file = edited.modules[literal % len(edited.modules)].file
    tree_file = scratch.root / file
    constants = _constants(edited.modules[literal % len(edited.modules)].text)
    line, column, end = constants[literal % len(constants)]
    lines = tree_file.read_text().split("\n")
    lines[line] = lines[line][:column] + str(number) + lines[line][end:]
    tree_file.write_text("\n".join(lines))
    assert scratch.cut().digest != plain.digest


def _constants(text: str) -> list[tuple[int, int, int]]:
    """Line from 0, first and last column of each integer in a slice."""
    return [
        (node.lineno - 1, node.col_offset, node.end_col_offset or 0)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]


def test_kernels_of_this_repository() -> None:
    """Softmax needs nothing but Triton; a null build cuts every kernel, so it must cost a few milliseconds at most."""
    root = Path(__file__).parents[2]
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        closure = cut(root / "kernels/softmax.py", "softmax_kernel", root=root, where=None)
        seconds.append(time.perf_counter() - start)
    assert set(closure.components) == {f"kernels/softmax.py:{name}" for name in ("triton", "tl", "softmax_kernel")}
    assert min(seconds) < 0.02


def test_two_imports_of_one_name_keep_their_order(scratch: Scratch) -> None:
    scratch.files({"a.py": "S = 1\n", "b.py": "S = 2\n"})
    kernel = "import triton\n@triton.jit\ndef kernel(x):\n    x + S\n"
    first = scratch.digest("from a import S\nfrom b import S\n" + kernel)
    assert scratch.digest("from b import S\nfrom a import S\n" + kernel) != first
