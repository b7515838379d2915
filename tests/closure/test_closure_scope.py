"""What code reads from its module, by Python's scoping rules."""

from __future__ import annotations

import ast
import symtable
import textwrap
from pathlib import Path

import pytest

from kiln.closure import scope


def read(text: str) -> set[str]:
    return {".".join((found.name, *found.attributes)) for found in scope.reads(ast.parse(textwrap.dedent(text)))}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(a, /, b, *c, d=D, **e): return a + b + c + d + e + G", "D G"),
        ("def f():\n x = A\n return x", "A"),
        ("def f():\n for i in range(N): y = i\n return y", "range N"),
        ("def f():\n with C() as c: c.close()", "C"),
        ("def f():\n try: pass\n except E as e: return e", "E"),
        ("def f():\n import math\n return math.pi", ""),
        ("def f():\n if (n := A) > n: return n", "A"),
        ("def f():\n return [i * K for i in X if i > M]", "K X M"),
        ("def f():\n return {k: v for k, v in X.items()}", "X.items"),
        ("def f():\n [last := i for i in X]\n return last", "X"),
        ("def f():\n return [i for i in i]", "i"),
        ("def f():\n return lambda x, y=Y: x + y + Z", "Y Z"),
        ("def f():\n def g(): return x + K\n x = 1\n return g", "K"),
        ("def f():\n x = 1\n def g():\n  nonlocal x\n  x = K\n return g", "K"),
        ("def f():\n global x\n x = 1\n return x", "x"),
        ("def f():\n x = 1\n def g():\n  global x\n  return x", "x"),
        ("def f(x: tl.constexpr = C.S) -> R: y: T = x", "tl.constexpr C.S R T"),
        ("def f(x: 'tl.constexpr'): pass", ""),
        ("@a.b(C)\ndef f(): pass", "a.b C"),
        ("class A(B, metaclass=M):\n x = y\n def f(self): return x", "B M y x"),
        ("class A:\n x = x", "x"),
        ("class A:\n x = 1\n y = [x for _ in Z]", "x Z"),
        ("a.b.c[d].e", "a.b.c d"),
        ("f(x).y", "f x"),
        ("x = 1", ""),
        ("x += 1", "x"),
        ("x.y = z", "x.y z"),
        ("del x.y", "x.y"),
        ("def f(v):\n match v:\n  case [K.A, *rest] if rest: return rest\n  case {'a': b, **c}: return b, c", "K.A"),
        ("def f(v):\n match v:\n  case P(q) as r: return q, r", "P"),
        ('def f(x): return f"{x} {Y:{W}}"', "Y W"),
    ],
)
def test_reads(text: str, names: str) -> None:
    assert read(text) == set(names.split())


def test_a_class_may_find_a_name_in_itself() -> None:
    """A class body reads its own name or the module's, which only a run can tell."""
    reads = scope.reads(ast.parse("class A:\n x = x"))
    assert [(found.name, found.certain) for found in reads] == [("x", False)]


def test_annotations_can_be_left_out() -> None:
    tree = ast.parse("def f(x: A = B) -> C:\n y: D = E")
    assert {found.name for found in scope.reads(tree, annotations=False)} == {"B", "E"}


def test_agrees_with_python() -> None:
    """For each function and method of some of Python's own library, the names are those that its compiler finds."""
    compared = 0
    for file in ("argparse.py", "dataclasses.py", "inspect.py", "typing.py", "tarfile.py", "ast.py"):
        text = (Path(ast.__file__).parent / file).read_text(encoding="utf-8")
        tables = _functions(symtable.symtable(text, file, "exec"))
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            table = tables.get((node.name, node.lineno)) or tables.get((node.name, line))
            if table is None or table.is_nested():
                continue  # a nested function's names may be its parent's
            # The compiler lists these with the scope around the function.
            node.decorator_list, node.args.defaults, node.args.kw_defaults, node.returns = [], [], [], None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
            found = {name.name for name in scope.reads(node)} - {"super"}
            assert found == _globals(table), f"{file}:{node.lineno} {node.name}"
            compared += 1
    assert compared > 500


def _functions(table: symtable.SymbolTable) -> dict[tuple[str, int], symtable.SymbolTable]:
    found = {(table.get_name(), table.get_lineno()): table} if table.get_type() == "function" else {}
    for child in table.get_children():
        found.update(_functions(child))
    return found


def _globals(table: symtable.SymbolTable) -> set[str]:
    names = {name.get_name() for name in table.get_symbols() if name.is_global() and name.is_referenced()}
    return names.union(*map(_globals, table.get_children())) - {"super"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a.b.c[d].e", "a.b.c d"),
        ("def f(a): return a.b(c.d.e)", "a.b c.d.e"),
        ("f(x).y", "f x"),
        ("[i.j for i in k]", "i.j i k"),
    ],
)
def test_chains(text: str, names: str) -> None:
    """Every name, whatever scope it stands in, with the attributes that are read off it."""
    found = [".".join((node.id, *attributes)) for node, attributes in scope.chains(ast.parse(text))]
    assert sorted(found) == sorted(names.split())


def test_declared() -> None:
    body = ast.parse("global a\ndef f():\n global b\nnonlocal_ = 1\nif a:\n global c").body
    assert scope.declared(body, ast.Global) == {"a", "c"}


def test_captures() -> None:
    node = ast.parse("match x:\n case [K.A, P(q) as r, *s] | {'t': _, **u}: pass").body[0]
    assert isinstance(node, ast.Match)
    assert scope.captures(node.cases[0].pattern) == {"q", "r", "s", "u"}
