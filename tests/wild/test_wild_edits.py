"""Random edits of a project: whenever an image changes, its fingerprint does; what a kernel does not need changes none.

The truth is Triton's own image of the imported file. KILN_EDITS and KILN_SEED give another number of edits and another
beginning; a failure prints the seed, and what was edited.
"""

from __future__ import annotations

import ast
import importlib
import json
import linecache
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from whole_module import compiled, found, name_like

from kiln.closure.resolve import PACKAGE
from kiln.compilers.request import components
from kiln.compilers.triton import compile_kernel
from kiln.digests import digest_json
from kiln.engine.state import State
from kiln.errors import KilnError
from kiln.library import Library

NUMBER = int(os.environ.get("KILN_EDITS", "45"))
SEED = int(os.environ.get("KILN_SEED", "1"))

MANIFEST = """\
version: 1
library: edits
targets: [sm_80]
kernels:
  kernel:
    source: pkg/kernel.py
    function: {function}
    dtypes: [fp32]
    blocks: [{{N: 128}}]
    constants: {constants}
    name: kernel_{{dtype}}_{{block}}
    signature: "*fp32:16, *fp32:16, i32"
    grid: [1]
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A project with one kernel. What stands in its files in <angle brackets> is one of the texts given for it."""

    function: str
    constants: dict[str, Any]
    files: dict[str, str]
    inside: dict[str, tuple[str, ...]]
    """what the kernel may need"""
    outside: dict[str, tuple[str, ...]]
    """nothing of it is the kernel's, or it is all the same to it"""


PLAIN_FILES = {
    "pkg/kernel.py": """\
<docstring>
<unused import>
import math

import triton
import triton.language as tl
from triton.language.extra import libdevice

<helper import>
from lib.extra import <extra> as shift
from . import consts as <module alias>
<more names>
<dead import>

DT = tl.<dtype>
rounded = libdevice.<rounding>
LIMIT = <limit>
<unused constant>


def width_of(n):
    <comment>
    return n * <width> + <module alias>.BASE


SCALE = tl.constexpr(width_of(<argument>))
POWER = tl.constexpr(math.<mathematics>(2.5))
TABLE = [1, <element>]
<later change>
TOTAL = tl.constexpr(sum(TABLE))
if <condition>:
    MODE = tl.constexpr(<live>)
else:
    MODE = tl.constexpr(<dead>)


class Config:
    STEP = <step>
    OTHER = <other attribute>


STEP = tl.constexpr(Config.STEP)


<neighbour>


@triton.autotune(configs=[<configurations>], key=["n"])
@triton.heuristics({"EVEN": lambda args: <heuristic>})
@triton.jit<hints>
def kernel(out, x, n<annotation>, skip, N: tl.constexpr, EVEN: tl.constexpr, y: tl.constexpr = LIMIT):
    <kernel docstring>
    i = tl.arange(0, N)
    value = tl.load(x + i, mask=i < n)
    value = apply(value<passed>) + shift(n) * SCALE + MODE + STEP
    if EVEN:
        value = rounded(value) + <module alias>.BASE
    if skip is None:
        value += y
    value = value.to(DT).to(tl.float32) + TOTAL * POWER
    tl.store(out + i, <stored>, mask=i < n)


<launch>
""",
    "pkg/helpers.py": """\
<helper comment>
import triton
import triton.language as tl

from pkg.consts import <constant> as FACTOR

DEPTH = <depth>


@triton.jit
def affine(a, depth: tl.constexpr = DEPTH):
    for _ in tl.static_range(depth):
        a = a <operator> FACTOR
    return a


@triton.jit
def other(a, depth: tl.constexpr = 1):
    return a - FACTOR * depth


<neighbour of the helper>
""",
    "pkg/consts.py": """\
import triton.language as tl

BASE = tl.constexpr(<base>)
ONE = tl.constexpr(<one>)
TWO = tl.constexpr(<two>)
UNUSED = <unused value>
""",
    "pkg/__init__.py": "<package>\n",
    "lib/extra.py": """\
import triton
import triton.language as tl

try:
    from pkg.missing import COUNT
except ImportError:
    COUNT = tl.constexpr(<count>)


@triton.jit<inlining>
def up(a):
    return a + COUNT


@triton.jit<inlining>
def down(a):
    return a - COUNT<cast>
""",
}

