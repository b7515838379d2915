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

from kiln import files
from kiln.closure import scope
from kiln.errors import ClosureError, Position


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """One module-level statement, which a slice keeps or drops as a whole (of an import, name by name).

    The test of an `if` that is not plain is one of them, too: it is undecided, so that no slice has it.
    """

    index: int
    """its place in the order of the text"""
    node: ast.stmt
    binds: frozenset[str]
    inside: tuple[ast.stmt, ...]
    """the `if` statements around it, from the outside in"""
    undecided: ast.stmt | None
    """the statement around it that decides at run time whether, or how far, it runs"""


Spot = tuple[int, int]
"""line and column, as ast counts them, where a statement or an expression begins"""


@dataclass(frozen=True, kw_only=True)
class TryPath:
    """How a `try` runs."""

    ran: int
    """the number of statements in its body that run"""
    handler: int | None
    """the `except` that runs then; None where the body ends well, and `else` runs"""


Decision = bool | TryPath
"""what an `if` or a `try` comes to"""


def spot(node: ast.AST) -> Spot:
    """Where a node begins."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


class Conditional(Exception):
    """A name is needed whose binding depends on a condition that nobody has decided yet."""

    def __init__(
        self, module: SourceModule, unit: Unit, name: str, at: Position | None = None, via: tuple[str, ...] = ()
    ) -> None:
        super().__init__(f"{module.file}:{unit.node.lineno}: {name}")
        self.module = module
        self.unit = unit
        self.name = name
        self.at = at or module.position(unit.node)
        """where the name is read"""
        self.via = via
        """the definitions that lead to it, the kernel first"""


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
    """name -> the units that bind it, in order"""
    dead: Mapping[str, int]
    """name -> line, of names that are bound only where the module never runs"""
    stars: tuple[Unit, ...]
    """`from x import *`"""
    futures: tuple[Unit, ...]
    """`from __future__ import ...`"""
    type_checks: frozenset[str]
    """what stands for typing.TYPE_CHECKING, as the file writes it"""

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
        return self.by_name.get(name, ())

    def mentions(self, names: set[str]) -> bool:
        """Whether the text of a statement that is no import has one of `names` in it; it may be a part of a word."""
        statements = [unit.node for unit in self.units if not isinstance(unit.node, (ast.Import, ast.ImportFrom))]
        lines = [line for node in statements for line in self.lines[node.lineno - 1 : node.end_lineno]]
        return any(name in line for line in lines for name in names)

    def position(self, node: ast.AST) -> Position:
        """Where a node of this file stands; ast counts columns in bytes of UTF-8, people count characters."""
        line = getattr(node, "lineno", 1)
        offset = getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        column = len(text.encode()[:offset].decode(errors="replace")) + 1
        return Position(file=self.file, line=line, column=column)


_LIMIT = 256
_modules: OrderedDict[tuple[Path, str, bytes, frozenset[tuple[Spot, Decision]]], SourceModule] = OrderedDict()


def load_module(path: Path, file: str, decided: Mapping[Spot, Decision] | None = None) -> SourceModule:
    """Read and index `path`, called `file` in messages. Raises ClosureError if it cannot be read or parsed.

    `decided` says of conditions, by their places, what they come to.

    Many kernels share a file, and every image of a kernel shares its closure, so each content is parsed once a process.
    The content is part of the key: a file that is edited while the process lives is read anew.
    """
    try:
        content = files.read(path)
    except OSError as error:
        raise ClosureError(
            f"cannot read the source file: {error.strerror}",
            where=file,
            actual=str(path),
            remedy="check the path and its permissions",
        ) from None
    key = (path, file, content, frozenset((decided or {}).items()))
    if key in _modules:
        _modules.move_to_end(key)
        return _modules[key]
    module = index(content, path, file, decided)
    _modules[key] = module
    if len(_modules) > _LIMIT:
        _modules.popitem(last=False)
    return module


def index(content: bytes, path: Path, file: str, decided: Mapping[Spot, Decision] | None = None) -> SourceModule:
    """Parse `content` and list its module-level statements. Raises ClosureError at the place that does not parse."""
    lines = tuple(_decode(content, file).split("\n"))
    tree = _parse(content, file)
    type_checks = _type_checks(tree) if "TYPE_CHECKING" in "\n".join(lines) else frozenset[str]()
    collector = _Collector(decided=decided or {}, type_checks=type_checks)
    collector.collect(tree.body, (), None)
    units = tuple(
        Unit(
            index=number,
            node=statement.node,
            binds=scope.binds(statement.node),
            inside=statement.inside,
            undecided=statement.undecided,
        )
        for number, statement in enumerate(collector.statements)
    )
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        for name in sorted(unit.binds):
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
        type_checks=type_checks,
    )


_TYPING = ("typing", "typing_extensions")


def _type_checks(tree: ast.Module) -> frozenset[str]:
    """The texts that stand for typing.TYPE_CHECKING, or for a name of the file's own that is never but False."""
    false: set[str] = set()
    other: set[str] = set()
    plain: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = f"{alias.asname or alias.name}.TYPE_CHECKING"
                (false if alias.name in _TYPING else other).add(name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                is_it = node.module in _TYPING and alias.name == "TYPE_CHECKING"
                (false if is_it else other).add(alias.asname or alias.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
            plain += node.targets
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == "TYPE_CHECKING":
            # A tree is walked from the outside in: the statement comes before its names.
            (false if node in plain else other).add(node.id)
    return frozenset(false - other)


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


def decide(test: ast.expr, type_checks: frozenset[str]) -> bool | None:
    """The value of a condition that holds on every machine, or None.

    One of `type_checks`, as it is written, and `__name__ == "__main__"` are false: a slice is neither type-checked nor
    run as a script.
    """
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, (ast.Name, ast.Attribute)) and ast.unparse(test) in type_checks:
        return False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = decide(test.operand, type_checks)
        return None if value is None else not value
    if isinstance(test, ast.BoolOp):
        ends_it = isinstance(test.op, ast.Or)
        values = [decide(value, type_checks) for value in test.values]
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


def _binds(test: ast.expr) -> bool:
    """Whether a condition itself binds a name, `if (n := 2) > 1:`, so that its branches alone would not do."""
    return any(isinstance(node, ast.NamedExpr) for node in ast.walk(test))


@dataclass(frozen=True, kw_only=True)
class _Statement:
    node: ast.stmt
    inside: tuple[ast.stmt, ...]
    undecided: ast.stmt | None


@dataclass(kw_only=True)
class _Collector:
    """Flattens a module body: statements under a condition that is decided are statements of the module.

    It collects while it goes down, so it is not frozen.
    """

    decided: Mapping[Spot, Decision]
    type_checks: frozenset[str]
    statements: list[_Statement] = field(default_factory=list)
    dead: dict[str, int] = field(default_factory=dict)

    def collect(self, body: list[ast.stmt], inside: tuple[ast.stmt, ...], undecided: ast.stmt | None) -> None:
        for node in body:
            known = self.decided.get(spot(node))
            if isinstance(node, ast.If) and not _binds(node.test):
                value = decide(node.test, self.type_checks)
                if value is None:
                    # That it runs counts, whatever it comes to.
                    test = ast.copy_location(ast.Expr(value=node.test), node.test)
                    self.statements.append(_Statement(node=test, inside=inside, undecided=undecided or node))
                    value = known if isinstance(known, bool) else None
                if value is None:
                    for branch in (node.body, node.orelse):
                        self.collect(branch, (*inside, node), undecided or node)
                else:
                    live, dead = (node.body, node.orelse) if value else (node.orelse, node.body)
                    self.collect(live, (*inside, node), undecided)
                    self.leave(dead)
            elif isinstance(node, ast.Try) and isinstance(known, TryPath):
                self.collect_try(node, known, (*inside, node), undecided)
            else:
                decides = isinstance(node, (ast.If, ast.Try, ast.Match)) or type(node).__name__ == "TryStar"
                self.statements.append(
                    _Statement(node=node, inside=inside, undecided=undecided or (node if decides else None))
                )

    def collect_try(
        self, node: ast.Try, path: TryPath, inside: tuple[ast.stmt, ...], undecided: ast.stmt | None
    ) -> None:
        handlers = [handler.body for handler in node.handlers]
        ended_well = path.handler is None
        self.collect(node.body[: path.ran], inside, undecided)
        self.leave(node.body[path.ran :])
        for number, body in enumerate(handlers):
            if number == path.handler:
                self.collect(body, inside, undecided)
            else:
                self.leave(body)
        if ended_well:
            self.collect(node.orelse, inside, undecided)
        else:
            self.leave(node.orelse)
        self.collect(node.finalbody, inside, undecided)

    def leave(self, dead: list[ast.stmt]) -> None:
        for statement in dead:
            self.dead.update(dict.fromkeys(scope.binds(statement), statement.lineno))
