"""One Python source file, read and parsed but never run: its module-level statements and the names each one binds."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kiln.closure import scope
from kiln.errors import ClosureError, Position

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """One module-level statement, which a slice keeps or drops as a whole (of an import, name by name)."""

    index: int
    """its place in the order of the text"""
    node: ast.stmt
    binds: frozenset[str]
    mutates: frozenset[str]
    """names whose object it changes, by its own text or by the functions of the file that it calls"""
    inside: tuple[ast.stmt, ...]
    """the `if` statements around it, from the outside in"""
    undecided: ast.stmt | None
    """the statement around it that decides at run time whether, or how far, it runs"""


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceModule:
    """The statements of one file, in the order of the text. Line numbers count from 1."""

    path: Path
    file: str
    """relative to the project's root, with forward slashes"""
    lines: tuple[str, ...]
    """without line ends; line n is lines[n - 1]"""
    units: tuple[Unit, ...]
    by_name: Mapping[str, tuple[Unit, ...]]
    """name -> the units that bind or mutate it"""
    dead: Mapping[str, int]
    """name -> line, of names that are bound only where the module never runs"""
    stars: tuple[Unit, ...]
    """`from x import *`"""
    futures: tuple[Unit, ...]
    """`from __future__ import ...`"""

    @property
    def lazy_annotations(self) -> bool:
        """Whether `from __future__ import annotations` keeps Python from evaluating annotations."""
        return any(
            alias.name == "annotations"
            for unit in self.futures
            if isinstance(unit.node, ast.ImportFrom)
            for alias in unit.node.names
        )

    def binding(self, name: str) -> tuple[Unit, ...]:
        """The units that bind `name`, in order."""
        return tuple(unit for unit in self.by_name.get(name, ()) if name in unit.binds)

    def position(self, node: ast.AST) -> Position:
        """Where a node of this file stands; ast counts columns in bytes of UTF-8, people count characters."""
        line = getattr(node, "lineno", 1)
        offset = getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        column = len(text.encode()[:offset].decode(errors="replace")) + 1
        return Position(file=self.file, line=line, column=column)


_LIMIT = 256
_modules: OrderedDict[tuple[Path, str, bytes], SourceModule] = OrderedDict()