PLAIN_INSIDE = {
    "helper import": (
        "from pkg.helpers import affine as apply",
        "from pkg.helpers import other as apply",
        "from .helpers import affine as apply",
        "import pkg.helpers as h\napply = h.other",
        "import pkg.helpers\napply = pkg.helpers.affine",
    ),
    "extra": ("up", "down"),
    "module alias": ("consts", "c", "numbers"),
    "dtype": ("float16", "bfloat16", "float32"),
    "rounding": ("rint", "floor", "ceil", "trunc"),
    "limit": ("1", "2", "2.5", "-3"),
    "width": ("1", "2", "3"),
    "argument": ("1", "2"),
    "mathematics": ("floor", "ceil", "sqrt"),
    "element": ("2", "5"),
    "later change": ("", "TABLE.append(4)", "TABLE[0] = 7", "TABLE += [4]", "TABLE = TABLE + [4]"),
    "condition": ("True", "False", "LIMIT > 1", "triton.__version__ >= '3'", "hasattr(tl, 'exp2')"),
    "live": ("3", "4"),
    "dead": ("5", "6"),
    "step": ("1", "2", "1 + 1"),
    "heuristic": (
        "args['N'] % 64 == 0",
        "args['N'] % 48 == 0",
        "args['skip'] is None",
        "args['skip'] is not None",
        "triton.next_power_of_2(args['N']) == args['N']",
    ),
    "annotation": ("", ": tl.int64", ": int", ": 'tl.uint32'"),
    "passed": ("", ", 2", ", depth=3"),
    "stored": ("value", "value * 2", "-value", "tl.exp(value)"),
    "constant": ("ONE", "TWO"),
    "depth": ("1", "2"),
    "inlining": ("", "(noinline=True)", "(noinline=False)"),
    "operator": ("+", "-", "*"),
    "base": ("1", "2", "1.0"),
    "one": ("3", "4", "0.5"),
    "two": ("3", "5"),
    "count": ("1", "2"),
    "cast": ("", " * 1", " * 2"),
}

PLAIN_OUTSIDE = {
    "docstring": ("", '"""A kernel."""', "# a kernel", '"""Another,\nlonger text."""'),
    "unused import": ("", "import os", "import sys, json", "from collections import abc as a"),
    "more names": ("", "from .consts import UNUSED", "from pkg.consts import TWO as nothing"),
    "dead import": (
        "",
        "if False:\n    import torch",
        "try:\n    import einops\nexcept ImportError:\n    einops = None",
    ),
    "unused constant": ("", "UNUSED = 3", "UNUSED = math.pi", "BIG = [0] * 1000"),
    "comment": ("", "# one", "# two\n    # lines"),
    "other attribute": ("1", "2", "None", "'text'"),
    "neighbour": ("", "def near():\n    return 1", "@triton.jit\ndef near(a):\n    return a", "class Near:\n    X = 1"),
    "configurations": (
        "triton.Config({}, num_warps=4)",
        "triton.Config({}, num_warps=8)",
        "triton.Config({}, num_warps=w) for w in (2, 4)",
    ),
    "hints": ("", "()", "(do_not_specialize=['n'])", "(repr=lambda _: 'other')", "(launch_metadata=lambda *a: {})"),
    "kernel docstring": ("", '"""Stores."""', '"""Stores\n    much."""', "# nothing"),
    "launch": ("", "def launch(x):\n    kernel[(1,)](x, x, 1, None, 128)", "RESULT = [i for i in range(3)]"),
    "helper comment": ("", "# helps", '"""Helps."""\n'),
    "neighbour of the helper": ("", "@triton.jit\ndef third(a):\n    return a", "X = 3\n\n\ndef f():\n    return X"),
    "unused value": ("1", "2", "tl.constexpr(4)", "[]"),
    "package": ("", '"""A package."""', "NAME = 'pkg'", "import os"),
}

