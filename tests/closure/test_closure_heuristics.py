"""`@triton.heuristics`: what follows from what a variant fixes is derived, and what a launch decides is refused."""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace

import pytest
from closure_scratch import HEADER, Scratch
from closure_worlds import CUDA, HIP

from kiln.closure.bind import bind, check_alike
from kiln.closure.resolve import Project
from kiln.closure.tuning.heuristics import Heuristics
from kiln.closure.world import World
from kiln.errors import ClosureError, ManifestError
from kiln.interfaces import Interfaces
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.interface import Interface
from kiln.manifest.loader import load
from kiln.manifest.model import Variant
from kiln.source_reader import StaticReader

KERNEL = """
@triton.jit
def kernel(x, bias, n, m, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr = True):
    tl.store(x, n)
"""


def source(decorator: str, before: str = "") -> str:
    return HEADER + textwrap.dedent(before) + textwrap.dedent(decorator).strip() + KERNEL


SIGNATURE = "*fp16:16, *fp16, i32:16, i32"


def variant(scratch: Scratch, signature: str = SIGNATURE, **constants: object) -> Variant:
    """The one variant of a manifest."""
    scratch.write(
        f"""\
version: 1
library: lib
targets: [sm_90a, gfx942]
kernels:
  v:
    source: k.py
    function: kernel
    dtypes: [fp16]
    name: v
    group: g
    signature: "{signature}"
    blocks: [{json.dumps({"tag": "b", "BLOCK": constants.pop("BLOCK", 64)})}]
    constants: {json.dumps(constants)}
    grid: [1, 1, 1]
""",
        "kernels.yaml",
    )
    return load(scratch.root / "kernels.yaml", StaticReader()).variants[0]


def bound(
    scratch: Scratch, text: str, *, world: World = CUDA, signature: str = SIGNATURE, **constants: object
) -> Interface:
    scratch.write(text)
    closure = scratch.cut(world=world)
    heuristics = Heuristics(Project(root=scratch.root), scratch.root / "k.py", "kernel", world)
    return bind(variant(scratch, signature, **constants), closure, heuristics)


BOTH = """
@triton.heuristics({
    "HAS_BIAS": lambda args: args["bias"] is not None,
    "EVEN": lambda args: args["n"] % args["BLOCK"] == 0,
})
"""


def test_a_null_pointer_and_a_promise_decide(scratch: Scratch) -> None:
    found = bound(scratch, source(BOTH), BLOCK=16)
    assert found.constants == {"BLOCK": 16, "HAS_BIAS": True, "EVEN": True}
    assert list(found.constants) == ["BLOCK", "HAS_BIAS", "EVEN"]
    without = bound(scratch, source(BOTH), signature="*fp16, i32:16, i32", BLOCK=8, bias=None)
    assert without.constants == {"bias": None, "BLOCK": 8, "HAS_BIAS": False, "EVEN": True}


