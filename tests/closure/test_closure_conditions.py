"""Conditions at module level: the live branch is cut, for the target; what is dead or not asked for changes nothing."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from closure_scratch import HEADER, Scratch, kept
from closure_worlds import CUDA, HIP

from kiln.closure.load import load
from kiln.closure.slice import Closure
from kiln.closure.world import World
from kiln.errors import ClosureError

KERNEL = """
@triton.jit
def kernel(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), S)
"""


def write(scratch: Scratch, text: str, kernel: str = KERNEL) -> None:
    scratch.write(HEADER + textwrap.dedent(text) + kernel)


def value(closure: Closure, name: str = "S") -> Any:
    """What a name of the kernel's module stands for once the slice has run."""
    found = load(closure).fn.__globals__[name]
    return getattr(found, "value", found)


PROBES = """
import torch

def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"

"""


@pytest.mark.parametrize(
    ("before", "test", "live"),
    [
        ("TYPE_CHECKING = True", "TYPE_CHECKING", 1),
        ("TYPE_CHECKING = False", "TYPE_CHECKING", 2),
        ("from other import TYPE_CHECKING", "TYPE_CHECKING", 1),
        ("import other as t", "t.TYPE_CHECKING", 1),
        ("import typing as t", "t.TYPE_CHECKING", 2),
        ("from typing import TYPE_CHECKING as CHECKED", "not CHECKED", 1),
        ("N = 2", "(N := 3) > 2", 1),
    ],
)
def test_a_file_may_have_the_name_for_something_else(scratch: Scratch, before: str, test: str, live: int) -> None:
    scratch.write("TYPE_CHECKING = True\n", "other.py")
    write(scratch, f"{before}\nif {test}:\n    S = tl.constexpr(1)\nelse:\n    S = tl.constexpr(2)\n")
    assert value(scratch.cut()) == live


def test_the_live_branch_is_kept_and_the_dead_one_is_not(scratch: Scratch) -> None:
    write(
        scratch,
        """
        FLAG = 3
        if FLAG > 2:
            S = tl.constexpr(1)
        elif FLAG == 2:
            S = tl.constexpr(not_there)
        else:
            import torch
            S = tl.constexpr(torch.zeros(1))
        """,
    )
    closure = scratch.cut()
    assert kept(closure) == {"kernel", "S", "tl", "triton"}
    assert closure.uncut is None
    assert closure.asked == ()
    assert value(closure) == 1


@pytest.mark.parametrize(("flag", "expected"), [(3, 1), (2, 2), (1, 3), (0, 4)])
def test_branches_at_any_depth(scratch: Scratch, flag: int, expected: int) -> None:
    write(
        scratch,
        f"""
        FLAG = {flag}
        if FLAG > 1:
            if FLAG == 3:
                S = tl.constexpr(1)
            else:
                S = tl.constexpr(2)
        elif FLAG: S = tl.constexpr(3)
        else:
                # Deeper than the other blocks.
                S = tl.constexpr(4)
        """,
    )
    assert value(scratch.cut()) == expected


def test_a_kernel_and_its_helpers_under_a_condition(scratch: Scratch) -> None:
    scratch.write(
        HEADER
        + PROBES
        + textwrap.dedent(
            """
            if is_hip():
                @triton.jit
                def helper(x):
                    return x + 1
            else:
                @triton.jit
                def helper(x):
                    return x + 2

            if torch.cuda.is_available():
                @triton.jit
                def kernel(x):
                    tl.store(x, helper(3))
            """
        )
    )
    cuda, hip = scratch.cut(), scratch.cut(world=HIP)
    assert "x + 2" in cuda.modules[0].text and "x + 1" not in cuda.modules[0].text
    assert "x + 1" in hip.modules[0].text and "x + 2" not in hip.modules[0].text
    assert cuda.digest != hip.digest
    assert cuda.asked == hip.asked == ("backend",)
    assert kept(cuda) == {"helper", "kernel", "tl", "triton", "backend"}
    assert load(hip).fn.__name__ == "kernel"


