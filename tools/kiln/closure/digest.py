"""Digests of a slice: of the whole, and of each definition in it, free of comments, formatting and line numbers."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from kiln.closure import scope
from kiln.closure.module import SourceModule, Unit, index
from kiln.closure.resolve import PACKAGE, bound_by, is_import

_NO_MEANING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""fields of ast nodes that follow from others or say nothing to Python"""


@dataclass(kw_only=True)
class Digests:
    """Collects the digests of a closure's modules, one by one, so it is not frozen; both are lower-case sha256."""

    function: str
    components: dict[str, str] = field(default_factory=dict)
    """`kernels/softmax.py:softmax_kernel` -> digest of all that binds or changes that name in the slice"""

    def __post_init__(self) -> None:
        self._whole = hashlib.sha256()
        self._put("kiln closure 1", self.function)

    def _put(self, *texts: str) -> None:
        for text in texts:
            data = text.encode()
            self._whole.update(b"%d:" % len(data) + data)

    def add(self, name: str, file: str, text: str) -> None:
        """Take in the module `name`, cut from `file`. The text is what gets executed, so it is what gets hashed."""
        self._put(name, file)
        parts: dict[str, list[str]] = {}
        module = index(text.encode(), Path(file), file)
        for imports, run in groupby(module.units, key=is_import):
            statements = [statement for unit in run for statement in _statements(module, unit)]
            if imports:
                # The order of neighbouring imports is formatting, but for that of the project's modules, which may
                # change each other, and for a name that two of them bind: see its component.
                statements.sort(key=lambda statement: (0, "") if PACKAGE in statement[1] else (1, statement[1]))
            self._put(*(written for _, written in statements))
            for names, statement in statements:
                for bound in names:
                    parts.setdefault(bound, []).append(statement)
        parts.pop(PACKAGE, None)  # bound by the import of a module below another, and no definition of the user's
        for bound, texts in sorted(parts.items()):
            joined = "".join(f"{len(part)}:{part}" for part in texts)
            self.components[f"{file}:{bound}"] = hashlib.sha256(joined.encode()).hexdigest()
            self._put(bound, self.components[f"{file}:{bound}"])

    def add_answers(self, answers: Mapping[str, str]) -> None:
        """Take in what the closure asked of the world, and what it was answered."""
        for fact, answer in answers.items():
            self._put("asked", fact, answer)
            self.components[fact] = hashlib.sha256(answer.encode()).hexdigest()

    def add_whole(self, name: str, file: str, text: str) -> None:
        """Take in a file as it stands: what runs in it may read its own text and lines."""
        self._put("whole", name, file, text)
        self.components[file] = hashlib.sha256(text.encode()).hexdigest()

    def hexdigest(self) -> str:
        return self._whole.hexdigest()


def lines_of(text: str, file: str, name: str) -> list[tuple[int, str]]:
    """What the component of a name is over: the lines of a slice's module that bind or change it, by their numbers."""
    module, lines = _indexed(text, file), text.splitlines()
    found: dict[int, str] = {}
    for unit in module.units:
        if any(name in names for names, _ in _statements(module, unit)):
            decorators = [decorator.lineno for decorator in getattr(unit.node, "decorator_list", ())]
            first = min([unit.node.lineno, *decorators])
            found |= {number: lines[number - 1] for number in range(first, (unit.node.end_lineno or first) + 1)}
    return sorted(found.items())


@lru_cache(maxsize=16)
def _indexed(text: str, file: str) -> SourceModule:
    """Asked for each of a module's names in turn."""
    return index(text.encode(), Path(file), file)


def _statements(module: SourceModule, unit: Unit) -> list[tuple[list[str], str]]:
    """A unit as (names, canonical text); an import gives one for each name, as if written in lines of their own.

    A statement that binds nothing, such as `SIZES.append(4)`, counts to the first name of the file that it reads.
    """
    node = unit.node
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        read = [read.name for read in scope.reads(node) if module.binding(read.name)][:1] if not unit.binds else []
        return [(sorted(unit.binds) or read, "".join(canonical(node)))]
    source = f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else ""
    return [([bound_by(alias)], f"import({source!a},{alias.name!a},{alias.asname!a})") for alias in node.names]


def canonical(node: ast.AST) -> Iterator[str]:
    """The tree as text that is the same on every Python that Kiln runs on.

    ast.dump writes fields that are empty on one version and leaves them out on the next, and ast.unparse changed its
    quotes and parentheses more than once; so this writes type names and the fields that hold something, and no others.
    Strings that stand as statements, docstrings among them, are left out.
    """
    yield type(node).__name__
    yield "("
    for name in node._fields:
        value = getattr(node, name, None)
        if name in _NO_MEANING or (value is None and not isinstance(node, ast.Constant)):
            continue
        if isinstance(node, ast.Constant):
            yield _constant(value)
        elif isinstance(value, list):
            items = _merged(value) if isinstance(node, ast.JoinedStr) else value
            items = [item for item in items if not _is_text_statement(item)]
            if items:
                yield f"{name}=["
                yield from _items(items)
                yield "]"
        else:
            yield f"{name}="
            yield from _items([value])
    yield ")"


def _items(items: Iterable[object]) -> Iterator[str]:
    for item in items:
        if isinstance(item, ast.AST):
            yield from canonical(item)
        else:
            # A name, an operator's number, or None: a missing default of a keyword-only parameter, a `**` in a dict.
            yield ascii(item)
        yield ","


def _merged(values: list[ast.AST]) -> list[ast.AST]:
    """An f-string's pieces; parsers differ in where they split plain text, and in whether empty text is a piece."""
    merged: list[ast.AST] = []
    for value in values:
        last = merged[-1] if merged else None
        if not isinstance(value, ast.Constant):
            merged.append(value)
        elif isinstance(last, ast.Constant):
            merged[-1] = ast.Constant(value=str(last.value) + str(value.value))
        elif value.value:
            merged.append(value)
    return merged


def _is_text_statement(item: object) -> bool:
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)


def _constant(value: object) -> str:
    """Type and value: 1, 1.0 and True are not the same to a compiler. Integers in hex, which has no length limit."""
    return f"{type(value).__name__} {hex(value) if type(value) is int else ascii(value)}"