def test_what_kernels_yaml_gives_wins(scratch: Scratch) -> None:
    found = bound(scratch, source(BOTH), HAS_BIAS=False, EVEN=False)
    assert found.constants == {"BLOCK": 64, "HAS_BIAS": False, "EVEN": False}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("lambda args: args['BLOCK'] >= 64", True),
        ("lambda args: triton.next_power_of_2(args['BLOCK'] + 1)", 128),
        ("lambda args: 4 if args['bias'] is None else 8", 8),
        ("lambda args: args['x'].dtype == torch.float16", True),
        ("lambda args: args['x'].dtype in (torch.float32, torch.bfloat16)", False),
        ("lambda args: (args['n'] % 8 == 0) and (args['bias'] is not None) and not args['x'] is None", True),
        ("lambda args: args['n'] * 3 // 4 % 12 == 0", True),
        ("lambda args: torch.float16", None),
        ("lambda kw: kw.get('bias') is not None", True),
        ("lambda args: tl.float32", "fp32"),
        ("lambda args: (args['BLOCK'], 2)", (64, 2)),
        ("even", True),
        ("functools.partial(scaled, by=2)", 128),
        ("lambda args: 'hip' if is_hip() else 'cuda'", "cuda"),
        ("lambda args: int(os.environ['SET'])", 1),
        ("lambda args: later()", 7),
        ("lambda args: LATE", 3),
        ("lambda args, late=LATE: late", 2),
        ("lambda args: LIST[-1]", 5),
    ],
)
def test_values(scratch: Scratch, function: str, expected: object) -> None:
    before = """
        import functools, os
        import torch

        def even(args):
            if args["bias"] is not None:
                return args["n"] % 4 == 0
            return False

        def scaled(args, by):
            return args["BLOCK"] * by

        def is_hip():
            return triton.runtime.driver.active.get_current_target().backend == "hip"

        LATE = 2
        LIST = [4]

    """
    # A launch comes when all of the file has run.
    after = "\n\ndef later():\n    return 7\n\n\nLATE = 3\nLIST.append(5)\n"
    text = source(f'@triton.heuristics({{"HAS_BIAS": {function}}})', before) + after
    if expected is None:
        with pytest.raises(
            ClosureError, match="what the heuristic for HAS_BIAS gives is nothing that a constant can be"
        ):
            bound(scratch, text)
        return
    value = bound(scratch, text).constants["HAS_BIAS"]
    assert getattr(value, "name", value) == expected


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_constant_is_the_one_that_the_source_names(scratch: Scratch, name: str) -> None:
    """The wrong word for it would compare as another dtype, and give the other value without a sound."""
    test = f"args['EVEN'] == tl.{DTYPES[name].language}"
    text = source(f'@triton.heuristics({{"HAS_BIAS": lambda args: {test}}})')
    assert bound(scratch, text, EVEN={"dtype": name}).constants["HAS_BIAS"] is True


def test_heuristics_see_what_others_before_them_gave(scratch: Scratch) -> None:
    text = source(
        """
        @triton.heuristics(values={"EVEN": lambda args: args["n"] % 16 == 0})
        @triton.heuristics({"HAS_BIAS": lambda args: not args["EVEN"]})
        """
    )
    assert bound(scratch, text).constants == {"BLOCK": 64, "HAS_BIAS": False, "EVEN": True}


def test_a_map_by_name_a_wrapper_and_a_tried_import(scratch: Scratch) -> None:
    text = """\
try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
RULES = {"HAS_BIAS": lambda args: args["bias"] is not None}
RULES["EVEN"] = lambda args: False

@triton.jit
def plain(x, bias, n, m, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr = True):
    tl.store(x, n)

kernel = triton.heuristics(RULES)(plain)
"""
    assert bound(scratch, text).constants == {"BLOCK": 64, "HAS_BIAS": True, "EVEN": False}


def test_a_value_of_the_target(scratch: Scratch) -> None:
    text = source(
        '@triton.heuristics({"HAS_BIAS": lambda args: is_hip()})',
        "from triton.language.target_info import is_hip\n",
    )
    scratch.write(text)
    closure = scratch.cut()
    assert closure.asked == ()
    project = Project(root=scratch.root)
    one = variant(scratch)
    for world, expected in ((CUDA, False), (HIP, True)):
        heuristics = Heuristics(project, scratch.root / "k.py", "kernel", world)
        assert bind(one, closure, heuristics).constants["HAS_BIAS"] is expected
        assert heuristics.asked == {"backend"}


REFUSED = [
    (
        'lambda args: args["m"] % 16 == 0',
        "k.py:3:21: HAS_BIAS of v cannot be told before a launch",
        "the argument m is not known before the run (k.py:3:46)",
    ),
    ('lambda args: args["m"]', "k.py:3:21: HAS_BIAS of v cannot be told", "it is the argument m"),
    (
        'lambda args: args["x"].numel() > 3',
        "k.py:3:21: HAS_BIAS of v cannot be told",
        "'numel' of the argument x is not",
    ),
    ('lambda args: args["y"]', "k.py:3:21: HAS_BIAS of v cannot be told", "it raises KeyError: 'y'"),
    ("unknown", "k.py:3:1: the heuristics of kernel cannot be read", "it raises NameError"),
    ("lambda args: os.getenv('NOPE')", "k.py:3:46: the heuristic for HAS_BIAS depends on an environment", "NOPE"),
]


