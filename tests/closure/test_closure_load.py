"""A slice runs without the rest of its file, and Triton makes of it what it makes of the whole."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import sys
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch

from kiln.closure.load import load
from kiln.closure.slice import Closure, SlicedModule
from kiln.errors import ClosureError

SOFTMAX = """\
import torch
from nowhere import launcher

import triton
import triton.language as tl

print("imported")


@triton.autotune(configs=[triton.Config({"N": 1024}, num_warps=4)], key=["n"])
@triton.jit
def kernel(out, x, n, N: tl.constexpr):
    columns = tl.arange(0, N)
    values = tl.load(x + columns, mask=columns < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + columns, values / tl.sum(values, axis=0), mask=columns < n)


launcher(kernel, torch.empty(1))
"""

WHOLE = {
    "ops/k.py": """\
import triton
import triton.language as tl

from ops import settings as s
from ops.helpers import scaled, shift as moved

ROWS = 1
LIMIT = tl.constexpr(3)


def launch(grid, x):
    kernel[grid](x, x, 1, 1024)


@triton.jit
def kernel(out, x, n, N: tl.constexpr):
    columns = tl.arange(0, N)
    values = tl.load(x + columns, mask=columns < n)
    values = moved(scaled(values), s.STEP)
    tl.store(out + columns, tl.minimum(values, LIMIT), mask=columns < n)
""",
    "ops/settings.py": "import math\n\nSTEP = math.floor(2.5)\nOTHER = 7\n",
    "ops/helpers.py": """\
import triton
import triton.language as tl
from triton.language.extra import libdevice

from .settings import OTHER

GAIN: tl.constexpr = tl.constexpr(OTHER * 2)
root = libdevice.sqrt


@triton.jit
def scaled(values):
    return root(values * GAIN)


@triton.jit
def unused(values):
    return values


@triton.jit
def shift(values, by):
    return values + by
