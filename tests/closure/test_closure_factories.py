"""What a function that makes kernels does to their values is kept, through aliases, functions and containers of it."""

from __future__ import annotations

import textwrap

import pytest
from closure_scratch import HEADER, Scratch

from kiln.closure.load import load

SET = "def put():\n    nonlocal B\n    B = 50\n"
FACTORY = """
def make(A=4):
    B = A + 1
    L = [2]
{}
    S = tl.constexpr({})
    @triton.jit
    def kernel(x):
        tl.store(x, S)
    return kernel
"""
CHANGED = {
    "a function that rebinds": (SET + "put()", "B"),
    "its alias": (SET + "other = put\nother()", "B"),
    "its call in a list": (SET + "[put()]", "B"),
    "given to a lambda": (SET + "(lambda f: f())(put)", "B"),
    "given to a function of the module": (SET + "run(put)", "B"),
    "a method": ("class C:\n    def go(self):\n        nonlocal B\n        B = 50\nC().go()", "B"),
    "a property": ("class C:\n    @property\n    def go(self):\n        L.append(50)\nc = C()\nd = c.go", "L[-1]"),
    "a generator": ("def put():\n    nonlocal B\n    B = 50\n    yield\nlist(put())", "B"),
    "a decorator": ("def put(f):\n    L.append(50)\n    return f\n@put\ndef g(): pass", "L[-1]"),
    "a list by another name": ("other = L\nother.append(50)", "L[-1]"),
    "+= by another name": ("other = L\nother += [50]", "L[-1]"),
    "in a container": ("table = {'l': L}\ntable['l'].append(50)", "L[-1]"),
    "stored into a container": ("table = {}\ntable['l'] = L\ntable['l'].append(50)", "L[-1]"),
    "in the items of a loop": ("for other in (L, []):\n    other.append(50)", "L[-1]"),
    "in the test of an if": ("if (B := 50): pass", "B"),
    "called in the test of an if": (SET + "if put(): pass", "B"),
    "of a class": ("class C:\n    v = 1\nsetattr(C, 'v', 50)", "C.v"),
    "of a class by another name": ("class C:\n    v = 1\nother = C\nother.v = 50", "C.v"),
    "of a module": ("setattr(other, 'X', 50)", "other.X"),
}


@pytest.mark.parametrize(("statements", "value"), CHANGED.values(), ids=list(CHANGED))
def test_a_change_is_kept(scratch: Scratch, statements: str, value: str) -> None:
    scratch.write("X = 5\n", "other.py")
    text = FACTORY.format(textwrap.indent(statements, "    "), value)
    scratch.write(HEADER + "import other\ndef run(f):\n    f()\n" + text)
    closure = scratch.cut(function="make.kernel")
    cells = load(closure).fn.__closure__
    assert [cell.cell_contents.value for cell in cells] == [50]


def test_a_return_on_the_way_ends_it(scratch: Scratch) -> None:
    early = """
if A == 4:
    S = tl.constexpr(50)
    @triton.jit
    def kernel(x):
        tl.store(x, S)
    return kernel, torch.empty(3)
"""
    scratch.write(HEADER + FACTORY.format(textwrap.indent(early, "    "), "B"))
    closure = scratch.cut(function="make.kernel")
    assert closure.uncut is None
    assert "return None" in closure.modules[0].text and "torch" not in closure.modules[0].text
    assert [cell.cell_contents.value for cell in load(closure).fn.__closure__] == [50]
    assert [cell.cell_contents.value for cell in load(closure, {"A": 3}).fn.__closure__] == [4]


def test_what_launches_is_left_out(scratch: Scratch) -> None:
    """None of it leads to what the kernel needs."""
    launch = """
grid = (A, len(L))
out = torch.empty(grid)
def launch(x):
    kernel[grid](x)
    return out
launch(out)
cache[A] = launch
"""
    text = FACTORY.format("", "L[-1] + B").replace(
        "    return kernel", textwrap.indent(launch, "    ") + "    return out"
    )
    scratch.write("import torch\n" + HEADER + "cache = {}\n" + text)
    closure = scratch.cut(function="make.kernel")
    assert closure.uncut is None
    assert not {"torch", "launch", "cache"} & set(closure.modules[0].text.replace("(", " ").split())
    assert [cell.cell_contents.value for cell in load(closure).fn.__closure__] == [7]
