"""Follows names from one function through a project's files, and keeps the statements that they need."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kiln.closure import jit, library, scope
from kiln.closure.annotations import without_foreign
from kiln.closure.effects import Effects, Touch
from kiln.closure.module import SourceModule, Unit
from kiln.closure.names import OUTSIDE, Names, Place
from kiln.closure.resolve import (
    Location,
    Missing,
    Outside,
    Project,
    alias_of,
    bound_by,
    is_import,
    parts_of,
    synthetic_name,
)
from kiln.errors import ClosureError, Position, did_you_mean


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
    changed: str | None = None
    """what the kernel needs and the statement may change that leads to it, where it is needed for no more than that"""

    def path(self) -> str:
        return ".".join((self.name, *self.attributes))


@dataclass(kw_only=True)
class Kept:
    """What the closure has of one file. It grows while names are followed, so it is not frozen."""

    module: SourceModule
    statements: dict[int, ast.stmt] = field(default_factory=dict)
    imports: dict[int, dict[str, _Import]] = field(default_factory=dict)
    blanked: dict[int, tuple[ast.expr, ...]] = field(default_factory=dict)
    """annotations that the slice leaves out, by statement"""

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


@dataclass(frozen=True, kw_only=True)
class _Import:
    """One name of an import statement as the slice has it."""

    statement: str
    below: set[str] = field(default_factory=set)
    """synthetic modules that are reached through the name, and so must be imported with it; more as they are found"""

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
        self._names = Names(project)
        self._effects = Effects(self._names, objects=False)
        self._needed: dict[Place, Want] = {}
        self._outside: dict[str, Want] = {}
        """dotted names outside the project that are needed"""

    def need(self, want: Want) -> None:
        key = (want.module.file, want.name, want.attributes, want.certain)
        if key not in self._seen:
            self._seen.add(key)
            self._pending.append(want)

    def follow(self) -> None:
        while self._pending:
            while self._pending:
                self._resolve(self._pending.pop())
            self._keep_changes()

    def _resolve(self, want: Want) -> None:
        module = want.module
        if not module.binding(want.name):
            if want.certain:
                self._unbound(want)
            return
        self._needed.setdefault((module.file, want.name), want)
        if want.attributes:
            # Through renamings too: `t = triton`, then `t.runtime.driver`.
            path = self.project.canonical_path(module, want.name, want.attributes)
            if path is not None:
                self._check_outside(path, want)
        for star in module.stars:
            # What it brings replaces what was bound before it.
            if star.index > module.binding(want.name)[0].index and self._may_bring(module, star, want.name):
                raise _star_error(star, want)
        for unit in module.binding(want.name):
            if unit.undecided is not None:
                raise undecided_error(module, unit, want.name, want.at, want.via)
            if is_import(unit):
                self._keep_import(unit, want)
            else:
                self._keep(module, unit, want)

    def _unbound(self, want: Want) -> None:
        module = want.module
        if want.name in library.RUN_TIME | library.BY_CHANCE:
            raise ClosureError(
                f"{want.name}() reaches what cannot be read off the source"
                if want.name in library.RUN_TIME
                else f"{want.name}() gives another value in another run",
                where=want.at,
                expected="code whose names and values stand in the source",
                actual=_reached(want),
                remedy=_without_change(want) or f"write the value that {want.name}() gives into the file",
            )
        for star in module.stars:
            if self._may_bring(module, star, want.name):
                raise _star_error(star, want)
        if want.name in library.OF_THE_MODULE:
            raise ClosureError(
                f"{want.name} is not the same in a slice as in the file",
                where=want.at,
                expected="values that stand in the source",
                actual=_reached(want),
                remedy=_without_change(want) or f"write the value that {want.name} stands for into the file",
            )
        if hasattr(builtins, want.name):
            return
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

    def _may_bring(self, module: SourceModule, star: Unit, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether `from x import *` may bind `name` to something else than what the file binds it to.

        What lies outside the project may bring anything, but hardly another `triton` than an import of that name.
        """
        assert isinstance(star.node, ast.ImportFrom)
        own = self._names.trace(module, name) if module.binding(name) else None
        imported = self.project.imported(module, star.node, star.node.names[0])
        if isinstance(imported.module, Outside):
            return not name.startswith("_") and not (own is not None and all(map(is_import, module.binding(name))))
        if imported.module.path is None:
            return False
        other = self.project.open(imported.module.path)
        if name.startswith("_") and not other.binding("__all__"):
            return False
        if other.binding(name):
            return own is None or self._names.trace(other, name) != own
        return other.file not in seen and any(
            self._may_bring(other, inner, name, seen | {other.file}) for inner in other.stars
        )

    def _keep(self, module: SourceModule, unit: Unit, want: Want) -> None:
        statements = self._of(module).statements
        if unit.index in statements:
            return
        made = jit.effective(self.project, module, unit.node)
        node, self._of(module).blanked[unit.index] = without_foreign(self.project, module, made.node)
        statements[unit.index] = node
        is_change = want.changed is not None and not want.via
        via = (*want.via, f"line {unit.node.lineno} of {module.file}" if is_change else f"{module.file}:{want.name}")
        _refuse_introspection(module, node, replace(want, via=via))
        for inner in scope.imports_inside(node):
            self._check_inner_import(module, node, inner, replace(want, via=via))
        # Triton evaluates annotations itself; Python does not where the file postpones them.
        annotations = made.jitted or not module.lazy_annotations
        # The last one in is the first one out: what is wrong is told in the order of the text.
        for read in reversed(scope.reads(node, annotations=annotations)):
            self.need(
                Want(
                    module=module,
                    name=read.name,
                    attributes=read.attributes,
                    at=module.position(read.node),
                    certain=read.certain,
                    via=via,
                    changed=want.changed,
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
                changed=want.changed,
            )
        )

    def _check_outside(self, dotted: str, want: Want) -> None:
        self._outside.setdefault(dotted, want)
        refusal = library.refusal(dotted)
        if refusal is None:
            return
        needed = dotted.partition(".")[0] if library.is_foreign(dotted) else dotted
        raise ClosureError(
            f"the kernel needs {needed!r} at compile time: {refusal.reason}",
            where=want.at,
            expected="Triton, this project's files, and the parts of Python's library that only compute",
            actual=_reached(want),
            remedy=_without_change(want)
            or refusal.remedy
            or f"write the value that {want.path()} stands for into the file",
        )

    def _check_inner_import(
        self, module: SourceModule, around: ast.stmt, node: ast.Import | ast.ImportFrom, want: Want
    ) -> None:
        """Check what an import inside the statement `around` is used for there."""
        for alias in node.names:
            imported = self.project.imported(module, node, alias)
            name = bound_by(alias)
            if not isinstance(imported.module, Outside):
                inner = replace(want, name=name, attributes=(), at=module.position(node))
                raise ClosureError(
                    f"`{ast.unparse(node)}` inside another statement cannot be cut",
                    where=inner.at,
                    expected="imports of project files at module level",
                    actual=_reached(inner),
                    remedy="move the import to the top of the file",
                )
            start = ".".join((imported.module.dotted, *imported.names))
            uses = [chain for chain in scope.chains(around) if chain[0].id == name]
            for used, attributes in uses:
                inner = replace(want, name=name, attributes=attributes, at=module.position(used))
                self._check_outside(".".join((start, *attributes)), inner)
            if not uses and not library.is_useful(start):
                self._check_outside(start, replace(want, name=name, attributes=(), at=module.position(node)))

    def _keep_changes(self) -> None:
        """Keep what the closure's files do to its objects and to each other's: `config.SIZE = 4`, `SIZES.append(1)`."""
        modules = self._modules()
        self._names.modules.update((module.file, module) for module in modules)
        if not self._effects.objects and any(map(self._names.changeable, self._needed)):
            self._effects = Effects(self._names, objects=True)
        for module, unit, touched in self._effects.touched(modules):
            if is_import(unit) or (module.file in self.kept and unit.index in self.kept[module.file].statements):
                continue
            # Packages re-export in ways that only a run can follow; of those that are no part of the closure, only what
            # names the closure's own counts.
            seen = sorted(touch for touch in touched if module.file in self.kept or touch.is_definite)
            hit = next((hit for touch in seen for hit in self._hit(touch)), None)
            if hit is None:
                continue
            if unit.undecided is not None:
                raise undecided_error(module, unit, hit.name, hit.at, hit.via)
            self._keep(module, unit, Want(module=module, name="", at=module.position(unit.node), changed=hit.name))

    def _modules(self) -> list[SourceModule]:
        """The closure's files, and those of the packages around them that say anything of what it needs.

        Python runs a package before the modules in it.
        """
        modules = {kept.module.file: kept.module for kept in self.kept.values()}
        names = {name for file, name in self._needed if not all(map(is_import, modules[file].binding(name)))}
        for module in list(modules.values()):
            parts = parts_of(module.file)
            for depth in range(len(parts)):
                location = self.project.locate(parts[:depth])
                if location is None or location.path is None:
                    continue
                package = self.project.open(location.path)
                if package.file not in modules and package.mentions(names):
                    modules[package.file] = package
        return list(modules.values())

    def _hit(self, touch: Touch) -> Iterator[Want]:
        """What the closure needs of what a statement may change."""
        if touch.place[0] == OUTSIDE:
            # Of a package, only what is stored into it counts: `tl.store = other`.
            path = touch.place[1].rstrip("*.")
            for other, want in self._outside.items():
                if f"{other}.".startswith(f"{path}.") or f"{path}.".startswith(f"{other}."):
                    yield want
            return
        for (file, name), want in self._needed.items():
            if touch.touches(file, name) and (touch.rebinds or self._names.changeable((file, name))):
                yield want

    def _of(self, module: SourceModule) -> Kept:
        return self.kept.setdefault(module.file, Kept(module=module))


