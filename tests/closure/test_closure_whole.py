"""What only a run can follow is imported as it stands: alone, under its own names, and with all of it in the digest."""

from __future__ import annotations

import dataclasses
import linecache
import os
import sys
import types
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch
from closure_worlds import CUDA

from kiln.closure.load import load, named
from kiln.errors import ClosureError

KERNEL = "\n@triton.jit\ndef kernel(x):\n    x + S\n"
RUN_TIME = "S = eval('tl.constexpr(1 + 1)')\n"


def globals_of(scratch: Scratch, file: str = "k.py") -> Any:
    closure = scratch.cut(file)
    assert closure.uncut is not None
    return load(closure).fn.__globals__


def test_the_whole_file_runs_and_says_why(scratch: Scratch) -> None:
    scratch.write(HEADER + "import os\nHERE = os.path.basename(__file__), __name__\n" + RUN_TIME + KERNEL)
    closure = scratch.cut()
    assert closure.uncut is not None and closure.warning is not None
    assert closure.uncut.startswith("k.py:5:5: eval() reaches what cannot be read off the source")
    assert closure.warning.startswith("k.py is imported as it stands to compile kernel, and an edit of any line of it ")
    assert closure.uncut in closure.warning
    function = load(closure)
    assert function.fn.__globals__["HERE"] == ("k.py", "k")
    assert function.fn.__globals__["S"] == 2
    assert named(closure, "S") == 2
    assert function.file_name == "/<kiln>/k.py"
    assert linecache.getline("/<kiln>/k.py", function.def_file_line_number) == "def kernel(x):\n"
    assert [parameter.name for parameter in closure.parameters] == ["x"]
    assert closure.entry == "kernel"


def test_it_says_what_may_bind_a_name_that_does_not_stand_there(scratch: Scratch) -> None:
    scratch.write(HEADER + "for name in ('S',):\n    globals()[name] = 5\n" + KERNEL)
    closure = scratch.cut()
    assert closure.warning is not None and "the name 'S' is not defined in k.py" in closure.warning
    assert "; the file has globals(), which may bind names that do not stand there" in closure.warning
    assert load(closure).fn.__globals__["S"] == 5


def test_what_can_be_cut_has_no_warning(scratch: Scratch) -> None:
    scratch.write(HEADER + "S = 1\n" + KERNEL)
    assert scratch.cut().warning is None


FILES = {
    "ops/__init__.py": "from . import settings\nAROUND = 1\n",
    "ops/k.py": HEADER
    + "from .lib.h import f\nimport ops.settings as s\nimport beside\nfrom ops.lib import late\n"
    + "from top import *\nS = eval('f(s.BASE) + beside.N + late.L + T')\n"
    + KERNEL,
    "ops/settings.py": "BASE = 10\n",
    "ops/beside.py": "N = 100\n",
    "ops/lib/__init__.py": "",
    "ops/lib/h.py": "def f(n):\n    from ..deep import D\n    return n + D\n",
    "ops/lib/late.py": "L = 1000\n",
    "ops/deep.py": "D = 1\n",
    "ops/unused.py": "raise SystemExit\n",
    "top.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nT = 10000\n",
}


def test_all_that_it_imports(scratch: Scratch) -> None:
    """Relative and absolute imports, of files beside it, inside of functions, and the packages around them."""
    scratch.files(FILES)
    closure = scratch.cut("ops/k.py")
    assert {module.name: module.file for module in closure.modules} == {
        "ops.k": "ops/k.py",
        "ops": "ops/__init__.py",
        "ops.settings": "ops/settings.py",
        "ops.lib": "ops/lib/__init__.py",
        "ops.lib.h": "ops/lib/h.py",
        "ops.lib.late": "ops/lib/late.py",
        "ops.deep": "ops/deep.py",
        "beside": "ops/beside.py",
        "top": "top.py",
    }
    assert closure.modules[0].name == "ops.k"
    assert set(closure.sources) == {scratch.root / module.file for module in closure.modules}
    path = list(sys.path)
    assert load(closure).fn.__globals__["S"] == 11111
    assert sys.path == path


