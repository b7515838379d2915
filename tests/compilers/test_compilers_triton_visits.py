"""After a compile, all that Triton visited is held against the closure: what is not in the digest is in no image."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kiln.compilers.triton as compiler
from kiln.closure.slice import Closure, cut
from kiln.compilers.request import CompileRequest
from kiln.errors import ClosureError, Position
from kiln.manifest.interface import Argument, Interface
from kiln.toolchain.targets import TARGETS

KERNEL = """\
import triton
import triton.language as tl

from shared import GAIN, scaled


@triton.jit
def kernel(x, N: tl.constexpr):
    tl.store(x, scaled(tl.load(x)) + tl.sum(tl.arange(0, N), 0) + tl.cdiv(N, 2))
"""
SHARED = """\
import math

import triton
import triton.language as tl

GAIN = tl.constexpr(math.floor(2.5))


@triton.jit
def scaled(x):
    return x * GAIN
"""
OTHER = """\
import triton
import triton.language as tl

GAIN = tl.constexpr(3)


@triton.jit
def scaled(x):
    return x + GAIN
"""


@pytest.fixture
def closure(tmp_path: Path) -> Closure:
    (tmp_path / "k.py").write_text(KERNEL)
    (tmp_path / "shared.py").write_text(SHARED)
    return cut(tmp_path / "k.py", "kernel", root=tmp_path, where=None)


def compile_kernel(closure: Closure, target: str) -> bytes:
    return compiler.compile_kernel(
        CompileRequest(
            image_id=f"kernel@{target}",
            target=TARGETS[target],
            closure=closure,
            interface=Interface(arguments=(Argument(name="x", type="*i32", promise=None),), constants={"N": 16}),
            options={"num_warps": 1, "enable_fp_fusion": True},
            entry="kernel",
            debug=False,
            declared=Position(file="kernels.yaml", line=1),
        )
    ).data


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_a_compile_that_stays_in_the_closure(closure: Closure, target: str) -> None:
    assert compile_kernel(closure, target)[:4] == b"\x7fELF"


def helper_of_another_file(function: Any, folder: Path) -> None:
    """The function itself is another: its code is from a file that the closure does not have."""
    import importlib.util

    (folder / "other.py").write_text(OTHER)
    spec = importlib.util.spec_from_file_location("other", folder / "other.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function.fn.__globals__["scaled"] = module.scaled


def name_that_the_slice_does_not_bind(function: Any, folder: Path) -> None:
    function.fn.__globals__["cdiv"] = function.fn.__globals__["tl"].cdiv
    function._unsafe_update_src(function.src.replace("tl.cdiv", "cdiv"))


def module_of_another_package(function: Any, folder: Path) -> None:
    module = types.ModuleType("elsewhere")
    vars(module).update(vars(function.fn.__globals__["tl"]), __name__="elsewhere")
    function.fn.__globals__["tl"] = module


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (helper_of_another_file, r"k\.py:8:1: Triton compiled scaled, which is from .*other\.py, into kernel, and the"),
        (name_that_the_slice_does_not_bind, r"k\.py:8:1: Triton compiled the name cdiv, which the slice of k\.py does"),
        (module_of_another_package, r"k\.py:8:1: Triton compiled tl, which is from the module elsewhere, into kernel"),
    ],
)
def test_what_is_not_in_the_closure(
    closure: Closure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tamper: Callable[[Any, Path], None],
    message: str,
) -> None:
    """The loaded slice is tampered with, as no file can do it: a fault of Kiln's would look like that."""
    load = compiler.load.load

    def tampered(*given: Any) -> Any:
        function = load(*given)
        tamper(function, tmp_path)
        return function

    monkeypatch.setattr(compiler.load, "load", tampered)
    with pytest.raises(ClosureError, match=message) as caught:
        compile_kernel(closure, "sm_90a")
    print(caught.value)