def _single(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The import statement for one of its names."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(names=[alias]))
    return ast.unparse(ast.ImportFrom(module=node.module, names=[alias], level=node.level))


def _reached(want: Want) -> str:
    reached = f"{want.path()}, reached by {' -> '.join(want.via)}" if want.via else want.path()
    return f"{reached}, which may change {want.changed}" if want.changed else reached


def _without_change(want: Want) -> str | None:
    """What to do where something is needed only because a statement may change what the kernel needs."""
    if want.changed is None:
        return None
    return f"move {want.via[0]} to a file that the kernel does not need, or give it a copy of {want.changed} to change"


def _star_error(star: Unit, want: Want) -> ClosureError:
    source = ast.unparse(star.node).removesuffix("*").strip()
    return ClosureError(
        f"{want.name} may come from `{ast.unparse(star.node)}` in line {star.node.lineno}, which cannot be cut",
        where=want.at,
        expected="an import that names it",
        actual=_reached(want),
        remedy=f"write `{source} {want.name}` if it comes from there, and name all else that the file needs of it too",
    )


def _refuse_introspection(module: SourceModule, node: ast.stmt, want: Want) -> None:
    for found in ast.walk(node):
        name = found.attr if isinstance(found, ast.Attribute) else found.id if isinstance(found, ast.Name) else ""
        if name in library.OF_THE_TEXT:
            raise ClosureError(
                f"{name} tells of the source's text or place, which decide no image",
                where=module.position(found),
                expected="values that stand in the source",
                actual=_reached(replace(want, name=name, attributes=())),
                remedy=_without_change(want) or "write the value that it gives into the file",
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
