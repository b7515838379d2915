"""What a jitted function does with its parameters, told from its text: which are pointers, sizes, switches."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kiln.closure.module import SourceModule
from kiln.closure.resolve import Definition, Location, Project, alias_of

_MEMORY = frozenset({"load", "store", "make_block_ptr", "make_tensor_descriptor", "prefetch"})
"""functions of triton.language whose first argument is a pointer; the atomic ones as well"""
_SHAPES = frozenset({"zeros", "full", "broadcast_to", "reshape", "view", "empty"})
_PASS_ON = frozenset({"multiple_of", "max_contiguous", "max_constancy", "advance", "assume"})
"""functions that give their first argument back"""
_DEEPEST = 6
"""helpers within helpers that are looked into"""


@dataclass(kw_only=True)
class Use:
    """What the function does with one parameter. It is filled while the function is read."""

    pointer: bool = False
    extent: bool = False
    """it makes the length of a block: a power of two"""
    unrolled: bool = False
    """it says how often a loop is written out"""
    integer: bool = False
    """it counts, indexes, or bounds a loop"""
    real: bool = False
    """it is computed with loaded values"""
    truth: bool = False
    maybe_none: bool = False
    dtype: bool = False
    descriptor: bool = False
    """a tensor descriptor that the host makes: blocks are loaded through it as `x.load([...])`"""
    called: bool = False
    texts: list[str] = field(default_factory=list)
    """that it is compared with"""
    numbers: list[int] = field(default_factory=list)
    holds_index: bool = False
    """values loaded through it lead to other places in memory"""
    holds_truth: bool = False
    """values loaded through it are masks or conditions"""
    mentioned: bool = False

    def merge(self, other: Use) -> None:
        """Add what a helper does with it."""
        for name in (
            "pointer",
            "extent",
            "unrolled",
            "integer",
            "real",
            "truth",
            "maybe_none",
            "dtype",
            "called",
            "descriptor",
        ):
            setattr(self, name, getattr(self, name) or getattr(other, name))
        self.holds_index = self.holds_index or other.holds_index
        self.holds_truth = self.holds_truth or other.holds_truth
        self.texts += other.texts
        self.numbers += other.numbers


@dataclass(frozen=True, kw_only=True)
class Uses:
    """All parameters of a function, and what it launches over."""

    of: Mapping[str, Use]
    dimensions: int
    """of the grid: one more than the highest axis of `tl.program_id`"""
    computes_in_fp32: bool
    """it converts what it loads, or multiplies matrices: any dtype of floating point will do"""


def uses(project: Project, module: SourceModule, node: ast.FunctionDef, depth: int = 0) -> Uses:
    """Read a function, and the project's helpers that it calls."""
    return _Reader(project=project, module=module, node=node, depth=depth).read()