@pytest.mark.parametrize(("function", "head", "detail"), REFUSED)
def test_what_a_launch_decides_is_refused(scratch: Scratch, function: str, head: str, detail: str) -> None:
    text = source(f'@triton.heuristics({{"HAS_BIAS": {function}}})').replace(
        "language as tl", "language as tl; import os"
    )
    with pytest.raises(ClosureError) as caught:
        bound(scratch, text)
    message = str(caught.value)
    print(message)
    assert message.startswith(head.replace("k.py:3:1:", "k.py:3:2:"))
    assert detail in message
    assert "remedy: " in message


def test_a_heuristic_that_changes_its_map_changes_no_other(scratch: Scratch) -> None:
    text = source(
        """
        @triton.heuristics({
            "HAS_BIAS": lambda args: args.update(n=3) or 2,
            "EVEN": lambda args: args["n"] % 16 == 0,
        })
        """
    )
    assert bound(scratch, text).constants == {"BLOCK": 64, "HAS_BIAS": 2, "EVEN": True}


def test_what_takes_too_long_is_tried_once(scratch: Scratch) -> None:
    """Each step of an image asks for its interface."""
    scratch.write(source('@triton.heuristics({"HAS_BIAS": forever})', "def forever(args):\n    while True: pass\n\n"))
    variant(scratch)
    manifest = load(scratch.root / "kernels.yaml", StaticReader())
    interfaces = Interfaces(manifest, lambda image: CUDA)
    caught: list[ClosureError] = []
    for _ in range(2):
        with pytest.raises(ClosureError, match="it takes more steps than are followed") as error:
            interfaces.interface(manifest.images[0])
        caught.append(error.value)
    assert caught[0] is caught[1]


def test_only_what_is_asked_is_derived(scratch: Scratch) -> None:
    text = source('@triton.heuristics({"HAS_BIAS": lambda args: args["m"] > 3})')
    assert bound(scratch, text, HAS_BIAS=True).constants == {"BLOCK": 64, "HAS_BIAS": True}


def test_the_lambda_is_no_part_of_the_closure_but_its_value_is_part_of_the_image(scratch: Scratch) -> None:
    scratch.write(source(BOTH))
    before = scratch.cut().digest
    scratch.write(source(BOTH.replace("is not None", "is None")))
    assert scratch.cut().digest == before
    other = source(BOTH.replace("is not None", "is None"))
    assert bound(scratch, source(BOTH), BLOCK=8) != bound(scratch, other, BLOCK=8)


def test_targets_must_agree_on_how_a_variant_is_called(scratch: Scratch) -> None:
    interface = bound(scratch, source(BOTH), BLOCK=8)
    one = variant(scratch)
    other = replace(interface, constants={**interface.constants, "EVEN": 0})
    check_alike(one, {"sm_90a": interface, "gfx942": other})
    fewer = replace(interface, arguments=interface.arguments[1:])
    with pytest.raises(ManifestError, match="the argument x of v is another one for gfx942 than for sm_90a"):
        check_alike(one, {"sm_90a": interface, "gfx942": fewer})


def test_an_option_that_heuristics_choose_must_be_stated(scratch: Scratch) -> None:
    """Triton launches with what a heuristic says of num_warps: a build must not take the default in silence."""
    text = source("""
        @triton.heuristics({"num_warps": lambda args: 8 if args["BLOCK"] >= 64 else 4})
    """)
    with pytest.raises(ManifestError) as failure:
        bound(scratch, text, HAS_BIAS=False)
    assert "v leaves num_warps to the source's heuristics" in str(failure.value)
    assert "actual: num_warps = 4, by default" in str(failure.value)
    stated = (scratch.root / "kernels.yaml").read_text().replace("    grid:", "    options: {num_warps: 8}\n    grid:")
    scratch.write(stated, "kernels.yaml")
    closure = scratch.cut(world=CUDA)
    heuristics = Heuristics(Project(root=scratch.root), scratch.root / "k.py", "kernel", CUDA)
    first = load(scratch.root / "kernels.yaml", StaticReader()).variants[0]
    assert bind(first, closure, heuristics).constants["BLOCK"] == 64