@pytest.mark.parametrize("file", sorted(FILES))
def test_any_edit_of_what_it_imports_changes_the_digest(scratch: Scratch, file: str) -> None:
    scratch.files(FILES)
    before = scratch.cut("ops/k.py").digest
    scratch.write(FILES[file] + "# a comment\n", file)
    assert (scratch.cut("ops/k.py").digest == before) == (file == "ops/unused.py")


def test_wrapped_kernels(scratch: Scratch) -> None:
    """Decorators run for real, and the kernel is found behind those that launch."""
    scratch.write(
        HEADER
        + RUN_TIME
        + "class Launcher:\n    def __init__(self, fn):\n        self.fn = fn\n"
        + "@Launcher\n@triton.autotune(configs=[triton.Config({})], key=[])\n"
        + "@triton.jit(repr=lambda given: 'other')\ndef kernel(x):\n    x + S\n"
    )
    closure = scratch.cut()
    assert closure.uncut is not None
    function = load(closure)
    assert type(function).__name__ == "JITFunction"
    assert function.repr(None) == "k.kernel"


def test_a_class_and_a_function_that_makes_kernels(scratch: Scratch) -> None:
    inner = "@triton.jit\n    def kernel(x):\n        x + S\n"
    scratch.write(HEADER + RUN_TIME + f"class Ops:\n    {inner}def make(n):\n    T = S + n\n    {inner}")
    assert load(scratch.cut(function="Ops.kernel")).fn.__qualname__ == "Ops.kernel"
    made = scratch.cut(function="make.kernel")
    assert made.uncut is not None
    assert [parameter.name for parameter in made.factory_parameters] == ["n"]
    assert load(made, {"n": 3}).fn.__qualname__ == "make.<locals>.kernel"


def test_other_packages_are_not_there(scratch: Scratch) -> None:
    """An installed package makes no difference: neither one that Kiln itself has loaded, nor one that it has not."""
    scratch.write(
        HEADER
        + "found = []\nfor name in ('numpy', 'yaml', 'kiln.errors', 'pytest', 'math'):\n"
        + "    try:\n        found.append(__import__(name).__name__)\n    except ImportError:\n        pass\n"
        + RUN_TIME
        + "S = tl.constexpr(len(found))\n"
        + KERNEL
    )
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ("yaml", "kiln")}
    assert globals_of(scratch)["found"] == ["math"]
    assert before.items() <= sys.modules.items()


