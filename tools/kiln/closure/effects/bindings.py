"""What module-level names are bound to, as far as it counts for effects: what a call of them runs, what can change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kiln.closure import jit, packages, scope
from kiln.closure.module import SourceModule
from kiln.closure.names import Builtin, Function, Names, Place, Target
from kiln.closure.resolve import Definition, Location, Outside

ALL = 9
"""calls of what a call gives back, as deep as anybody nests functions"""


_CALLED_BY_NAME = frozenset({"classmethod", "staticmethod"})
_SEEN = frozenset({"__call__", "__enter__", "__exit__", "__init__", "__init_subclass__", "__new__", "__post_init__"})
"""methods whose calls can be seen"""

_NAMESPACES = frozenset({"__import__", "globals", "locals", "vars"})
_NUMBERS = frozenset({"abs", "bool", "float", "int", "len", "round", "str"})
_CHOOSES = frozenset({"max", "min"})
_PLAIN_MODULES = ("math.", "triton.")


@dataclass(frozen=True, kw_only=True)
class Callee:
    """What a call may run."""

    module: SourceModule
    node: Function | ast.ClassDef
    exact: bool
    """whether the call's arguments are the callee's own; they are not those of a `functools.partial`"""
    later: int = 0
    """whether what it gives back is called instead, and what that gives back ..."""


class Bindings:
    """Looks into what names are bound to, for the time of one cut."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._changeable: dict[Place, bool] = {}
        self._known: dict[Place, list[Callee]] = {}
        self._hidden: dict[ast.ClassDef, list[Callee]] = {}
        self._methods: dict[str, dict[str, list[Callee]]] = {}

    def is_jitted(self, module: SourceModule, node: ast.AST) -> bool:
        """Whether a definition is a function that Triton compiles. Nothing is needed for that."""
        return isinstance(node, ast.FunctionDef) and jit.is_jitted(self.names.project, module, node, {}, needed=False)

    def callees(self, place: Place) -> list[Callee]:
        """What runs when the object at a module-level name is called, as far as the text tells."""
        if place not in self._known:
            self._known[place] = list(self._callees(place, True, set()))
        return self._known[place]

    def hidden(self, made: Callee) -> list[Callee]:
        """The methods of a class that run without being called by name: properties, `__getitem__`, `__add__`."""
        assert isinstance(made.node, ast.ClassDef)
        if made.node not in self._hidden:
            methods = self.inherited(made.module, made.node, None)
            self._hidden[made.node] = [item for item in methods if _is_hidden(item.node)]
        return self._hidden[made.node]

    def _callees(self, place: Place, exact: bool, seen: set[Place]) -> Iterator[Callee]:
        module = self.names.modules.get(place[0])
        if module is None or place in seen:
            return
        seen.add(place)
        for unit in module.binding(place[1]):
            node = unit.node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield Callee(module=module, node=node, exact=exact, later=0 if exact else ALL)
                for decorator in node.decorator_list:
                    yield from self._made(module, decorator, False, seen)
                continue
            for value in _values(node):
                yield from self._made(module, value, exact, seen)
            for child in ast.walk(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and child.name == place[1]:
                    yield Callee(module=module, node=child, exact=exact, later=0 if exact else ALL)

    def _made(self, module: SourceModule, value: ast.expr, exact: bool, seen: set[Place]) -> Iterator[Callee]:
        """The functions that a value is, or is made from: of `partial(f, 1)`, f."""
        exact = exact and isinstance(value, (ast.Name, ast.Attribute, ast.Lambda))
        for child in ast.walk(value):
            if isinstance(child, ast.Lambda):
                yield Callee(module=module, node=child, exact=exact, later=0 if exact else ALL)
        for read in scope.reads(value):
            target = self.names.trace(module, read.name, read.attributes)
            if isinstance(target, Definition) and not target.attributes:
                place = (target.module.file, target.name)
                yield from self._callees(place, exact, seen)

    def origin(self, module: SourceModule, node: ast.expr) -> str | None:
        """The dotted name outside the project that a value comes from: torch.library.Library for a call of it."""
        root = self._root(module, node)
        return root.dotted if isinstance(root, Outside) else None

    def is_defaultdict(self, place: Place) -> bool:
        """Whether a module-level name is bound to a collections.defaultdict, which calls what it is made of."""
        module = self.names.modules.get(place[0])
        nodes = [unit.node for unit in module.binding(place[1])] if module is not None else []
        return module is not None and any(
            isinstance(value, ast.Call) and self.origin(module, value.func) == "collections.defaultdict"
            for node in nodes
            for value in _values(node)
        )

    def comes_from_module(self, place: Place) -> bool:
        """Whether a module-level name may stand for a module, or what holds its names: `m = sys.modules[...]`."""
        pending, seen = [place], {place}
        while pending:
            place = pending.pop()
            module = self.names.modules[place[0]]
            values = [value for unit in module.binding(place[1]) for value in _values(unit.node)]
            for name, attributes in [(node.id, path) for value in values for node, path in scope.chains(value)]:
                target = self.names.trace(module, name, attributes)
                if isinstance(target, Location) or (isinstance(target, Builtin) and target.name in _NAMESPACES):
                    return True
                if isinstance(target, Outside) and packages.gives_anything(target.dotted):
                    return True
                if isinstance(target, Definition) and (target.module.file, target.name) not in seen:
                    seen.add((target.module.file, target.name))
                    pending.append((target.module.file, target.name))
        return False

    def _root(self, module: SourceModule, node: ast.expr) -> Target | None:
        """What stands at the beginning of an expression such as `a.b(1)[2].c`, where renamings are followed."""
        seen: set[Place] = set()
        while True:
            path = scope.plain_path(node)
            if path is not None:
                target = self.names.trace(module, *path)
                if not isinstance(target, Definition) or (target.module.file, target.name) in seen:
                    return target
                seen.add((target.module.file, target.name))
                module = target.module
                made = module.binding(target.name)[-1].node
                values = list(_values(made)) or list(getattr(made, "decorator_list", ()))[:1]
                if isinstance(made, ast.ClassDef):
                    values = made.bases[:1]
                if len(values) != 1:
                    return target
                node = values[0]
            elif isinstance(node, ast.Call):
                node = node.func
            elif isinstance(node, (ast.Attribute, ast.Subscript)):
                node = node.value
            else:
                return None

    def methods(self, file: str, name: str) -> list[Callee]:
        """All methods of that name in the classes of a file."""
        module = self.names.modules.get(file)
        if module is None:
            return []
        if file not in self._methods:
            found: dict[str, list[Callee]] = {}
            for unit in module.units:
                for node in ast.walk(unit.node) if isinstance(unit.node, ast.ClassDef) else ():
                    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        found.setdefault(node.name, []).append(Callee(module=module, node=node, exact=False))
            self._methods[file] = found
        return self._methods[file].get(name, [])

    def inherited(self, module: SourceModule, node: ast.ClassDef, names: frozenset[str] | None) -> Iterator[Callee]:
        """The methods, all or those in `names`, of a class and of the project's classes that it is derived from."""
        pending, seen = [(module, node)], set()
        while pending:
            module, node = pending.pop()
            seen.add((module.file, node.name))
            for child in node.body:
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
                    names is None or child.name in names
                ):
                    yield Callee(module=module, node=child, exact=True)
            for base in node.bases:
                chain = scope.dotted(base)
                target = self.names.trace(module, chain[0].id, chain[1]) if chain is not None else None
                if isinstance(target, Definition) and (target.module.file, target.name) not in seen:
                    found = [unit.node for unit in target.module.binding(target.name)]
                    pending += [(target.module, unit) for unit in found if isinstance(unit, ast.ClassDef)]

    def changeable(self, place: Place) -> bool:
        """Whether the object at a module-level name can change in place: a number, a text or a function cannot.

        A function has attributes. What stores into them by its name counts as binding the name anew; others, to whom it
        is given, are taken to call it and no more.
        """
        module = self.names.modules.get(place[0])
        if module is None:
            return True
        if place not in self._changeable:
            units = module.binding(place[1])
            plain = all(self._binds_plain(module, unit.node, frozenset({place})) for unit in units)
            self._changeable[place] = not units or not plain
        return self._changeable[place]

    def is_function(self, place: Place) -> bool:
        """Whether a module-level name is bound to a function that Python runs when it is called."""
        return not self.changeable(place) and any(
            not self.is_jitted(callee.module, callee.node) for callee in self.callees(place)
        )

    def holds_functions(self, place: Place) -> bool:
        """Whether a module-level name is bound to a list or the like of functions."""
        module = self.names.modules.get(place[0])
        return module is not None and any(
            isinstance(value, (ast.Dict, ast.List, ast.Set, ast.Tuple)) and self.callees(place)
            for unit in module.binding(place[1])
            for value in _values(unit.node)
        )

    def _binds_plain(self, module: SourceModule, node: ast.stmt, seen: frozenset[Place]) -> bool:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)):
            return True
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        else:
            return False
        return all(isinstance(target, ast.Name) for target in targets) and (
            node.value is None or self._is_plain(module, node.value, seen)
        )

    def _is_plain(self, module: SourceModule, value: ast.expr, seen: frozenset[Place]) -> bool:
        """Whether a value is a number, a text or made of such alone, which nothing can change in place."""
        if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Compare, ast.Lambda)):
            return True
        if isinstance(value, (ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.IfExp, ast.Tuple)):
            parts = [child for child in ast.iter_child_nodes(value) if isinstance(child, ast.expr)]
            return all(self._is_plain(module, part, seen) for part in parts)
        chain = scope.dotted(value.func if isinstance(value, ast.Call) else value)
        if chain is None:
            # `triton.autotune(...)(f)`
            return isinstance(value, ast.Call) and (self.origin(module, value) or "").startswith(_PLAIN_MODULES)
        target = self.names.trace(module, chain[0].id, chain[1])
        if isinstance(target, Outside):
            return target.dotted.startswith(_PLAIN_MODULES)
        if isinstance(value, ast.Call):
            given = [*value.args, *(keyword.value for keyword in value.keywords)]
            return (
                isinstance(target, Builtin)
                and not target.attributes
                and (target.name in _NUMBERS or target.name in _CHOOSES)
                and (target.name in _NUMBERS or all(self._is_plain(module, item, seen) for item in given))
            )
        if not isinstance(target, Definition) or (target.module.file, target.name) in seen:
            return False
        seen |= {(target.module.file, target.name)}
        nodes = [unit.node for unit in target.module.binding(target.name)]
        if target.attributes:
            # `Cfg.S`, where the text of the class gives S.
            if len(target.attributes) != 1 or len(nodes) != 1 or not isinstance(nodes[0], ast.ClassDef):
                return False
            nodes = [child for child in nodes[0].body if target.attributes[0] in scope.binds(child)]
        return bool(nodes) and all(self._binds_plain(target.module, node, seen) for node in nodes)


def _is_hidden(node: ast.AST) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    if node.decorator_list:
        # `@property`, `@cached_property`, `@size.setter`; those of one's own may make such as well.
        return not all(isinstance(item, ast.Name) and item.id in _CALLED_BY_NAME for item in node.decorator_list)
    return node.name.startswith("__") and node.name not in _SEEN


def _values(node: ast.stmt) -> Iterator[ast.expr]:
    """The expressions that the names bound by a statement get their objects from."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        yield node.value
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.iter
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        yield from (item.context_expr for item in node.items)