def test_names_decided_in_another_file(scratch: Scratch) -> None:
    scratch.write("import os\nFAST = os.environ.get('SET') == '1'\n", "flags.py")
    scratch.write(f"{HEADER}import flags\nif flags.FAST:\n    S = tl.constexpr(1)\nelse:\n    S = 0\n", "cfg.py")
    write(scratch, "from cfg import S\n")
    closure = scratch.cut()
    assert value(closure) == 1
    assert closure.asked == ("environment SET",)


def test_names_bound_more_than_once(scratch: Scratch) -> None:
    write(
        scratch,
        """
        S = tl.constexpr(1)
        if True and not False:
            S = tl.constexpr(S.value + 1)
        BIG = S.value > 1
        if BIG:
            S = tl.constexpr(S.value * 10)
        if not BIG:
            S = tl.constexpr(0)
        """,
    )
    assert value(scratch.cut()) == 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("try:\n    from flash_attn import S\nexcept ImportError:\n    S = tl.constexpr(2)\n", 2),
        ("try:\n    from other import S\nexcept ImportError:\n    S = tl.constexpr(2)\n", 7),
        ("try:\n    from other import T as S\nexcept ImportError:\n    from other import S\n", 7),
        ("try:\n    from pkg.no_such import S\nexcept ModuleNotFoundError:\n    from other import S\n", 7),
        (
            "try:\n    import einops\n    S = tl.constexpr(1)\n"
            "except (ImportError, KeyError):\n    S = tl.constexpr(2)\n",
            2,
        ),
        ("try:\n    import math\nexcept ImportError:\n    S = 0\nelse:\n    S = tl.constexpr(3)\n", 3),
        ("try:\n    S = 1\nfinally:\n        S = tl.constexpr(4)\n", 4),
        ("try:\n    S = tl.constexpr(1)\n    import einops\nexcept ImportError:\n    pass\n", 1),
        ("try:\n    tl.no_such_thing\n    S = 0\nexcept AttributeError:\n    S = tl.constexpr(5)\n", 5),
        ("try:\n    tl.dot\nexcept AttributeError: S = 0\nelse:\n    S = tl.constexpr(6)\n", 6),
        ("if True:\n    try:\n        import einops\n    except ImportError:\n        S = tl.constexpr(8)\n", 8),
        ("D = {}\ntry:\n    S = D['k']\nexcept KeyError:\n    S = tl.constexpr(9)\n", 9),
        ("import json\ntry:\n    json.no_such\n    S = 0\nexcept AttributeError:\n    S = tl.constexpr(2)\n", 2),
        ("import json\ntry:\n    json.loads\n    S = tl.constexpr(2)\nexcept AttributeError:\n    S = 0\n", 2),
        ("try:\n    from collections import Mapping\n    S = 0\nexcept ImportError:\n    S = tl.constexpr(3)\n", 3),
        ("try:\n    from os import path\n    S = tl.constexpr(3)\nexcept ImportError:\n    S = 0\n", 3),
        ("try:\n    S = int.no_such\nexcept AttributeError:\n    S = tl.constexpr(4)\n", 4),
    ],
)
def test_what_a_try_comes_to(scratch: Scratch, text: str, expected: int) -> None:
    scratch.write(f"{HEADER}S = tl.constexpr(7)\n", "other.py")
    scratch.write("", "pkg/__init__.py")
    write(scratch, text)
    closure = scratch.cut()
    assert closure.uncut is None
    assert value(closure) == expected


def test_the_import_that_resolves_is_kept(scratch: Scratch) -> None:
    kernel = KERNEL.replace(", S)", ", libdevice.rint(1.0))")
    write(
        scratch,
        """
        try:
            from triton.language.no_such_place import libdevice
        except ImportError:
            try:
                from triton.language.extra import libdevice
            except ImportError:
                libdevice = tl.math
        """,
        kernel,
    )
    assert value(scratch.cut(), "libdevice").__name__ == "triton.language.extra.libdevice"