""",
}


def compiled(function: Any) -> bytes:
    """The cubin for sm_80, with no GPU."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import ASTSource, make_backend

    backend = make_backend(GPUTarget("cuda", 80, 32))
    options = backend.parse_options({"num_warps": 4, "enable_fp_fusion": True})
    signature = {"out": "*fp32", "x": "*fp32", "n": "i32", "N": "constexpr"}
    source = ASTSource(function, signature, {"N": 1024}, {})
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    metadata = dict(vars(options))
    module = source.make_ir(
        backend.target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    for stage in stages.values():
        module = stage(module, metadata)
    return bytes(module)


def imported(scratch: Scratch, file: str, name: str) -> Any:
    """The module as Python itself imports it."""
    spec = importlib.util.spec_from_file_location(name, scratch.root / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def no_line_info(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")


def test_runs_where_the_file_cannot(scratch: Scratch, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither torch nor the project's launcher is there; the slice needs neither, and no side effect runs."""
    scratch.write(SOFTMAX)
    with pytest.raises(ImportError):
        imported(scratch, "k.py", "whole_softmax")
    path = list(sys.path)
    function = load(scratch.cut())
    assert type(function).__name__ == "JITFunction"
    assert function.arg_names == ["out", "x", "n", "N"]
    assert capsys.readouterr().out == ""
    assert sys.path == path
    assert "torch" not in sys.modules
    assert compiled(function)[:4] == b"\x7fELF"


def test_the_image_is_that_of_the_whole_module(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files, with helpers, constants and an attribute of a module: the slices give the cubin of the import."""
    scratch.files(WHOLE)
    monkeypatch.syspath_prepend(str(scratch.root))
    import ops.k  # type: ignore[import-not-found]  # written by the test

    try:
        whole = compiled(ops.k.kernel)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "ops"]:
            del sys.modules[name]
    closure = scratch.cut("ops/k.py")
    assert len(closure.modules) == 3
    assert "unused" not in "".join(module.text for module in closure.modules)
    assert compiled(load(closure)) == whole


def test_what_changes_the_digest_changes_the_image(scratch: Scratch) -> None:
    """An edit that only the closure sees (a constant, two files away) reaches the compiler in the same process."""
    scratch.files(WHOLE)
    before = scratch.cut("ops/k.py")
    first = compiled(load(before))
    scratch.write(WHOLE["ops/settings.py"].replace("OTHER = 7", "OTHER = 8"), "ops/settings.py")
    after = scratch.cut("ops/k.py")
    assert after.digest != before.digest
    assert compiled(load(after)) != first
    assert compiled(load(before)) == first


def test_line_numbers_and_names_are_the_users(scratch: Scratch) -> None:
    scratch.write(SOFTMAX)
    function = load(scratch.cut())
    assert function.file_name == "/<kiln>/k.py"
    assert function.def_file_line_number == SOFTMAX.split("\n").index("def kernel(out, x, n, N: tl.constexpr):") + 1
    assert inspect.getsource(function.fn).startswith("@triton.jit\ndef kernel(out")
    assert linecache.getline("/<kiln>/k.py", function.def_file_line_number).startswith("def kernel(out")
    assert function.fn.__module__ == "kiln_slice.k"


@pytest.mark.parametrize(
    ("files", "result"),
    [
        ({"k.py": "import lib.a.b\nS = lib.a.b.V\n", "lib/a/b.py": "V = 1\n"}, 1),
        (
            {
                "k.py": "from lib import a\nS = a.b.V\n",
                "lib/a/__init__.py": "from . import b\n",
                "lib/a/b.py": "V = 2\n",
            },
            2,
        ),
        ({"k.py": "from lib import a\nS = a.b.V\n", "lib/a/b.py": "V = 3\n"}, 3),
        ({"k.py": "import lib\nS = lib.V\n", "lib/__init__.py": "V = 4\n"}, 4),
        (
            {
                "k.py": "import lib.a\nimport lib.b as b\nS = lib.a.V + b.V\n",
                "lib/a.py": "V = 1\n",
                "lib/b.py": "V = 4\n",
            },
            5,
        ),
        ({"k.py": "from p import f\nA = 6\nS = f()\n", "p.py": "import k\ndef f():\n    return k.A\n"}, 6),
        ({"k.py": "A = 7\nfrom p import B as S\n", "p.py": "from k import A\nB = A\n"}, 7),
        ({"k.py": "import c\nc.V = 8\nfrom p import S\n", "p.py": "import c\nS = c.V\n", "c.py": "V = 1\n"}, 8),
        ({"k.py": "V = []\nfor i in range(9): V.append(i)\nS = len(V)\n"}, 9),
        ({"k.py": "if True: A = 1; S = 10\nelse:\n    S = 0\n"}, 10),
        (
            {
                "k.py": "from odd import S\n",
                "odd.py": "from importlib_like import S\n",
                "importlib_like.py": "S = 11\n",
            },
            11,
        ),
    ],
)
def test_slices_import_each_other_as_the_files_do(scratch: Scratch, files: dict[str, str], result: int) -> None:
    """Packages, folders, aliases, cycles and changes across files: the value is the one that Python gives."""
    body = "import triton\n@triton.jit\ndef kernel(x):\n    x + S\n"
    scratch.files({**files, "k.py": files["k.py"] + body})
    assert load(scratch.cut()).fn.__globals__["S"] == result


def test_files_whose_names_are_no_identifiers(scratch: Scratch) -> None:
    for file in ("my-ops/k v2.py", "class/def.py", "a_b.py"):
        scratch.write(HEADER + "@triton.jit\ndef kernel(x):\n    x + 1\n", file)
        assert load(scratch.cut(file)).file_name == f"/<kiln>/{file}"


def failure(scratch: Scratch) -> str:
    with pytest.raises(ClosureError) as caught:
        load(scratch.cut())
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    print(caught.value)
    return str(caught.value)


def test_code_that_raises(scratch: Scratch) -> None:
    """The message names the user's lines and nothing of Kiln's or Python's import system."""
    scratch.files(
        {
            "k.py": "import triton\nfrom h import f\n\nS = f(0)\n@triton.jit\ndef kernel(x):\n    x + S\n",
            "h.py": "def f(n):\n    return g(n)\n\n\ndef g(n):\n    return 1 // n\n",
        }
    )
    message = failure(scratch)
    assert message.startswith("h.py:6:1: the code that kernel needs raises ZeroDivisionError\n")
    assert "called from h.py:2, in f" in message
    assert "called from k.py:4, in <module>" in message
    assert "kiln/closure" not in message and "importlib" not in message


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"h.py": "from g import S\n", "g.py": "from h import S\n"}, "g.py:1:1"),
        ({"h.py": "from h import S\n"}, "h.py:1:1"),
    ],
)
def test_files_that_import_a_name_in_a_ring(scratch: Scratch, files: dict[str, str], place: str) -> None:
    """The message has the names of files, and not those of the modules that they are in a slice."""
    kernel = "import triton\nfrom h import S\n@triton.jit\ndef kernel(x):\n    x + S\n"
    scratch.files({"k.py": kernel, **files})
    message = failure(scratch)
    assert message.startswith(f"{place}: the code that kernel needs raises ImportError\n")
    assert "cannot import name 'S' from h.py\n" in message
    assert "remedy: files import each other here, and h.py has not bound the name yet" in message
    assert "kiln_slice" not in message


def test_code_that_leaves(scratch: Scratch) -> None:
    scratch.write("import triton\nS = quit(3)\n@triton.jit\ndef kernel(x):\n    x + S\n")
    assert failure(scratch).startswith("k.py:2:1: the code that kernel needs raises SystemExit\n")


def test_a_part_of_triton_that_is_not_there(scratch: Scratch) -> None:
    scratch.write("import triton\nfrom triton.language import gone\n@triton.jit\ndef kernel(x):\n    gone(x)\n")
    message = failure(scratch)
    assert message.startswith("k.py:2:1: the code that kernel needs raises ImportError\n")
    assert "cannot import name 'gone' from 'triton.language'" in message


def test_an_interpreted_function(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    scratch.write(HEADER + "@triton.jit\ndef kernel(x):\n    tl.store(x, 1)\n")
    assert "unset TRITON_INTERPRET" in failure(scratch)


def test_parameters_that_triton_reads_otherwise(scratch: Scratch) -> None:
    """An annotation whose meaning only shows at run time is noticed before anything is compiled."""
    scratch.write(HEADER + "def kind():\n    return tl.constexpr\n@triton.jit\ndef kernel(x, N: kind()):\n    x + N\n")
    message = failure(scratch)
    assert "expected: x, N\n" in message
    assert "actual: x, N: constexpr\n" in message


def test_an_earlier_closure_is_forgotten(scratch: Scratch) -> None:
    scratch.files(
        {"k.py": "import triton\nfrom h import S\n@triton.jit\ndef kernel(x):\n    x + S\n", "h.py": "S = 1\n"}
    )
    assert load(scratch.cut()).fn.__globals__["S"] == 1
    scratch.write("S = 2\n", "h.py")
    assert load(scratch.cut()).fn.__globals__["S"] == 2
    other = scratch.cut()
    empty = Closure(
        function="kernel",
        position=other.position,
        entry="kernel",
        modules=(SlicedModule(name="kiln_slice.k", file="k.py", text="from kiln_slice.h import S\n"),),
        parameters=(),
        sources=(),
        digest="",
        components={},
    )
    with pytest.raises(ClosureError, match=r"No module named 'kiln_slice\.h'"):
        load(empty)
