"""Annotations of foreign types: they say nothing to Triton, so a slice has neither them nor what they name."""

from __future__ import annotations

import pytest
from closure_scratch import HEADER, Scratch, kept

from kiln.closure.function_parameters import FunctionParameter
from kiln.closure.load import load

IMPORTS = """\
import torch
import numpy as np
from torch import Tensor as T
from typing import TYPE_CHECKING, Optional, Union
if TYPE_CHECKING:
    from shapes import Shape
Maybe = Union[T, None]
"""


def kernel(first: str, returns: str = "") -> str:
    return f"@triton.jit\ndef kernel({first}, n: tl.int32, N: tl.constexpr){returns}:\n    tl.store(x, n)\n"


FOREIGN = [
    "torch.Tensor",
    "T",
    "Maybe",
    "Optional[torch.Tensor]",
    "torch.Tensor | None",
    "(torch.Tensor)",
    "((\n    T  # of numbers\n    ))",
    "np.ndarray",
    "'torch.Tensor'",
    "Optional['T']",
    "dict[str, list[T]]",
]


@pytest.mark.parametrize("annotation", FOREIGN)
@pytest.mark.parametrize("postponed", [False, True])
def test_foreign_annotations_do_not_count(scratch: Scratch, annotation: str, postponed: bool) -> None:
    """The digest is that of the same function without them, and the slice runs where torch is not."""
    header = ("from __future__ import annotations\n" if postponed else "") + HEADER + IMPORTS
    plain = scratch.digest(header + kernel("x"))
    scratch.write(header + kernel(f"x: {annotation}"))
    closure = scratch.cut()
    assert closure.digest == plain
    assert closure.parameters[0] == FunctionParameter(name="x", is_constexpr=False, has_default=False, annotation=None)
    function = load(closure)
    assert [parameter.annotation for parameter in function.params] == ["", "i32", "constexpr"]
    assert scratch.digest(header + kernel("x", f" -> {annotation}")) == plain


def test_defaults_and_every_kind_of_parameter(scratch: Scratch) -> None:
    """Helpers, plain functions and methods lose them as well, wherever they stand; all else stays at its place."""
    scratch.write(
        HEADER
        + IMPORTS
        + """\
@triton.jit
def helper(a: T, é: T = 1, /, *, k: "T" = 2) -> T: return a + é + k
def size(t: Optional[T] = None, *a: T, **k: Maybe) -> \\
        torch.Size:
    def inner(x: T) -> np.ndarray: return 4
    return inner(1)
class Cfg:
    def f(self, x: torch.Tensor) -> int: return 3
S = tl.constexpr(size() + Cfg().f(1))
@triton.jit
def kernel(x: torch.Tensor, y: tl.int64, p: "*fp32", N: tl.constexpr, M: Optional[tl.constexpr] = 4):
    tl.store(x, helper(y, 1) + N + S)
"""
    )
    closure = scratch.cut()
    assert kept(closure) == {"triton", "tl", "Optional", "helper", "size", "Cfg", "S", "kernel"}
    lines = closure.modules[0].text.split("\n")
    source = (scratch.root / "k.py").read_text().split("\n")
    line = next(number for number, text in enumerate(source) if text.startswith("def kernel"))
    assert lines[line] == source[line].replace(": torch.Tensor", " " * len(": torch.Tensor"))
    assert [parameter.annotation for parameter in load(closure).params][1:4] == ["i64", "*fp32", "constexpr"]


@pytest.mark.parametrize(
    "annotation",
    ["tl.constexpr", "'tl.constexpr'", "Optional[tl.constexpr]", "Union[T, tl.constexpr]", "constant", "Constant"],
)
def test_a_constexpr_stays_one(scratch: Scratch, annotation: str) -> None:
    """Whatever stands around it; `constant` is an import of it, `Constant` a renaming."""
    if annotation == "Union[T, tl.constexpr]":
        scratch.write(HEADER + "T = int\nfrom typing import Union\n" + kernel(f"x, M: {annotation}"))
    else:
        scratch.write(
            HEADER
            + "from typing import Optional\nfrom triton.language import constexpr as constant\n"
            + "Constant = tl.constexpr\n"
            + kernel(f"x, M: {annotation}")
        )
    closure = scratch.cut()
    assert closure.parameters[1].is_constexpr
    assert load(closure).params[1].is_constexpr


@pytest.mark.parametrize("annotation", ["tl.int64", "int", "'*fp16'", "bool"])
def test_annotations_that_change_the_signature_count(scratch: Scratch, annotation: str) -> None:
    plain = scratch.digest(HEADER + kernel("x"))
    assert scratch.digest(HEADER + kernel(f"x: {annotation}")) != plain
