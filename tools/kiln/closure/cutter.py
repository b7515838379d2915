"""Follows names from one function through a project's files, and keeps the statements that they need."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field

from kiln.closure import jit, scope
from kiln.closure.module import SourceModule, Unit
from kiln.closure.resolve import (
    Definition,
    Location,
    Missing,
    Outside,
    Project,
    alias_of,
    bound_by,
    is_import,
    parts_of,
    refusal,
    synthetic_name,
)
from kiln.errors import ClosureError, Position, did_you_mean

_RUN_TIME = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars"}
)
"""builtins that reach code, names or files which no reading of the source can tell"""


@dataclass(frozen=True, kw_only=True)
class Want:
    """A name of a module that the closure needs, and how it came to need it."""

    module: SourceModule
    name: str
    attributes: tuple[str, ...] = ()
    at: Position
    """where it is read"""
    certain: bool = True
    via: tuple[str, ...] = ()
    """the definitions that lead to it, the kernel first"""

    def path(self) -> str:
        return ".".join((self.name, *self.attributes))


@dataclass
class Kept:
    """What the closure has of one file."""

    module: SourceModule
    statements: dict[int, ast.stmt] = field(default_factory=dict)
    imports: dict[int, dict[str, _Import]] = field(default_factory=dict)

    def content(self) -> dict[int, ast.stmt | list[str]]:
        content: dict[int, ast.stmt | list[str]] = {**self.statements}
        for unit in self.module.futures:
            content[unit.index] = unit.node
        for index, names in self.imports.items():
            node = self.module.units[index].node
            assert isinstance(node, (ast.Import, ast.ImportFrom))
            order = dict.fromkeys(bound_by(alias) for alias in node.names)
            content[index] = [names[name].text() for name in order if name in names]
        return content


@dataclass
class _Import:
    """One name of an import statement as the slice has it."""

    statement: str
    below: set[str] = field(default_factory=set)
    """synthetic modules that are reached through the name, and so must be imported with it"""

    def text(self) -> str:
        modules = ", ".join(sorted(self.below))
        return f"import {modules}; {self.statement}" if modules else self.statement


class Cutter:
    """Follows names from the kernel until nothing new is needed."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.kept: dict[str, Kept] = {}
        self._pending: list[Want] = []
        self._seen: set[tuple[str, str, tuple[str, ...], bool]] = set()
        self._needed: set[tuple[str, str]] = set()

    def need(self, want: Want) -> None:
        key = (want.module.file, want.name, want.attributes, want.certain)
        if key not in self._seen:
            self._seen.add(key)
            self._pending.append(want)

    def follow(self) -> None:
        while self._pending:
            while self._pending:
                self._resolve(self._pending.pop())
            self._keep_changes_from_outside()

    def _resolve(self, want: Want) -> None:
        module = want.module
        self._refuse_star(want, module, set())
        if not module.binding(want.name):
            if want.certain:
                self._unbound(want)
            return
        self._needed.add((module.file, want.name))
        for unit in module.by_name[want.name]:
            if want.name not in unit.binds and self._import_of(module, want.name) is not None:
                # `config.SIZE = 4` matters to those who read that attribute: see _keep_changes_from_outside.
                continue
            if unit.undecided is not None:
                raise undecided_error(module, unit, want.name, want.at, want.via)
            if is_import(unit) and want.name in unit.binds:
                self._keep_import(unit, want)
            else:
                self._keep(module, unit, want)

    def _unbound(self, want: Want) -> None:
        module = want.module
        if want.name in _RUN_TIME:
            raise ClosureError(
                f"{want.name}() reaches what cannot be read off the source",
                where=want.at,
                expected="code whose names and values stand in the source",
                actual=_reached(want),
                remedy=f"write the value that {want.name}() gives into the file",
            )
        if hasattr(builtins, want.name):
            return
        if module.stars:
            raise _star_error(want, module.stars[-1])
        if want.name in module.dead:
            found = f"bound only in line {module.dead[want.name]}, in a branch that never runs"
        else:
            found = f"no statement at module level binds it; {_reached(want)}"
        raise ClosureError(
            f"the name {want.name!r} is not defined in {module.file}",
            where=want.at,
            actual=found,
            remedy=did_you_mean(want.name, module.by_name) or "define it at module level, or import it by name",
        )

    def _refuse_star(self, want: Want, module: SourceModule, seen: set[str]) -> None:
        """Refuse a name that a star import of the project binds as well: which one is meant depends on their order."""
        for star in module.stars:
            node = star.node
            assert isinstance(node, ast.ImportFrom)
            place = self.project.imported(module, node, node.names[0]).module
            if not isinstance(place, Location) or place.path is None or want.name.startswith("_"):
                continue
            other = self.project.open(place.path)
            if other.file in seen:
                continue
            seen.add(other.file)
            if other.binding(want.name) and _imports(other, want.name) != (_imports(want.module, want.name) or None):
                raise _star_error(want, star)
            self._refuse_star(want, other, seen)

    def _keep(self, module: SourceModule, unit: Unit, want: Want) -> None:
        statements = self._of(module).statements
        if unit.index in statements:
            return
        _refuse_introspection(module, unit.node, want)
        made = jit.effective(self.project, module, unit.node)
        statements[unit.index] = made.node
        via = (*want.via, f"{module.file}:{want.name}")
        for inner in scope.imports_inside(made.node):
            self._check_inner_import(module, inner, via)
        # Triton evaluates annotations itself; Python does not where the file postpones them.
        annotations = made.jitted or not module.lazy_annotations
        # The last one in is the first one out: what is wrong is told in the order of the text.
        for read in reversed(scope.reads(made.node, annotations=annotations)):
            self.need(
                Want(
                    module=module,
                    name=read.name,
                    attributes=read.attributes,
                    at=module.position(read.node),
                    certain=read.certain,
                    via=via,
                )
            )

    def _keep_import(self, unit: Unit, want: Want) -> None:
        """Keep the one name of an import statement, and what is read off the module that it names."""
        assert isinstance(unit.node, (ast.Import, ast.ImportFrom))
        alias = alias_of(unit.node, want.name)
        imported = self.project.imported(want.module, unit.node, alias)
        names = self._of(want.module).imports.setdefault(unit.index, {})
        if isinstance(imported.module, Outside):
            self._check_outside(".".join((imported.module.dotted, *imported.names, *want.attributes)), want)
            # `import a.b, a.c` binds a twice, and a alone does not make a.b.
            every = [_single(unit.node, one) for one in unit.node.names if bound_by(one) == want.name]
            names[want.name] = _Import(statement="; ".join(every))
            return
        path = (*imported.names, *want.attributes)
        end = self.project.follow(imported.module, path, want.module)
        if isinstance(end, Missing):
            raise _missing(self.project, end, want)
        if isinstance(end, Location):
            raise ClosureError(
                f"{want.path()} is a module, and is used as a value",
                where=want.at,
                expected="a name read off it, so that only that is cut",
                actual=_reached(want),
                remedy="read the names that are needed off the module where they are used",
            )
        module_parts = parts_of(end.module.file)
        used = len(path) - len(end.attributes)
        if imported.names and used == len(imported.names):
            statement = f"from {synthetic_name(module_parts)} import {path[0]} as {want.name}"
            names.setdefault(want.name, _Import(statement=statement))
        else:
            bound = imported.module.parts + imported.names
            entry = names.setdefault(want.name, _Import(statement=f"import {synthetic_name(bound)} as {want.name}"))
            if module_parts != bound:
                entry.below.add(synthetic_name(module_parts))
        self.need(
            Want(
                module=end.module,
                name=end.name,
                attributes=end.attributes,
                at=want.at,
                via=(*want.via, f"{want.module.file}:{want.name}"),
            )
        )

    def _check_outside(self, dotted: str, want: Want) -> None:
        reason = refusal(dotted)
        if reason is None:
            return
        top = dotted.partition(".")[0]
        needed = dotted if top == "triton" else top
        raise ClosureError(
            f"the kernel needs {needed!r} at compile time: {reason}",
            where=want.at,
            expected="Triton, this project's files, and the parts of Python's library that only compute",
            actual=_reached(want),
            remedy="make it a tl.constexpr parameter of the kernel, or write the target's value into the file"
            if top == "triton"
            else f"write the value that {want.path()} stands for into the file",
        )

    def _check_inner_import(
        self, module: SourceModule, node: ast.Import | ast.ImportFrom, via: tuple[str, ...]
    ) -> None:
        for alias in node.names:
            imported = self.project.imported(module, node, alias)
            want = Want(module=module, name=bound_by(alias), at=module.position(node), via=via)
            if isinstance(imported.module, Outside):
                self._check_outside(".".join((imported.module.dotted, *imported.names)), want)
                continue
            raise ClosureError(
                f"`{ast.unparse(node)}` inside another statement cannot be cut",
                where=want.at,
                expected="imports of project files at module level",
                actual=_reached(want),
                remedy="move the import to the top of the file",
            )

    def _keep_changes_from_outside(self) -> None:
        """Keep what the closure's files do to each other's objects: `config.SIZE = 4` for an imported config."""
        for kept in list(self.kept.values()):
            module = kept.module
            for unit in module.units:
                if not unit.mutates or unit.index in kept.statements or is_import(unit):
                    continue
                for read in scope.reads(unit.node):
                    target = self._target(module, read) if read.name in unit.mutates else None
                    if target is None or (target.module.file, target.name) not in self._needed:
                        continue
                    want = Want(module=module, name=read.name, at=module.position(read.node))
                    if unit.undecided is not None:
                        raise undecided_error(module, unit, read.name, want.at, ())
                    self._keep(module, unit, want)

    def _target(self, module: SourceModule, read: scope.Read) -> Definition | None:
        """The definition in another file that a name and its attributes lead to."""
        imported = self._import_of(module, read.name)
        if imported is None:
            return None
        location, names = imported
        end = self.project.follow(location, (*names, *read.attributes), module)
        return end if isinstance(end, Definition) else None

    def _import_of(self, module: SourceModule, name: str) -> tuple[Location, tuple[str, ...]] | None:
        """The project module that `name` is imported from, and the names that are looked up in it."""
        units = module.binding(name)
        if not units or not isinstance(node := units[-1].node, (ast.Import, ast.ImportFrom)):
            return None
        imported = self.project.imported(module, node, alias_of(node, name))
        return None if isinstance(imported.module, Outside) else (imported.module, imported.names)

    def _of(self, module: SourceModule) -> Kept:
        return self.kept.setdefault(module.file, Kept(module=module))


