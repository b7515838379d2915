"""Kernels in classes, in functions that make them, behind star imports: each image is that of the whole module."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch, kept

from kiln.closure.load import forget, load, named
from kiln.closure.slice import Closure
from kiln.errors import ClosureError, Position
from kiln.manifest.constants import FunctionConstant

TORCH = "import torch\nimport numpy as np\n" + HEADER
STORE = """
@triton.jit
def kernel(out, x, N: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(out + i, tl.load(x + i) * {})
"""


@dataclass(frozen=True, kw_only=True)
class Form:
    files: Mapping[str, str]
    function: str = "kernel"
    given: Mapping[str, object] = field(default_factory=dict)
    whole: str = "k.kernel"
    """the kernel in the imported module, as an expression"""
    names: str
    """what the closure keeps"""
    functions: tuple[str, ...] = ()
    constant: str = "1"
    """N, as an expression over the imported module `k`"""
    absent: tuple[str, ...] = ("torch", "np.")
    """texts that the slice must not have"""


FORMS = {
    "constants in classes": Form(
        files={
            "k.py": TORCH
            + """
class Softmax(torch.autograd.Function):
    BLOCK = tl.constexpr(4)
    buffer = torch.empty(3)

    @staticmethod
    def forward(ctx, x):
        return torch.softmax(x)


class Config:
    BASE = 3
    OTHER = torch.float16
    SIZE = tl.constexpr(BASE * 2)

    def run(self):
        return torch.ones(self.OTHER)
"""
            + "\nBLOCK = Softmax.BLOCK\nSIZE = Config.SIZE\n"
            + STORE.format("(BLOCK + SIZE + N)"),
        },
        names="triton tl Softmax Config BLOCK SIZE kernel",
    ),
    "instances and members": Form(
        files={
            "k.py": TORCH
            + """
from dataclasses import dataclass, field
from enum import IntEnum, auto


@dataclass(frozen=True)
class Tile:
    rows: int = 2
    columns: int = field(default=8)

    def area(self):
        return self.scaled(1)

    def scaled(self, by):
        return self.rows * self.columns * by

    def allocate(self):
        return torch.empty(self.rows)


class Mode(IntEnum):
    FIRST = auto()
    SECOND = auto()

    def flag(self):
        return torch.tensor(self.value)


TILE = Tile(rows=4)
AREA = tl.constexpr(TILE.area() + Mode.SECOND)
"""
            + STORE.format("AREA"),
        },
        names="triton tl dataclass field IntEnum auto Tile Mode TILE AREA kernel",
    ),
    "a kernel in a class": Form(
        files={
            "k.py": TORCH
            + """
class Ops(torch.nn.Module):
    SCALE: tl.constexpr = tl.constexpr(3)

    def forward(self, x):
        return torch.relu(x)

    @staticmethod
    @triton.jit
    def scaled(x):
        return x * SCALE

    @triton.autotune(
        configs=[triton.Config({"N": 1})],
        key=["N"],
    )
    @triton.heuristics({"N": lambda given: torch.x})
    @triton.jit(do_not_specialize=["x"])
    def kernel(out, x: torch.Tensor, N: tl.constexpr):
        i = tl.arange(0, 16)
        tl.store(out + i, scaled(tl.load(x + i)) + N)


scaled = Ops.scaled
SCALE = Ops.SCALE
"""
        },
        function="Ops.kernel",
        whole="k.Ops.kernel.fn.fn",
        names="triton tl Ops scaled SCALE",
    ),
    "a kernel in a function": Form(
        files={
            "k.py": TORCH
            + """
import functools


@functools.lru_cache
def make_kernel(gain, shift=2, dtype=torch.float16, device: torch.device = torch.device("cuda")):
    '''Makes a kernel.'''
    import torch.nn.functional as F

    scale = tl.constexpr(gain * 2)
    table = {}
    table["offset"] = shift
    if gain > 3:
        extra = tl.constexpr(table["offset"])
    else:
        extra = tl.constexpr(0)
    weights = F.relu(torch.empty(gain, device=device, dtype=dtype))

    @triton.jit
    def helper(x):
        return x * scale

    @triton.autotune(configs=torch.configs, key=[])
    @triton.jit
    def kernel(out, x, N: tl.constexpr):
        i = tl.arange(0, 16)
        tl.store(out + i, helper(tl.load(x + i)) + extra)

    def launch(x):
        kernel[(1,)](x, weights)

    return launch
"""
        },
        function="make_kernel.kernel",
        given={"gain": 5, "unknown": 1},
        whole="k.make_kernel(5).__closure__[0].cell_contents.fn",
        names="triton tl make_kernel",
    ),
    "a function constant given to a function that makes kernels": Form(
        files={
            "k.py": TORCH
            + """
@triton.jit
def doubled(x):
    return x + x


def make(act):
    @triton.jit
    def kernel(out, x, N: tl.constexpr):
        i = tl.arange(0, 16)
        tl.store(out + i, act(tl.load(x + i)))

    return kernel
"""
        },
        function="make.kernel",
        given={"act": FunctionConstant(name="doubled")},
        whole="k.make(k.doubled)",
        functions=("doubled",),
        names="triton tl doubled make",
    ),
    "a kernel that a function made": Form(
        files={
            "k.py": "from lib.make import make_kernels\n\nkernel, other = make_kernels(4)\n",
            "lib/make.py": TORCH
            + """
def make_kernels(gain, device=torch.device("cuda")):
    import triton as t
    from triton import language as lang

    scale = lang.constexpr(gain)
    probe = torch.zeros(1, device=device)

    def plain(out, x, N: lang.constexpr):
        i = lang.arange(0, 16)
        lang.store(out + i, lang.load(x + i) * scale)

    kernel = t.autotune(configs=torch.configs, key=[])(t.jit(plain, debug=True))

    @t.jit
    def other(out, x):
        lang.store(out, lang.load(x))

    return kernel, other
""",
        },
        whole="k.kernel.fn",
        names="make_kernels kernel other lib/make.py:make_kernels",
        absent=("torch",),
    ),
    "a function that changes what others need": Form(
        files={
            "k.py": TORCH
            + """
import lib
import settings

SIZES = [1]


def make(n):
    lib.setup(n)
    SIZES.append(n)
    torch.manual_seed(n)

    def more():
        SIZES.append(2)

    more()
    print(n)

    @triton.jit
    def kernel(out, x, N: tl.constexpr):
        i = tl.arange(0, 16)
        tl.store(out + i, tl.load(x + i) * scale() + lib.gain())

    return kernel


def unrelated():
    SIZES.clear()
    return torch.empty(1)


kernel = make(3)
COUNT = tl.constexpr(len(SIZES))


@triton.jit
def scale():
    return COUNT
""",
            "lib.py": HEADER
            + "import settings\ndef setup(n):\n    settings.GAIN = tl.constexpr(n)\n"
            + "@triton.jit\ndef gain():\n    return settings.GAIN\n",
            "settings.py": "import torch\nGAIN = 1\nOTHER = torch.x\n",
        },
        names="triton tl lib SIZES make kernel COUNT scale lib.py:settings lib.py:setup lib.py:gain lib.py:triton "
        "lib.py:tl settings.py:GAIN",
    ),
    "star imports": Form(
        files={
            "k.py": "import triton\nfrom triton.language import *\nfrom ops import *\nfrom ops.public import *\n"
            "@triton.jit\ndef kernel(out, x, N: constexpr):\n"
            "    i = arange(0, 16)\n    store(out + i, scaled(load(x + i)) * GAIN + _SHIFT + cdiv(N, 2))\n",
            "ops/__init__.py": "from .impl import *\nfrom .impl import hidden\nimport torch\n",
            "ops/impl.py": TORCH
            + "GAIN = tl.constexpr(3)\n_SHIFT = 7\nhidden = torch.x\n"
            + "@triton.jit\ndef scaled(x):\n    return x * GAIN\n",
            "ops/public.py": "import torch\nfrom triton.language import constexpr\n__all__ = ['_SHIFT']\n"
            "__all__ += ['other']\n_SHIFT = constexpr(5)\nother = 1\nGAIN = torch.y\n",
        },
        names="triton constexpr arange store load cdiv scaled GAIN _SHIFT kernel ops/__init__.py:scaled "
        "ops/__init__.py:GAIN ops/impl.py:scaled ops/impl.py:GAIN ops/impl.py:tl ops/impl.py:triton "
        "ops/public.py:_SHIFT ops/public.py:constexpr",
    ),
    "functions as constants": Form(
        files={
            "k.py": TORCH
            + """
from typing import NamedTuple


@triton.jit
def once(x):
    return x


@triton.jit
def twice(x):
    return first(x) * COUNT


class Chosen(NamedTuple):
    first: object
    others: tuple


CHOSEN = Chosen(first=once, others=({"once": once, "none": None}, once))
first = CHOSEN.first
COUNT = tl.constexpr(len(CHOSEN.others))
UNUSED = (torch.relu,)


@triton.jit
def kernel(out, x, N: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(out + i, N(tl.load(x + i)))
"""
        },
        functions=("twice",),
        constant="k.twice",
        names="triton tl NamedTuple Chosen COUNT first once twice CHOSEN kernel",
    ),
    "decorators of the project that only launch": Form(
        files={
            "k.py": TORCH
            + "import tuning\nfrom tuning import tuned, Recorded\n"
            + "@tuning.libentry()\n@torch.compiler.disable\n@Recorded\n@tuned(configs=torch.configs, key=[])\n"
            + STORE.format("2").lstrip(),
            "tuning.py": """
import functools
import torch
import triton

def tuned(configs, key):
    return lambda fn: triton.runtime.Autotuner(fn, fn.arg_names, configs, key, None, None)


class Recorded:
    def __init__(self, fn):
        self.fn = fn
        self.runs = []

    def run(self, *given):
        self.fn.run = None


def libentry():
    def decorator(fn):
        @functools.wraps(fn)
        def launch(*given):
            return fn[(1,)](*given)

        launch.fn = None
        return Recorded(fn)

    return decorator
""".replace("        launch.fn = None\n", ""),
        },
        whole="k.kernel.fn.fn.fn",
        names="triton tl kernel",
    ),
}


class Anything:
    """Stands for torch and what is read off it; a decorator or a call of it gives a part of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *given: object, **named: object) -> Any:
        return given[0] if given and type(given[0]).__name__ in ("JITFunction", "Autotuner", "Recorded") else Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Base:
    """A class for those that are derived from one of torch's."""


def stub(name: str, **names: object) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__getattr__ = lambda attribute: Anything()  # type: ignore[method-assign]  # PEP 562
    vars(module).update(names)
    return module


@contextmanager
def imported(scratch: Scratch) -> Iterator[Any]:
    """The module k as Python imports it, with stand-ins for what is not installed."""
    functional = stub("torch.nn.functional")
    nn = stub("torch.nn", Module=Base, functional=functional)
    stubs = {
        "torch": stub("torch", nn=nn, autograd=types.SimpleNamespace(Function=Base), configs=[]),
        "torch.nn": nn,
        "torch.nn.functional": functional,
        "numpy": stub("numpy"),
    }
    forget()
    before = dict(sys.modules)
    sys.modules.update(stubs)
    sys.path.insert(0, str(scratch.root))
    try:
        yield importlib.import_module("k")
    finally:
        sys.path.remove(str(scratch.root))
        for name, module in list(sys.modules.items()):
            if name in stubs or str(scratch.root) in repr(vars(module).get("__path__", vars(module).get("__file__"))):
                del sys.modules[name]
        sys.modules.update({name: before[name] for name in stubs if name in before})


def compiled(function: Any, constant: object, target: str = "sm_90a") -> bytes:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import ASTSource, make_backend

    backend = make_backend(GPUTarget("cuda", 90, 32) if target == "sm_90a" else GPUTarget("hip", target, 64))
    options = backend.parse_options({"num_warps": 1, "enable_fp_fusion": True})
    source = ASTSource(function, {"out": "*fp32", "x": "*fp32", "N": "constexpr"}, {"N": constant}, {})
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


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_image_is_that_of_the_whole_module(scratch: Scratch, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    scratch.files(dict(form.files))
    with imported(scratch) as k:
        whole = eval(form.whole, {"k": k})
        expected = compiled(whole, eval(form.constant, {"k": k}))
    closure = scratch.cut(function=form.function, functions=form.functions)
    print("\n".join(module.text for module in closure.modules))
    function = load(closure, form.given)
    constant = named(closure, form.functions[0]) if form.constant != "1" else 1
    assert closure.uncut is None
    assert kept(closure) == set(form.names.split())
    for text in form.absent:
        assert text not in "".join(module.text for module in closure.modules)
    assert compiled(function, constant) == expected
    assert function.fn.__qualname__ == whole.fn.__qualname__
    assert function.def_file_line_number == whole.def_file_line_number
    assert closure.entry == function.fn.__name__


def test_both_vendors(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    form = FORMS["a kernel in a function"]
    scratch.files(dict(form.files))
    with imported(scratch) as k:
        expected = compiled(eval(form.whole, {"k": k}), 1, "gfx942")
    assert compiled(load(scratch.cut(function=form.function), form.given), 1, "gfx942") == expected


def digests(scratch: Scratch, form: Form, file: str, old: str, new: str) -> tuple[str, str]:
    scratch.files(dict(form.files))
    before = scratch.cut(function=form.function, functions=form.functions).digest
    assert old in form.files[file]
    scratch.files({**form.files, file: form.files[file].replace(old, new)})
    return before, scratch.cut(function=form.function, functions=form.functions).digest


MUST = {
    "a constant of a class": ("constants in classes", "k.py", "BASE = 3", "BASE = 4"),
    "a field of a class": ("instances and members", "k.py", "rows: int = 2", "rows: int = 3"),
    "a member before the one that is read": ("instances and members", "k.py", "FIRST = auto()", "FIRST = 5"),
    "a method that is called": (
        "instances and members",
        "k.py",
        "self.rows * self.columns",
        "self.rows + self.columns",
    ),
    "a helper beside a kernel in a class": ("a kernel in a class", "k.py", "x * SCALE", "x + SCALE"),
    "what a function that makes kernels computes": ("a kernel in a function", "k.py", "gain * 2", "gain * 3"),
    "a change in it": ("a kernel in a function", "k.py", 'table["offset"] = shift', 'table["offset"] = shift + 1'),
    "a condition in it": ("a kernel in a function", "k.py", "gain > 3", "gain > 4"),
    "a default of it": ("a kernel in a function", "k.py", "shift=2", "shift=3"),
    "what is given to it": ("a kernel that a function made", "k.py", "(4)", "(5)"),
    "what a star import brings": ("star imports", "ops/impl.py", "constexpr(3)", "constexpr(4)"),
    "the list of a star import": ("star imports", "ops/public.py", "['other']", "['other', 'GAIN']"),
    "a function that is a constant": ("functions as constants", "k.py", "return x\n", "return -x\n"),
}
MUST["the list of a star import"] = (
    "star imports",
    "ops/public.py",
    "GAIN = torch.y",
    "GAIN = 4\n__all__.append('GAIN')",
)

MUST_NOT = {
    "another attribute of a class": ("constants in classes", "k.py", "torch.float16", "torch.float32"),
    "another method": ("constants in classes", "k.py", "torch.ones(self.OTHER)", "torch.zeros(1)"),
    "a method that nobody calls": ("instances and members", "k.py", "torch.empty(self.rows)", "torch.ones(1)"),
    "what a class is derived from, where that is torch's": (
        "a kernel in a class",
        "k.py",
        "torch.nn.Module",
        "torch.nn.Linear",
    ),
    "configurations of a kernel in a class": ("a kernel in a class", "k.py", '{"N": 1}', '{"N": 2}'),
    "what a function only launches": ("a kernel in a function", "k.py", "kernel[(1,)]", "kernel[(2,)]"),
    "what it computes for launches": ("a kernel in a function", "k.py", "torch.empty(gain", "torch.ones(gain"),
    "a default that does not matter": ("a kernel in a function", "k.py", 'torch.device("cuda")', "None"),
    "a name that a star import brings to nobody": ("star imports", "ops/public.py", "other = 1", "other = 2"),
    "what wraps a launch": ("decorators of the project that only launch", "tuning.py", "fn[(1,)]", "fn[(2,)]"),
    "a constant that no kernel is given": ("functions as constants", "k.py", "torch.relu", "torch.gelu"),
}


@pytest.mark.parametrize(("form", "file", "old", "new"), MUST.values(), ids=MUST)
def test_changes_the_digest(scratch: Scratch, form: str, file: str, old: str, new: str) -> None:
    before, after = digests(scratch, FORMS[form], file, old, new)
    assert before != after


@pytest.mark.parametrize(("form", "file", "old", "new"), MUST_NOT.values(), ids=MUST_NOT)
def test_leaves_the_digest(scratch: Scratch, form: str, file: str, old: str, new: str) -> None:
    before, after = digests(scratch, FORMS[form], file, old, new)
    assert before == after


HERE = Position(file="kernels.yaml", line=9, column=5)
FACTORY = HEADER + "def make(n, m=2):\n    @triton.jit\n    def kernel(x):\n        tl.store(x, n)\n    return kernel\n"

REFUSED = {
    "a kernel in a function, named alone": (
        {"k.py": FACTORY},
        "kernel",
        "k.py:5:5: kernel is not at module level, but inside of make",
        "write `function: make.kernel`",
    ),
    "nothing of that name in a function": (
        {"k.py": FACTORY},
        "make.kernal",
        "kernels.yaml:9:5: make has nothing called 'kernal' in it",
        "did you mean 'kernel'?",
    ),
    "a plain function in a class": (
        {"k.py": HEADER + "class Ops:\n    def kernel(x):\n        pass\n"},
        "Ops.kernel",
        "kernels.yaml:9:5: Ops.kernel is not a Triton function",
        "decorate the function with @triton.jit",
    ),
    "no such class": (
        {"k.py": HEADER + "class Ops:\n    pass\n"},
        "Op.kernel",
        "kernels.yaml:9:5: k.py has no class or function 'Op'",
        "did you mean 'Ops'?",
    ),
    "a path through a number": (
        {"k.py": HEADER + "class Ops:\n    size = 1\n"},
        "Ops.size.kernel",
        "k.py:4:5: Ops.size.kernel leads nowhere: size = 1 is neither a class nor a function",
        "a path such as Ops.kernel",
    ),
    "a function in a function": (
        {"k.py": HEADER + "def outer():\n    def make():\n        pass\n"},
        "outer.make.kernel",
        "k.py:4:5: outer.make.kernel leads into a function that stands inside another definition",
        "move make out to module level",
    ),
    "a decorator that changes what it gets": (
        {
            "k.py": HEADER + "from tuning import changed\n@changed\n@triton.jit\ndef kernel(x):\n    pass\n",
            "tuning.py": "def changed(fn):\n    fn.noinline = True\n    return fn\n",
        },
        "kernel",
        "k.py:4:2: kernel has a decorator that Kiln does not know: @changed",
        "decorate it where it is launched",
    ),
    "a decorator that compiles anew": (
        {
            "k.py": HEADER + "from tuning import changed\n@changed\n@triton.jit\ndef kernel(x):\n    pass\n",
            "tuning.py": "import triton\ndef changed(fn):\n    return triton.jit(fn.fn)\n",
        },
        "kernel",
        "k.py:4:2: kernel has a decorator that Kiln does not know: @changed",
        "",
    ),
    "a decorator below triton.jit": (
        {
            "k.py": HEADER + "from tuning import same\n@triton.jit\n@same\ndef kernel(x):\n    pass\n",
            "tuning.py": "def same(fn):\n    return fn\n",
        },
        "kernel",
        "k.py:5:2: kernel has a decorator that Kiln does not know: @same",
        "",
    ),
    "a decorator on a kernel in a class": (
        {
            "k.py": HEADER
            + "import lib\nclass Ops:\n    @lib.entry\n    @triton.jit\n    def kernel(x):\n        pass\n"
        },
        "Ops.kernel",
        "k.py:5:6: kernel has a decorator that Kiln does not know: @lib.entry",
        "@lib.entry, which is lib.entry",
    ),
}


@pytest.mark.parametrize(("files", "function", "head", "detail"), REFUSED.values(), ids=REFUSED)
def test_refuses(scratch: Scratch, files: dict[str, str], function: str, head: str, detail: str) -> None:
    scratch.files(files)
    with pytest.raises(ClosureError) as caught:
        scratch.cut(function=function, where=HERE)
    message = str(caught.value)
    print(message)
    assert message.startswith(head)
    assert detail in message
    assert "remedy: " in message


def test_parameters_of_a_function_that_makes_kernels(scratch: Scratch) -> None:
    """Those that the kernel depends on are asked for, unless they have a default that needs no package."""
    scratch.write(
        TORCH
        + "def make(a, b, c=1, d=torch.float16, *, e=torch.x, f):\n    used = tl.constexpr(a + c)\n"
        + "    other = torch.empty(b)\n    @triton.jit\n    def kernel(x):\n        tl.store(x, used + d + f)\n"
    )
    closure: Closure = scratch.cut(function="make.kernel")
    assert closure.factory == "make"
    assert [(item.name, item.has_default) for item in closure.factory_parameters] == [
        ("a", False),
        ("c", True),
        ("d", False),
        ("f", False),
    ]
    function = load(closure, {"a": 1, "d": 2, "f": 3})
    assert {name: function.get_capture_scope()[name] for name in ("used", "d", "f")} == {"used": 2, "d": 2, "f": 3}


def test_text_inside_of_definitions_stays_in_its_lines(scratch: Scratch) -> None:
    """Statements that share a line, blocks that get empty, and decorators over several lines."""
    scratch.write(
        """\
        import torch, triton
        import triton.language as tl
        class A(torch.X,
                torch.Y):
            x = torch.a; y = tl.constexpr(1); z = [
                torch.b,
            ]; w = 2
            @torch.c
            def method(self):
                return 1
        class B: size = torch.size; rows = tl.constexpr(2)  # both
        def make(n, m=torch.m):
            if n: k = 1; j = torch.j
            elif torch.e: pass
            else:
                launch = torch.l
            for i in range(3): torch.i(i)
            @triton.autotune(
                configs=torch.configs,
            )
            # between
            @triton.jit(
                repr=torch.repr,
            )
            def kernel(x):
                tl.store(x, k + ONE + TWO)  # stays
            torch.late(kernel)
            return torch.wrap(kernel)
        ONE = A.y
        TWO = B.rows
        """
    )
    closure = scratch.cut(function="make.kernel")
    lines = dict(enumerate(closure.modules[0].text.split("\n"), 1))
    assert {number: " ".join(line.split()) for number, line in lines.items() if line.strip()} == {
        1: "import triton",
        2: "import triton.language as tl",
        3: "class A(object\\",
        4: "):",
        5: "pass ; y = tl.constexpr(1); pass\\",
        6: "\\",
        7: "; pass",
        11: "class B: pass ; rows = tl.constexpr(2)",
        12: "def make(n, m=None ):",
        13: "if n: k = 1; pass",
        14: "pass",
        21: "# between",
        22: "@triton.jit",
        25: "def kernel(x):",
        26: "tl.store(x, k + ONE + TWO) # stays",
        29: "ONE = A.y",
        30: "TWO = B.rows",
    }
    function = load(closure, {"n": 1})
    assert function.def_file_line_number == 25
    assert function.get_capture_scope()["k"] == 1