def test_the_driver_is_not_asked(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton asks torch whether there is a GPU. Where both are, the answer would be that of the machine that builds."""
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_available=lambda: True)  # type: ignore[attr-defined]  # a stub
    torch.version = types.SimpleNamespace(hip=None)  # type: ignore[attr-defined]  # a stub
    monkeypatch.setitem(sys.modules, "torch", torch)
    scratch.write(HEADER + RUN_TIME + "triton.runtime.driver.active.get_current_target()\n" + KERNEL)
    assert "RuntimeError: 0 active drivers" in failure(scratch)


def failure(scratch: Scratch) -> str:
    with pytest.raises(ClosureError) as caught:
        load(scratch.cut())
    print(caught.value)
    return str(caught.value)


def test_a_file_that_can_neither_be_cut_nor_imported(scratch: Scratch) -> None:
    """Both reasons are told, and the lines of both."""
    scratch.files({"k.py": HEADER + "import h\n" + RUN_TIME + KERNEL, "h.py": "\nimport torch\n"})
    message = failure(scratch)
    assert message.startswith("h.py:2:1: importing k.py for kernel raises ModuleNotFoundError\n")
    assert "actual: ModuleNotFoundError: No module named 'torch'\n    called from k.py:3, in <module>\n" in message
    assert "because the kernel could not be cut out of it:\n    k.py:4:5: eval() reaches" in message


@pytest.mark.parametrize("name", ["random", "triton"])
def test_a_file_that_has_the_name_of_another(scratch: Scratch, name: str) -> None:
    """It cannot be imported, so the reason is that it could not be cut."""
    scratch.write(HEADER + RUN_TIME + KERNEL, f"{name}.py")
    with pytest.raises(ClosureError, match=r"eval\(\) reaches what cannot be read"):
        scratch.cut(f"{name}.py")


def test_a_module_loaded_past_the_import_system(scratch: Scratch) -> None:
    path = scratch.write("N = 5\n", "elsewhere/plugin.py")
    scratch.write(
        HEADER
        + "import importlib.util, sys\n"
        + f"spec = importlib.util.spec_from_file_location('plugin', {str(path)!r})\n"
        + "module = importlib.util.module_from_spec(spec)\nsys.modules['plugin'] = module\n"
        + "spec.loader.exec_module(module)\nS = eval('tl.constexpr(module.N)')\n"
        + KERNEL
    )
    message = failure(scratch)
    del sys.modules["plugin"]
    assert message.startswith(
        "k.py:11:1: k.py loads the module plugin, which is no part of what kernel is compiled from"
    )


def test_what_is_refused_on_purpose_is_not_imported(scratch: Scratch) -> None:
    for refused in ("import torch\nS = torch.zeros(1)\n", "S = int(open('x').read())\n", "S = hash('x')\n", "T = 1\n"):
        scratch.write(HEADER + refused + KERNEL)
        with pytest.raises(ClosureError, match="remedy: "):
            scratch.cut()


@pytest.mark.parametrize(
    ("statement", "raised"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("class Odd(BaseException): pass\nraise Odd('odd')", "k.Odd: odd"),
    ],
)
def test_a_file_that_fails_on_import(scratch: Scratch, statement: str, raised: str) -> None:
    """A slice does not run the statement; a whole file does, and its line is named."""
    scratch.write(HEADER + "S = 1\n" + statement + "\n" + KERNEL)
    load(scratch.cut())
    scratch.write(HEADER + RUN_TIME + statement + "\n" + KERNEL)
    message = failure(scratch)
    assert message.startswith(f"k.py:{4 + statement.count(chr(10))}:1: importing k.py for kernel raises ")
    assert f"actual: {raised}\n" in message


def test_what_it_prints_is_marked(scratch: Scratch, capsys: pytest.CaptureFixture[str]) -> None:
    """A compiler's errors are told by how their lines begin, and a file may print such a line."""
    scratch.write(
        HEADER + "import sys\nprint('error: one', end='')\nprint(' more\\ntwo')\nprint('e', file=sys.stderr)\n"
        + RUN_TIME + KERNEL
    )  # fmt: skip
    globals_of(scratch)
    captured = capsys.readouterr()
    assert captured.out == "k.py printed: error: one more\nk.py printed: two\n"
    assert captured.err == "k.py printed: e\n"


def test_it_finds_the_variables_that_are_declared_and_no_others(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET", "another")
    monkeypatch.setenv("HOME", "/somewhere")
    text = "import os\nENVIRONMENT = dict(os.environ)\nos.environ['OWN'] = '1'\n" + RUN_TIME + KERNEL
    scratch.write(HEADER + text)
    closure = scratch.cut()
    assert load(closure).fn.__globals__["ENVIRONMENT"] == {"SET": "1"}
    assert os.environ["SET"] == "another" and os.environ["HOME"] == "/somewhere" and "OWN" not in os.environ
    other = scratch.cut(world=dataclasses.replace(CUDA, environment={"SET": "2", "UNSET": None}))
    assert closure.asked == other.asked == ("environment SET", "environment UNSET")
    assert closure.digest != other.digest


@pytest.mark.parametrize(
    "read",
    [
        "import os\nV = os.environ.get('HOME')\n",
        "import os as o\nV = o.environ['HOME']\n",
        "from os import environ as e\nV = 'HOME' in e\n",
        "from os import getenv\ndef f():\n    return getenv('HOME', '')\n",
    ],
)
def test_it_must_not_read_another_variable(scratch: Scratch, read: str) -> None:
    scratch.files({"k.py": HEADER + "import other\n" + RUN_TIME + KERNEL, "other.py": read})
    message = scratch.refusal()
    assert "the kernel depends on the environment variable HOME, which kernels.yaml does not declare" in message
    assert message.startswith("other.py:") and "imported as it stands: k.py:4:5: eval() reaches" in message
    assert 'remedy: add `environment: {HOME: "..."}`' in message
    scratch.write(read.replace("HOME", "SET"), "other.py")
    assert scratch.cut().uncut is not None