FORMS_FILES = {
    "pkg/kernel.py": """\
<docstring>
<unused import>
import triton
import triton.language as tl

from pkg.names import *
from .settings import <settings>
<more names>


class Base:
    WIDTH = <width>
    UNUSED = <unused attribute>


class Derived(Base):
    SCALE = <scale>
    <method>


def plain(a):
    <comment>
    return a <operator> 2.0


<neighbour>
plain = triton.jit<wrapping>(plain)
TABLE = {"one": plain, "two": <second>}
<table change>
chosen = TABLE["<key>"]
WIDTH = tl.constexpr(Derived.WIDTH + Derived.SCALE)
<class change>
DEPTH = tl.constexpr(<depth>)


def make(factor, shift=<shift>):
    <factory docstring>
    inner = tl.constexpr(factor * <inner>)
    unused = <unused local>

    @triton.jit
    def nested(v, by: tl.constexpr = <nested default>):
        return v * inner + by

    <neighbour in the factory>

    @triton.jit<hints>
    def kernel(out, x, n, N: tl.constexpr, <parameter>):
        i = tl.arange(0, N)
        v = nested(tl.load(x + i, mask=i < n)) + WIDTH + OFFSET
        for _ in tl.static_range(DEPTH):
            v = chosen(v) + m
        tl.store(out + i, v, mask=i < n)

    <after the kernel>
    return kernel


<launch>
""",
    "pkg/names.py": """\
<names docstring>
import triton
import triton.language as tl

from lib.extra import *

__all__ = [<all>]
OFFSET = tl.constexpr(<offset>)
HIDDEN = <hidden>


@triton.jit
def helper(a):
    return a + <added>
""",
    "pkg/settings.py": """\
import enum
from dataclasses import dataclass


class Mode(enum.IntEnum):
    FIRST = <first>
    SECOND = 7


class Settings:
    ROWS = <rows>
    COLS = <cols>


@dataclass(frozen=True)
class Limits:
    rows: int = <limit>
    cols: int = 9


LIMITS = Limits(<limits>)
""",
    "pkg/__init__.py": "<package>\n",
    "lib/extra.py": """\
import triton.language as tl

EXTRA = tl.constexpr(<extra>)
OFFSET = tl.constexpr(100)
_PRIVATE = 1
""",
}

FORMS_INSIDE = {
    "settings": ("LIMITS, Mode, Settings", "Settings, Mode, LIMITS"),
    "width": ("1", "2"),
    "scale": ("3", "4", "1 + 2"),
    "operator": ("*", "+", "-"),
    "wrapping": ("", "()"),
    "second": ("helper", "plain", "triton.jit(plain.fn)"),
    "table change": ("", "TABLE['one'] = helper", "TABLE.update(one=helper)", "TABLE = {**TABLE, 'one': helper}"),
    "key": ("one", "two"),
    "class change": ("", "Base.WIDTH = 8", "setattr(Derived, 'SCALE', 9)", "WIDTH = tl.constexpr(WIDTH.value + 1)"),
    "depth": ("Settings.ROWS", "LIMITS.rows", "int(Mode.FIRST)", "Mode.FIRST.value", "2"),
    "shift": ("1", "2"),
    "inner": ("2", "3", "shift"),
    "nested default": ("1", "2", "Derived.SCALE"),
    "parameter": (
        "m: tl.constexpr = 1",
        "m: tl.constexpr = 2",
        "m: tl.constexpr = Derived.WIDTH",
        "m: 'tl.constexpr' = 1",
    ),
    "all": ("'OFFSET', 'helper'", "'OFFSET', 'helper', 'EXTRA'", "'helper', 'OFFSET'"),
    "offset": ("1", "2", "0.5"),
    "added": ("1", "EXTRA", "OFFSET"),
    "first": ("1", "2"),
    "rows": ("1", "2"),
    "limit": ("1", "2"),
    "limits": ("", "rows=3", "2, 3"),
    "extra": ("1", "2"),
    # A class that others are derived from is kept whole.
    "unused attribute": ("1", "2", "'text'"),
}