def names_of(node: ast.FunctionDef) -> list[str]:
    """The function's parameters in order."""
    return [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def find_function(
    project: Project, module: SourceModule, name: str, seen: frozenset[str] = frozenset()
) -> tuple[SourceModule, ast.FunctionDef] | None:
    """The project's function that a name at module level stands for, through imports; None when there is none."""
    units = module.binding(name)
    if not units or module.file in seen:
        return None
    node = units[-1].node
    if isinstance(node, ast.FunctionDef):
        return module, node
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        imported = project.needed(module, node, alias_of(node, name))
        if isinstance(imported.module, Location) and imported.names:
            end = project.follow(imported.module, imported.names, module)
            if isinstance(end, Definition) and not end.attributes:
                return find_function(project, end.module, end.name, seen | {module.file})
    return None


@dataclass(frozen=True, kw_only=True)
class _Reader:
    project: Project
    module: SourceModule
    node: ast.FunctionDef
    depth: int
    found: dict[str, Use] = field(default_factory=dict)
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    """local variable -> what it is set to, one after the other"""

    def read(self) -> Uses:
        self.found.update({name: Use() for name in names_of(self.node)})
        body = [node for statement in self.node.body for node in ast.walk(statement)]
        for node in body:
            self._assignments(node)
        bases = [base for node in body if (base := self._address(node)) is not None]
        for node in body:
            self._plain_uses(node)
            if isinstance(node, ast.Call):
                self._call(node)
        for base in bases:
            self._pointer(base)
        self._contents(bases, body)
        axes = [self._axis(node) for node in body if isinstance(node, ast.Call)]
        text = ast.unparse(self.node)
        return Uses(
            of=self.found,
            dimensions=max([axis for axis in axes if axis is not None], default=0) + 1,
            computes_in_fp32="float32" in text or ".dot(" in text,
        )

    # -- names

    def _assignments(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self.assigned.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for part, value in zip(target.elts, node.value.elts, strict=False):
                        if isinstance(part, ast.Name):
                            self.assigned.setdefault(part.id, []).append(value)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Name) and node.value:
            self.assigned.setdefault(node.target.id, []).append(node.value)

    # -- pointers

    def _address(self, node: ast.AST) -> ast.expr | None:
        """The address that a call loads from, stores to or makes a block of."""
        if not isinstance(node, ast.Call):
            return None
        word = _word(node.func)
        if word not in _MEMORY and not word.startswith("atomic_"):
            return None
        if node.args:
            return node.args[0]
        named = [keyword.value for keyword in node.keywords if keyword.arg in ("base", "pointer")]
        return named[0] if named else None

    def _summands(self, node: ast.expr, seen: set[str]) -> Iterator[str]:
        """The parameters that stand alone in a sum: one of them is the pointer, others are offsets."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            yield from self._summands(node.left, seen)
            yield from self._summands(node.right, seen)
        elif isinstance(node, ast.Subscript):
            yield from self._summands(node.value, seen)
        elif isinstance(node, ast.IfExp):
            yield from self._summands(node.body, seen)
            yield from self._summands(node.orelse, seen)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                yield from self._summands(node.func.value, seen)
            elif _word(node.func) in _PASS_ON | {"make_block_ptr"} and node.args:
                yield from self._summands(node.args[0], seen)
        elif isinstance(node, ast.Name) and node.id not in seen:
            if node.id in self.found:
                yield node.id
            seen.add(node.id)
            for value in self.assigned.get(node.id, ()):
                yield from self._summands(value, seen)

    def _pointer(self, base: ast.expr) -> None:
        candidates = list(dict.fromkeys(self._summands(base, set())))
        likely = [name for name in candidates if not self.found[name].integer]
        for name in likely[:1] if not any(self.found[name].pointer for name in likely) else ():
            self.found[name].pointer = True

    def _contents(self, bases: list[ast.expr], body: list[ast.AST]) -> None:
        """Whether what is loaded through a pointer is an index or a mask."""
        loads = {name: set(self._pointers_loaded(values)) for name, values in self.assigned.items()}
        loaded = {name: found for name, found in loads.items() if found}
        for base in bases:
            own = set(self._summands(base, set()))
            for name in self._variables(base):
                for pointer in loaded.get(name, set()) - own:
                    self.found[pointer].holds_index = True
        for node in body:
            if isinstance(node, ast.Call) and _word(node.func) in ("range", "arange", "static_range"):
                for argument in node.args:
                    for name in self._variables(argument):
                        for pointer in loaded.get(name, ()):
                            self.found[pointer].holds_index = True
            if isinstance(node, ast.Call) and _word(node.func) == "where" and node.args:
                for pointer in loaded.get(_word(node.args[0]), ()):
                    self.found[pointer].holds_truth = True

    def _pointers_loaded(self, values: Iterable[ast.expr]) -> Iterator[str]:
        """The pointers that a variable is loaded through, where that is all that it is set to."""
        for value in values:
            inner = value
            while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "to":
                inner = inner.func.value
            if isinstance(inner, ast.Call) and _word(inner.func) == "load" and inner.args:
                yield from (n for n in self._summands(inner.args[0], set()) if self.found[n].pointer)

    def _variables(self, node: ast.AST) -> set[str]:
        """The local variables that an expression is made of, through those that they are made of; not through loads."""
        found: set[str] = set()
        waiting = [node]
        while waiting:
            for child in ast.walk(waiting.pop()):
                if isinstance(child, ast.Name) and child.id in self.assigned and child.id not in found:
                    found.add(child.id)
                    waiting += [value for value in self.assigned[child.id] if not _loads(value)]
        return found

    # -- everything else

    def _mark(self, node: ast.AST, what: str) -> None:
        if isinstance(node, ast.Name) and node.id in self.found:
            setattr(self.found[node.id], what, True)

    def _plain_uses(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and node.id in self.found:
            self.found[node.id].mentioned = True
        if isinstance(node, (ast.If, ast.IfExp, ast.While)):
            self._mark(node.test, "truth")
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self._mark(value, "truth")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._mark(node.operand, "truth")
        elif isinstance(node, ast.Compare):
            self._compare(node)
        elif isinstance(node, ast.BinOp):
            self._binary(node)

    def _compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        names = [side.id for side in sides if isinstance(side, ast.Name) and side.id in self.found]
        constants = [
            leaf.value
            for side in sides
            for leaf in (side.elts if isinstance(side, (ast.Tuple, ast.List, ast.Set)) else [side])
            if isinstance(leaf, ast.Constant)
        ]
        constants += [value for side in sides if (value := self._known(side)) is not None]
        for name in names:
            use = self.found[name]
            if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
                use.maybe_none = use.maybe_none or None in constants
            elif any(isinstance(value, str) for value in constants):
                use.texts += [value for value in constants if isinstance(value, str)]
            elif any(isinstance(value, bool) for value in constants):
                use.truth = True
            else:
                use.numbers += [value for value in constants if isinstance(value, int)]
                use.integer = use.integer or not any(isinstance(value, float) for value in constants)

    def _known(self, node: ast.expr) -> int | str | None:
        """The number or text that a name at module level stands for, as it is or as a tl.constexpr."""
        units = self.module.binding(node.id) if isinstance(node, ast.Name) else ()
        value = getattr(units[-1].node, "value", None) if units else None
        if isinstance(value, ast.Call) and _word(value.func) == "constexpr" and value.args:
            value = value.args[0]
        known = value.value if isinstance(value, ast.Constant) else None
        return known if isinstance(known, (int, str)) else None

    def _binary(self, node: ast.BinOp) -> None:
        whole = isinstance(node.op, (ast.FloorDiv, ast.Mod, ast.LShift, ast.RShift, ast.BitAnd))
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if whole:
                self._mark(side, "integer")
            elif isinstance(node.op, (ast.Div, ast.Pow)) or self._is_loaded(other):
                self._mark(side, "real")
            elif isinstance(node.op, ast.Mult):
                self._mark(side, "integer" if self._counts(other) else "mentioned")

    def _is_loaded(self, node: ast.expr) -> bool:
        """Whether a value is loaded from memory, or computed from what is."""
        return any(
            isinstance(part, ast.Call) and _word(part.func) in ("load", "dot", "sum", "exp", "sqrt")
            for part in self._parts(node)
        )

    def _counts(self, node: ast.expr) -> bool:
        """Whether a value is a position or a size."""
        words = {_word(part.func) for part in self._parts(node) if isinstance(part, ast.Call)}
        return bool(words & {"program_id", "arange", "cdiv", "num_programs"}) or isinstance(node, ast.Name)

    def _parts(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parts of an expression, and of what its variables are set to."""
        seen: set[str] = set()
        waiting = [node]
        while waiting:
            for part in ast.walk(waiting.pop()):
                yield part
                if isinstance(part, ast.Name) and part.id not in seen:
                    seen.add(part.id)
                    waiting += self.assigned.get(part.id, ())

    def _call(self, node: ast.Call) -> None:
        self._mark(node.func, "called")
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("load", "store", "gather", "scatter"):
            self._mark(node.func.value, "descriptor")
        word = _word(node.func)
        if word == "arange" or word in _SHAPES:
            for argument in node.args[:2] if word == "arange" else [*node.args[:1], *node.args[1:2]]:
                self._shape(argument, exact=word == "arange")
        if word in ("range", "static_range", "cdiv"):
            for argument in node.args:
                for name in self._direct(argument):
                    self.found[name].integer = True
                if word == "static_range":
                    self._mark(argument, "unrolled")
        for keyword in node.keywords:
            if keyword.arg in ("dtype", "out_dtype", "acc_dtype"):
                self._mark(keyword.value, "dtype")
            elif keyword.arg in ("shape", "block_shape"):
                for part in ast.walk(keyword.value):
                    self._mark(part, "extent" if keyword.arg == "block_shape" else "integer")
            elif keyword.arg == "strides":
                for part in ast.walk(keyword.value):
                    self._mark(part, "integer")
        if word in ("make_block_ptr", "make_tensor_descriptor"):
            blocks = 4 if word == "make_block_ptr" else 3
            for index, what in ((1, "integer"), (2, "integer"), (blocks, "extent")):
                for part in ast.walk(node.args[index]) if len(node.args) > index else ():
                    self._mark(part, what)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args:
            self._mark(node.args[0], "dtype")
        if word in _SHAPES and len(node.args) > 1:
            self._mark(node.args[-1], "dtype")
        self._helper(node)

    def _shape(self, node: ast.expr, *, exact: bool) -> None:
        parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node] if exact else []
        for part in parts:
            for name in self._direct(part):
                self.found[name].extent = True

    def _direct(self, node: ast.AST) -> Iterator[str]:
        return (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in self.found)

    def _helper(self, node: ast.Call) -> None:
        """What a helper of the project does with what it is given is done with it here."""
        if not isinstance(node.func, ast.Name) or self.depth >= _DEEPEST:
            return
        helper = find_function(self.project, self.module, node.func.id)
        if helper is None or helper[1] is self.node:
            return
        inner = uses(self.project, *helper, self.depth + 1).of
        given = dict(zip(inner, node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg and keyword.arg in inner}
        for name, value in given.items():
            if isinstance(value, ast.Name) and value.id in self.found:
                self.found[value.id].merge(inner[name])
            elif inner[name].pointer:
                self._pointer(value)

    def _axis(self, node: ast.Call) -> int | None:
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        if _word(node.func) == "program_id" and values and isinstance(values[0], ast.Constant):
            return values[0].value if isinstance(values[0].value, int) else None
        return None


def _loads(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) and _word(part.func) == "load" for part in ast.walk(node))


def _word(node: ast.expr) -> str:
    """The last word of a dotted name: load of tl.load; empty for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