def digest(scratch: Scratch, text: str, world: World = CUDA) -> str:
    write(scratch, text)
    return scratch.cut(world=world).digest


BASE = (
    PROBES
    + """
import os
LIMIT = 4
if LIMIT > 3 and os.getenv("UNSET") is None:
    S = tl.constexpr(64 if is_hip() else 32)
else:
    S = tl.constexpr(16)
"""
)
CHANGES = {
    "the live branch": ("else 32", "else 48"),
    "the value tested": ("LIMIT = 4", "LIMIT = 1"),
    "the condition": ("LIMIT > 3 and", "LIMIT > 4 and"),
    "the probe": ('== "hip"', '!= "hip"'),
}
KEEPS = {
    "the dead branch": ("constexpr(16)", "constexpr(17)"),
    "the value tested, with the same outcome": ("LIMIT = 4", "LIMIT = 5"),
    "the condition, with the same outcome": ("LIMIT > 3 and", "LIMIT > 2 and"),
    "the side of the probe that is not the target's": ("64 if", "128 if"),
    "a condition that nothing needs": ("import os\n", "import os\nif os.name == 'nt': Z = 1\n"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_decides_changes_the_digest(scratch: Scratch, name: str) -> None:
    assert digest(scratch, BASE) != digest(scratch, BASE.replace(*CHANGES[name]))


@pytest.mark.parametrize("name", KEEPS)
def test_what_decides_nothing_leaves_it(scratch: Scratch, name: str) -> None:
    old, new = KEEPS[name]
    assert old in BASE
    assert digest(scratch, BASE) == digest(scratch, BASE.replace(old, new))


def test_targets_that_answer_alike_have_one_digest(scratch: Scratch) -> None:
    sm80 = World(backend="cuda", arch=80, warp_size=32, triton_version="3.9.0", environment=CUDA.environment)
    assert digest(scratch, BASE) == digest(scratch, BASE, sm80) != digest(scratch, BASE, HIP)
    by_arch = (
        "import torch\nif torch.cuda.get_device_capability() >= (9, 0):\n    S = tl.constexpr(1)\nelse:\n    S = 2\n"
    )
    assert digest(scratch, by_arch) != digest(scratch, by_arch, sm80)


def test_the_environment_is_part_of_it_where_it_is_read(scratch: Scratch) -> None:
    other = World(backend="cuda", arch=90, warp_size=32, triton_version="3.9.0", environment={"SET": "2"})
    more = World(backend="cuda", arch=90, warp_size=32, triton_version="3.9.0", environment={"SET": "1", "MORE": "3"})
    text = "import os\nif os.environ['SET'] == '1':\n    S = tl.constexpr(1)\nelse:\n    S = tl.constexpr(2)\n"
    assert digest(scratch, text) == digest(scratch, text, more) != digest(scratch, text, other)


CONSTANTS = [
    ("import torch\nS = tl.constexpr(torch.finfo(torch.float32).max)", 3.4028234663852886e38, None),
    ("import numpy as np\nS = tl.constexpr(-np.finfo(np.float16).max)", -65504.0, None),
    ("import torch\nF = torch.finfo\nS = tl.constexpr(F(torch.bfloat16).eps)", 2**-7, None),
    ("import torch\nI = torch.iinfo(torch.int32)\nS = tl.constexpr(I.min)", -(2**31), None),
    ("from triton.runtime import driver\nS = tl.constexpr(driver.active.get_current_target().warp_size)", 32, 64),
    ("import torch\nHIP = torch.version.hip is not None\nS = tl.constexpr(2 if HIP else 1)", 1, 2),
    ("import os\nS = tl.constexpr(int(os.environ.get('UNSET', '7')))", 7, None),
    ("import os\nS = tl.constexpr(os.getenv('SET') == '1')", True, None),
    ("import sys\nS = tl.constexpr(1 if sys.platform == 'linux' else 2)", 1, None),
    ("import platform\nS = tl.constexpr({'Linux': 5}[platform.system()])", 5, None),
    (PROBES + "def pick(n):\n    if is_hip():\n        return n * 2\n    return n\nS = tl.constexpr(pick(8))", 8, 16),
    (
        "def cap():\n    import torch\n    t = torch.cuda.get_device_capability()\n    return t[0] * 10 + t[1]\n"
        "S = tl.constexpr(cap())",
        90,
        94,
    ),
    (
        "def is_cuda():\n    target = triton.runtime.driver.active.get_current_target()\n"
        "    return target.backend == 'cuda'\nS = tl.constexpr(1 if is_cuda() else 0)",
        1,
        0,
    ),
    ("NEG = float('-inf')\nS = tl.constexpr(NEG)", float("-inf"), None),
    ("import torch\nS = tl.constexpr((1, 2) if torch.version.cuda else (3, 4))", (1, 2), (3, 4)),
]


@pytest.mark.parametrize(("text", "cuda", "hip"), CONSTANTS)
def test_probes_and_tables_are_constants_in_the_slice(scratch: Scratch, text: str, cuda: object, hip: object) -> None:
    write(scratch, text)
    for world, expected in ((CUDA, cuda), (HIP, cuda if hip is None else hip)):
        closure = scratch.cut(world=world)
        assert closure.uncut is None
        found = value(closure)
        assert (found, type(found)) == (expected, type(expected))
        assert "import torch" not in closure.modules[0].text


def test_probes_inside_a_kernel(scratch: Scratch) -> None:
    scratch.write(
        HEADER
        + textwrap.dedent(
            """
            import torch
            from triton.language.target_info import is_hip

            @triton.jit
            def kernel(x, y=torch.finfo(torch.float32).eps, N: tl.constexpr = 4):
                lowest = torch.finfo(torch.float16).min
                if is_hip():
                    tl.store(x, y)
                tl.store(x + 1, lowest if is_hip() else N)
            """
        )
    )
    text = scratch.cut(world=HIP).modules[0].text
    assert "y=(1.1920928955078125e-07)" in text
    assert "lowest = (-65504.0)\n" in text
    assert "    if True    :\n" in text
    assert "lowest if True     else N)" in text
    assert "if False   :" in scratch.cut(world=CUDA).modules[0].text


def test_lines_stay_where_they_are(scratch: Scratch) -> None:
    write(
        scratch,
        """
        import torch
        try:
            # A comment.
            import einops
        except ImportError as error:

            # Another.
            @triton.jit
            def helper(x):
                return x + torch.finfo(
                    torch.float32
                ).max
        """,
        KERNEL.replace(", S)", ", helper(1.0))"),
    )
    source = (scratch.root / "k.py").read_text().split("\n")
    text = scratch.cut().modules[0].text.split("\n")
    for line in ("    def helper(x):", "def kernel(x, N: tl.constexpr):"):
        assert text.index(line) == source.index(line)
    helper = load(scratch.cut()).fn.__globals__["helper"]
    assert helper.starting_line_number == source.index("    @triton.jit") + 1
    assert "x + (3.4028234663852886e+38)" in helper.src


def refusal(scratch: Scratch, world: World | None = CUDA) -> str:
    with pytest.raises(ClosureError) as caught:
        scratch.cut(world=world)
    return str(caught.value)


def test_a_variable_that_is_not_declared_is_refused(scratch: Scratch) -> None:
    for text in (
        "import os\nif os.environ.get('BLOCK_M') == '1':\n    S = 1\n",
        "import os\nS = tl.constexpr(int(os.getenv('BLOCK_M', 3)))\n",
        "import os\ndef f():\n    return os.environ['BLOCK_M']\nS = tl.constexpr(f())\n",
    ):
        write(scratch, text)
        message = refusal(scratch)
        assert message.startswith(("k.py:4:", "k.py:5:"))
        assert "depends on the environment variable BLOCK_M, which kernels.yaml does not declare" in message
        assert 'remedy: add `environment: {BLOCK_M: "..."}`' in message


def test_what_cannot_be_decided_says_why(scratch: Scratch) -> None:
    write(scratch, "import torch\nif torch.cuda.device_count() > 1:\n    S = tl.constexpr(1)\nelse:\n    S = 2\n")
    closure = scratch.cut()
    assert closure.uncut is not None
    assert "k.py:4:1: S is bound or changed under a condition that only a run can decide" in closure.uncut
    assert "what torch.cuda.device_count() gives is not known before the run (k.py:4:4)" in closure.uncut


@pytest.mark.parametrize(
    "text",
    [
        "if (S := 5) > 3:\n    pass\n",
        "S = 1\nif (S := 5) > 3:\n    pass\n",
        "if (n := 5) > 3:\n    S = n\nelse:\n    S = 1\n",
        "if any((S := n) > 4 for n in (1, 5)):\n    pass\n",
    ],
)
def test_a_condition_that_binds_a_name_is_not_followed(scratch: Scratch, text: str) -> None:
    """Its branches alone would lose what it binds: the file is imported as it stands, and has the right value."""
    write(scratch, text + "S = tl.constexpr(S)\n")
    closure = scratch.cut()
    assert closure.uncut is not None and ":= " in closure.uncut
    assert value(closure) == 5


def test_what_no_table_answers_is_refused_as_before(scratch: Scratch) -> None:
    write(scratch, "import torch\nS = tl.constexpr(torch.zeros(1).item())\n")
    message = refusal(scratch)
    assert "k.py:4:18: the kernel needs 'torch' at compile time" in message


def test_a_kernel_that_asks_nothing_needs_no_world(scratch: Scratch) -> None:
    write(scratch, "S = tl.constexpr(1)\n")
    assert scratch.cut(world=None).digest == scratch.cut().digest == scratch.cut(world=HIP).digest


def test_the_alternative_that_a_try_resolves_to_changes_the_digest(scratch: Scratch) -> None:
    text = "try:\n    from fast import S\nexcept ImportError:\n    S = tl.constexpr(2)\n"
    without = digest(scratch, text)
    fast = scratch.write(f"{HEADER}S = tl.constexpr(3)\n", "fast.py")
    found = digest(scratch, text)
    fast.write_text(f"{HEADER}T = tl.constexpr(3)\n")
    assert found != without == digest(scratch, text)
    fast.unlink()
    assert digest(scratch, text) == without


def test_tritons_version_changes_the_digest_where_the_source_tests_it(scratch: Scratch) -> None:
    newer = World(backend="cuda", arch=90, warp_size=32, triton_version="3.10.0", environment=CUDA.environment)
    tests = (
        "if tuple(map(int, triton.__version__.split('.')[:2])) >= (3, 9):\n    S = tl.constexpr(1)\nelse:\n    S = 2\n"
    )
    assert digest(scratch, tests) != digest(scratch, tests, newer)
    write(scratch, tests)
    assert scratch.cut().asked == ("triton_version",)
    ignores = "S = tl.constexpr(1)\n"
    assert digest(scratch, ignores) == digest(scratch, ignores, newer)


def test_a_decorator_that_is_imported_under_a_try(scratch: Scratch) -> None:
    scratch.write(
        "try:\n    import triton\n    from triton import language as tl, jit\n"
        "except ImportError:\n    triton = tl = jit = None\n"
        "@jit\ndef kernel(x):\n    tl.store(x, 1)\n"
    )
    closure = scratch.cut()
    assert closure.uncut is None
    assert load(closure).fn.__name__ == "kernel"