def _single(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The import statement for one of its names."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(names=[alias]))
    return ast.unparse(ast.ImportFrom(module=node.module, names=[alias], level=node.level))


def _reached(want: Want) -> str:
    return f"{want.path()}, reached by {' -> '.join(want.via)}" if want.via else want.path()


def _imports(module: SourceModule, name: str) -> list[str]:
    """The import statements that bind a name, in words; empty where anything else binds it too, or nothing does."""
    found = set()
    for unit in module.by_name.get(name, ()):
        if not isinstance(unit.node, ast.Import | ast.ImportFrom):
            return []
        found.add(_single(unit.node, alias_of(unit.node, name)))
    return sorted(found)


_INTROSPECTION = frozenset(
    {"__doc__", "__code__", "__file__", "__dict__", "__mro__", "__subclasses__", "starting_line_number"}
)
"""attributes that tell of texts, lines and places, which a slice does not keep and its digest does not cover"""


def _refuse_introspection(module: SourceModule, node: ast.stmt, want: Want) -> None:
    for found in ast.walk(node):
        name = found.attr if isinstance(found, ast.Attribute) else found.id if isinstance(found, ast.Name) else ""
        if name in _INTROSPECTION:
            raise ClosureError(
                f"{name} tells of the source's text or place, which decide no image",
                where=module.position(found),
                expected="values that stand in the source",
                actual=_reached(want),
                remedy="write the value that it gives into the file",
            )


def _star_error(want: Want, star: Unit) -> ClosureError:
    return ClosureError(
        f"{want.name} may come from `{ast.unparse(star.node)}` in line {star.node.lineno}, which cannot be cut",
        where=want.at,
        expected="an import that names it",
        actual=_reached(want),
        remedy=f"write `from {getattr(star.node, 'module', None) or '.'} import {want.name}`",
    )


def _missing(project: Project, missing: Missing, want: Want) -> ClosureError:
    path = missing.location.path
    owner = path.relative_to(project.root).as_posix() if path is not None else "/".join(missing.location.parts)
    known = project.open(path).by_name if path is not None else ()
    return ClosureError(
        f"{owner} has no name {missing.name!r} that can be read off its source",
        where=want.at,
        expected=f"a name that {owner} binds at module level",
        actual=_reached(want),
        remedy=did_you_mean(missing.name, known) or "define it there; names that come by `import *` cannot be cut",
    )


def undecided_error(module: SourceModule, unit: Unit, name: str, at: Position, via: tuple[str, ...]) -> ClosureError:
    assert unit.undecided is not None
    return ClosureError(
        f"{name} is bound or changed under a condition that only a run can decide",
        where=module.position(unit.undecided),
        expected="statements at module level, or under `if` with True, False or TYPE_CHECKING",
        actual=f"`{headline(unit.undecided)}`; {name} is read at {at}" + (f" by {' -> '.join(via)}" if via else ""),
        remedy=f"bind {name} outside of the condition",
    )


def headline(node: ast.stmt) -> str:
    """The first line of a statement, with its decorators."""
    decorators = [f"@{ast.unparse(decorator)}" for decorator in getattr(node, "decorator_list", ())]
    return " ".join([*decorators, ast.unparse(node).splitlines()[len(decorators)]])