FORMS_OUTSIDE = {
    "docstring": ("", '"""A kernel."""', "# a kernel"),
    "unused import": ("", "import os", "import functools as f"),
    "more names": ("", "from .names import HIDDEN as nothing", "import pkg.settings as s"),
    "method": ("", "def method(self):\n        return 1", "@staticmethod\n    def other(a):\n        return a"),
    "comment": ("", "# one", "'Doubles.'"),
    "neighbour": ("", "def near():\n    return plain", "NEAR = [1, 2]", "class Near(Derived):\n    SCALE = 5"),
    "factory docstring": ("", "'Makes.'", "# makes"),
    "unused local": ("1", "2", "[i for i in range(3)]"),
    "neighbour in the factory": (
        "",
        "def near():\n        return inner",
        "@triton.jit\n    def near(v):\n        return v",
    ),
    "hints": ("", "()", "(do_not_specialize=['n'])", "(repr=lambda _: 'other')"),
    "after the kernel": ("", "launch = kernel", "def run(x):\n        return kernel[(1,)](x)", "print('made')"),
    "launch": ("", "def launch(x):\n    return make(3)", "MADE = [1]"),
    "names docstring": ("", '"""Names."""', "# names"),
    "hidden": ("1", "2", "tl.constexpr(3)"),
    "cols": ("1", "2"),
    "package": ("", '"""A package."""', "NAME = 'pkg'"),
}

PROGRAMS = {
    "plain": Program(
        function="kernel", constants={"skip": None}, files=PLAIN_FILES, inside=PLAIN_INSIDE, outside=PLAIN_OUTSIDE
    ),
    "forms": Program(
        function="make.kernel", constants={"factor": 3}, files=FORMS_FILES, inside=FORMS_INSIDE, outside=FORMS_OUTSIDE
    ),
}