def load_module(path: Path, file: str) -> SourceModule:
    """Read and index `path`, called `file` in messages. Raises ClosureError if it cannot be read or parsed.

    Many kernels share a file, and every image of a kernel shares its closure, so each content is parsed once a process.
    The content is part of the key: a file that is edited while the process lives is read anew.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ClosureError(
            f"cannot read the source file: {error.strerror}",
            where=file,
            actual=str(path),
            remedy="check the path and its permissions",
        ) from None
    key = (path, file, content)
    if key in _modules:
        _modules.move_to_end(key)
        return _modules[key]
    module = index(content, path, file)
    _modules[key] = module
    if len(_modules) > _LIMIT:
        _modules.popitem(last=False)
    return module


def index(content: bytes, path: Path, file: str) -> SourceModule:
    """Parse `content` and list its module-level statements. Raises ClosureError at the place that does not parse."""
    lines = tuple(_decode(content, file).split("\n"))
    tree = _parse(content, file)
    collector = _Collector()
    collector.collect(tree.body, (), None)
    units = _units(collector.statements)
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        for name in sorted(unit.binds | unit.mutates):
            by_name.setdefault(name, []).append(unit)
    imports_from = [unit for unit in units if isinstance(unit.node, ast.ImportFrom)]
    return SourceModule(
        path=path,
        file=file,
        lines=lines,
        units=units,
        by_name={name: tuple(found) for name, found in by_name.items()},
        dead={name: line for name, line in collector.dead.items() if name not in by_name},
        stars=tuple(unit for unit in imports_from if _imports(unit.node, "*")),
        futures=tuple(unit for unit in imports_from if getattr(unit.node, "module", None) == "__future__"),
    )


def _imports(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)


def _decode(content: bytes, file: str) -> str:
    """The text with plain line ends; the encoding is Python's own choice (BOM, coding comment, UTF-8)."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        line = content.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else 1
        raise ClosureError(
            "the source file is not text in the encoding that it declares",
            where=Position(file=file, line=line),
            expected="UTF-8, or the encoding of a `# -*- coding: ... -*-` comment in line 1 or 2",
            actual=str(error),
            remedy="save the file as UTF-8",
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parse(content: bytes, file: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # Python warns of "\\d" in a plain string; that is for the file's author, not for each reader of the file.
            warnings.simplefilter("ignore")
            return ast.parse(content, filename=file)
    except SyntaxError as error:
        raise ClosureError(
            "the source file is not valid Python",
            where=Position(file=file, line=error.lineno or 1, column=error.offset or 1),
            actual=error.msg,
            remedy="correct the syntax; Kiln reads it with the Python that runs the build",
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply for Python's parser"
        raise ClosureError(
            "the source file cannot be parsed",
            where=Position(file=file, line=1),
            actual=reason,
            remedy="declare a Python source file; Python itself cannot read this one",
        ) from None


def decide(test: ast.expr) -> bool | None:
    """The value of a condition that holds on every machine, or None.

    `TYPE_CHECKING` and `__name__ == "__main__"` are false: a slice is neither type-checked nor run as a script.
    """
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "t.TYPE_CHECKING"):
        return False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = decide(test.operand)
        return None if value is None else not value
    if isinstance(test, ast.BoolOp):
        ends_it = isinstance(test.op, ast.Or)
        values = [decide(value) for value in test.values]
        if ends_it in values:
            return ends_it
        return None if None in values else not ends_it
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        sides = [test.left, test.comparators[0]]
        names = [side.id for side in sides if isinstance(side, ast.Name)]
        texts = [side.value for side in sides if isinstance(side, ast.Constant)]
        if names == ["__name__"] and texts == ["__main__"]:
            return False
    return None


@dataclass(frozen=True, kw_only=True)
class _Statement:
    node: ast.stmt
    inside: tuple[ast.stmt, ...]
    undecided: ast.stmt | None


@dataclass
class _Collector:
    """Flattens a module body: statements under a condition that is decided are statements of the module."""

    statements: list[_Statement] = field(default_factory=list)
    dead: dict[str, int] = field(default_factory=dict)

    def collect(self, body: list[ast.stmt], inside: tuple[ast.stmt, ...], undecided: ast.stmt | None) -> None:
        for node in body:
            if isinstance(node, ast.If):
                value = decide(node.test)
                if value is None:
                    for branch in (node.body, node.orelse):
                        self.collect(branch, (*inside, node), undecided or node)
                else:
                    live, dead = (node.body, node.orelse) if value else (node.orelse, node.body)
                    self.collect(live, (*inside, node), undecided)
                    for statement in dead:
                        self.dead.update(dict.fromkeys(scope.binds(statement), statement.lineno))
                continue
            decides = isinstance(node, (ast.Try, ast.Match)) or type(node).__name__ == "TryStar"
            self.statements.append(
                _Statement(node=node, inside=inside, undecided=undecided or (node if decides else None))
            )


def _units(statements: list[_Statement]) -> tuple[Unit, ...]:
    functions: dict[str, _Function] = {}
    assigned: set[str] = set()
    for statement in statements:
        node = statement.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not _is_plain(node.value):
            assigned |= scope.binds(node)
    return tuple(
        Unit(
            index=number,
            node=statement.node,
            binds=scope.binds(statement.node),
            mutates=_mutated(statement.node, functions, assigned),
            inside=statement.inside,
            undecided=statement.undecided,
        )
        for number, statement in enumerate(statements)
    )


def _mutated(node: ast.stmt, functions: Mapping[str, _Function], assigned: set[str]) -> frozenset[str]:
    """What a statement changes, by itself or through the functions of its file that it calls.

    Only what the file itself assigned is taken to be changed by an unknown method or by being passed to a function:
    `torch.manual_seed(0)` and `kernel.warmup(...)` say nothing of the names they start with.
    """
    found = set(scope.mutates(node))
    base = scope.called_for_effect(node)
    if base in assigned:
        found.add(base)
    for function, arguments in scope.called(node):
        if function in functions:
            found |= _effects(function, functions, set()) | (arguments & assigned)
    return frozenset(found)


def _effects(name: str, functions: Mapping[str, _Function], seen: set[str]) -> set[str]:
    """The names of the module that a call of `name` may change, through the functions that it calls as well."""
    seen.add(name)
    function = functions[name]
    found = set(scope.changes_globals(function))
    for statement in function.body:
        for callee, _ in scope.called(statement):
            if callee in functions and callee not in seen:
                found |= _effects(callee, functions, seen)
    return found


def _is_plain(value: ast.expr | None) -> bool:
    """Whether a value is a number, a text or a tl.constexpr of one, which nothing can change in place."""
    if value is None or isinstance(value, (ast.Constant, ast.JoinedStr, ast.Compare)):
        return True
    if isinstance(value, ast.UnaryOp):
        return _is_plain(value.operand)
    if isinstance(value, ast.BinOp):
        return _is_plain(value.left) and _is_plain(value.right)
    if isinstance(value, ast.Call):
        chain = scope.dotted(value.func)
        return chain is not None and (chain[1] or (chain[0].id,))[-1] == "constexpr"
    return False