@dataclass(kw_only=True)
class Scratch:
    """The project, what each of its fields stands at, and what was seen so far."""

    folder: Path
    program: Program
    library: Callable[[], Library]
    chosen: dict[str, str]
    images: dict[str, bytes] = field(default_factory=dict)
    """image by fingerprint: each fingerprint has one, however it came about"""
    refused: list[str] = field(default_factory=list)
    """why Kiln did not take an edit"""
    broken: int = 0
    """edits after which Triton has no kernel either"""

    def texts(self) -> dict[str, str]:
        found = {}
        for name, text in self.program.files.items():
            for key, value in self.chosen.items():
                text = text.replace(f"<{key}>", value)
            found[name] = text
        return found

    def write(self, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def truth(self) -> bytes:
        """What Triton makes of the imported file."""
        forget()
        linecache.clearcache()
        importlib.invalidate_caches()
        module = importlib.import_module("pkg.kernel")
        name_like({name: f"{PACKAGE}.{name}" for name in ("pkg.kernel", "pkg.helpers", "lib.extra")})
        constants = {"N": 128, **self.program.constants}
        job = {
            "constants": constants,
            "signature": [[[0], "*fp32", 16], [[1], "*fp32", 16], [[2], "i32", None]],
            "promises": {},
            "options": {"num_warps": 4, "enable_fp_fusion": True},
        }
        return compiled(found(module, self.program.function, constants), job, GPUTarget("cuda", 80, 32))

    def check(self, what: str) -> str | None:
        """Hold the project as it is against the truth, and give its fingerprint; None where it is no kernel."""
        try:
            truth = self.truth()
        except Exception:
            # Not each mutation leaves a program: such a one has no image that could be stale.
            self.broken += 1
            return None
        try:
            library = self.library()
            request = library.request(library.images[0])
        except KilnError as error:
            self.refused.append(f"{what}: {error}")
            return None
        fingerprint = digest_json(components(request))
        if fingerprint not in self.images:
            self.images[fingerprint] = compile_kernel(request).data
            assert self.images[fingerprint] == truth, f"seed {SEED}: not what the file compiles to: {what}"
        assert self.images[fingerprint] == truth, f"seed {SEED}: another image and the same fingerprint: {what}"
        return fingerprint


def forget() -> None:
    """Drop the project's modules, so that they are read again."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pkg", "lib")]:
        del sys.modules[name]


@pytest.fixture(params=PROGRAMS)
def scratch(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    program = PROGRAMS[request.param]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    # Its key leaves out some of what is edited here.
    monkeypatch.setattr(triton.knobs.compilation, "always_compile", True)
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "cache"))
    manifest = MANIFEST.format(function=program.function, constants=json.dumps(program.constants))
    (tmp_path / "kernels.yaml").write_text(manifest)
    state = State(tmp_path / "build/state.sqlite")

    def library() -> Library:
        return Library.load(tmp_path / "kernels.yaml", tmp_path / "build", state)

    first = {key: values[0] for key, values in {**program.inside, **program.outside}.items()}
    yield Scratch(folder=tmp_path, program=program, library=library, chosen=first)
    forget()


def test_images_that_differ_have_different_fingerprints(scratch: Scratch) -> None:
    """Each edit is of one field, or of any piece of the program that was drawn; the second kind is taken back."""
    choose = random.Random(SEED)
    scratch.write(scratch.texts())
    before = scratch.check("nothing")
    assert before is not None
    library = scratch.library()
    assert library.closure(library.images[0]).uncut is None, "an import of the whole file proves nothing of slices"
    outside = 0
    for number in range(NUMBER):
        kind = choose.choice(("inside", "outside", "mutation"))
        if kind == "mutation":
            texts = scratch.texts()
            name = choose.choice([name for name in texts if not name.endswith("__init__.py")])
            texts[name], what = mutated(texts[name], choose)
            scratch.write(texts)
            scratch.check(f"edit {number}, {name}: {what}")
            scratch.write(scratch.texts())
            continue
        fields = scratch.program.inside if kind == "inside" else scratch.program.outside
        key = choose.choice(list(fields))
        old = scratch.chosen[key]
        scratch.chosen[key] = choose.choice([value for value in fields[key] if value != old])
        what = f"edit {number}, {key}: {old!r} -> {scratch.chosen[key]!r}"
        scratch.write(scratch.texts())
        after = scratch.check(what)
        assert after is not None, f"seed {SEED}: refused: {what}: {scratch.refused[-1:]}"
        if kind == "outside":
            outside += 1
            assert after == before, f"seed {SEED}: another fingerprint: {what}"
        before = after
    print(*scratch.refused, sep="\n")
    print(
        f"{NUMBER} edits, {outside} outside: {len(scratch.images)} fingerprints, {len(set(scratch.images.values()))} "
        f"images; {scratch.broken} edits broke the program, {len(scratch.refused)} were refused"
    )
    assert len(scratch.images) > NUMBER // 10


def test_each_field_stands_in_the_project_and_has_several_texts() -> None:
    for program in PROGRAMS.values():
        for key, values in {**program.inside, **program.outside}.items():
            assert len(set(values)) == len(values) > 1, key
            assert any(f"<{key}>" in text for text in program.files.values()), key


# -- mutations


def mutated(text: str, choose: random.Random) -> tuple[str, str]:
    """The program with one piece of it changed, and what was done; not each result is a program that runs."""
    tree = ast.parse(text)
    change = choose.choice(
        (_number, _operator, _name, _attribute, _removed, _swapped, _repeated, _rebound, _undecorated)
    )
    what = change(tree, choose)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n", what


def _pick(tree: ast.Module, kinds: type[ast.AST] | tuple[type[ast.AST], ...], choose: random.Random) -> ast.AST | None:
    found = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return choose.choice(found) if found else None


def _number(tree: ast.Module, choose: random.Random) -> str:
    numbers = [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    ]
    if not numbers:
        return "nothing"
    node = choose.choice(numbers)
    old, node.value = node.value, choose.choice([0, 1, 2, 3, 7, 0.5, True, False])
    return f"line {node.lineno}: {old} -> {node.value}"


def _operator(tree: ast.Module, choose: random.Random) -> str:
    node = _pick(tree, (ast.BinOp, ast.AugAssign), choose)
    if not isinstance(node, ast.BinOp | ast.AugAssign):
        return "nothing"
    old, node.op = node.op, choose.choice([ast.Add(), ast.Sub(), ast.Mult(), ast.Div(), ast.FloorDiv(), ast.Mod()])
    return f"line {node.lineno}: {type(old).__name__} -> {type(node.op).__name__}"


def _name(tree: ast.Module, choose: random.Random) -> str:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    node, other = choose.choice(names), choose.choice(names)
    old, node.id = node.id, other.id
    return f"line {node.lineno}: {old} -> {node.id}"


def _attribute(tree: ast.Module, choose: random.Random) -> str:
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    if not attributes:
        return "nothing"
    node, other = choose.choice(attributes), choose.choice(attributes)
    old, node.attr = node.attr, other.attr
    return f"line {node.lineno}: .{old} -> .{node.attr}"


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    return [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]


def _removed(tree: ast.Module, choose: random.Random) -> str:
    body = choose.choice(_bodies(tree))
    gone = body.pop(choose.randrange(len(body)))
    if not body:
        body.append(ast.Pass())
    return f"removed {ast.unparse(gone)[:60]!r}"


def _swapped(tree: ast.Module, choose: random.Random) -> str:
    body = choose.choice(_bodies(tree))
    one, two = choose.randrange(len(body)), choose.randrange(len(body))
    body[one], body[two] = body[two], body[one]
    return f"swapped {ast.unparse(body[one])[:60]!r} and {ast.unparse(body[two])[:60]!r}"


def _repeated(tree: ast.Module, choose: random.Random) -> str:
    body = choose.choice(_bodies(tree))
    again = choose.choice(body)
    body.insert(choose.randrange(len(body) + 1), again)
    return f"repeated {ast.unparse(again)[:60]!r}"


def _rebound(tree: ast.Module, choose: random.Random) -> str:
    """A statement at module level that gives one of its names another value, or changes the value."""
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
    name, other = choose.choice(names), choose.choice(names)
    line = choose.choice(
        (
            f"{name} = {other}",
            f"{name} = tl.constexpr(9)",
            f"{name} += 1",
            f"{name}.append(3)",
            f"{name}.STEP = 5",
            f"{name}.BASE = tl.constexpr(6)",
            f"setattr({name}, 'STEP', 8)",
            f"for {name} in (1, 2): pass",
            f"if {other}: {name} = 4",
            f"try:\n    {name} = {other}.nothing\nexcept AttributeError:\n    {name} = 3",
            f"from pkg.consts import TWO as {name}",
            f"def {name}(a, depth=1): return a",
            f"class {name}:\n    STEP = 11",
        )
    )
    tree.body.insert(choose.randrange(len(tree.body) + 1), ast.parse(line).body[0])
    return f"added {line!r}"


def _undecorated(tree: ast.Module, choose: random.Random) -> str:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list]
    if not functions:
        return "nothing"
    node = choose.choice(functions)
    gone = node.decorator_list.pop(choose.randrange(len(node.decorator_list)))
    return f"{node.name}: removed @{ast.unparse(gone)[:60]}"
