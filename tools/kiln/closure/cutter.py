"""Follows names from one function through a project's files, and keeps the statements that they need."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from kiln.closure import packages, scope, stars
from kiln.closure.annotations import without_foreign
from kiln.closure.decisions import Decisions, Refused
from kiln.closure.effects.bindings import Bindings
from kiln.closure.effects.elsewhere import Elsewhere
from kiln.closure.effects.touches import Effects, Touch
from kiln.closure.imported import imported
from kiln.closure.kept import ImportedName, Kept, Want
from kiln.closure.module import Conditional, SourceModule, Unit
from kiln.closure.names import OUTSIDE, Builtin, Names, Place
from kiln.closure.parts import Parts
from kiln.closure.refusals import (
    changed_error,
    missing_error,
    reached,
    refuse_introspection,
    star_error,
    unbound_error,
    undefined_error,
    without_change,
)
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
from kiln.errors import ClosureError, UncutError
from kiln.files import read as read_file

_CHANGES_LIST = re.compile(r"\.\s*__all__\s*(?:\.|\[|[-+|]?=(?!=))")
"""`config.__all__.append("SIZE")` and the like; what only reads the list so counts, too"""


class Cutter:
    """Follows names from the kernel until nothing new is needed."""

    def __init__(self, project: Project, decisions: Decisions) -> None:
        """`decisions` says which expressions are constants of the target."""
        self.project = project
        self._decisions = decisions
        self.kept: dict[str, Kept] = {}
        self._pending: list[Want] = []
        self._seen: set[tuple[str, str, tuple[str, ...], bool, str | None]] = set()
        self.names = Names(project)
        self.parts = Parts(lambda: self.names, self._is_needed, self._is_changing)
        self._effects = Effects(Bindings(self.names), objects=False)
        self._adopted = 0
        self._needed: dict[Place, Want] = {}
        self._outside: dict[str, Want] = {}
        """dotted names outside the project that are needed"""

    def need(self, want: Want) -> None:
        key = (want.module.file, want.name, want.attributes, want.certain, want.made)
        if key not in self._seen:
            self._seen.add(key)
            self._pending.append(want)

    def follow(self) -> None:
        while self._pending:
            while self._pending:
                self._resolve(self._pending.pop())
            self._keep_changes()
            for unit, want in self.parts:
                # More may be needed of them by now.
                self._keep(want.module, unit, want)
        self._refuse_changes_elsewhere()

    def _refuse_changes_elsewhere(self) -> None:
        """Refuse to cut where a file that is no part of the slice changes what the kernel needs."""
        assert self.project.start is not None
        known = {module.file for module in self._modules()}
        elsewhere = Elsewhere(self.project, imported(self.project, self.project.start), self._effects)
        for place, want in self._needed.items():
            in_place = self._effects.objects and self._effects.bindings.changeable(place)
            for module, unit in elsewhere.changing(want.module, want.name, in_place=in_place):
                if module.file not in known:
                    raise changed_error(module, unit, want)

    def _is_needed(self, module: SourceModule, name: str) -> bool:
        """Whether the closure needs the object behind a name of a module, and code can change it in place."""
        if not module.binding(name):
            return False
        target = self.names.trace(module, name)
        place = self.names.place(target) if not isinstance(target, Builtin) else None
        return place in self._needed and place is not None and self._effects.bindings.changeable(place)

    def _is_changing(self, module: SourceModule, node: ast.FunctionDef) -> bool:
        """Whether a call of a function may change something that the closure needs and that is not the function's."""
        self.names.modules[module.file] = module
        return any(True for touch in self._effects.of_call(module, node) for _ in self._hit(touch))

    def _resolve(self, want: Want) -> None:
        module = want.module
        units = self.project.binding(module, want.name)
        if not units:
            if want.certain:
                self._unbound(want)
            return
        self._needed.setdefault((module.file, want.name), want)
        if want.attributes:
            # Through renamings too: `t = triton`, then `t.runtime.driver`.
            path = self.project.canonical_path(module, want.name, want.attributes, needed=True)
            if path is not None:
                self._check_outside(path, want)
        for star in module.stars:
            if stars.may_bind(self.project, module, star, want.name, units, lists_change=self._lists_change):
                raise star_error(star, want)
        for unit in units:
            if unit.undecided is not None:
                raise Conditional(module, unit, want.name, want.at, want.via)
            if is_import(unit):
                self._keep_import(unit, want)
            else:
                self.parts.use(unit, want)
                self._keep(module, unit, want)

    def _unbound(self, want: Want) -> None:
        module = want.module
        refused = unbound_error(want)
        if refused is not None and want.name not in packages.OF_THE_MODULE:
            raise refused
        for star in module.stars:
            if stars.may_bind(self.project, module, star, want.name, lists_change=self._lists_change):
                raise star_error(star, want)
        if refused is not None:
            raise refused
        if not hasattr(builtins, want.name):
            raise undefined_error(want)

    @cached_property
    def _lists_change(self) -> bool:
        """Whether a file that is imported along may change what a star import of another brings."""
        assert self.project.start is not None
        naming = imported(self.project, self.project.start).naming({"__all__"})
        return any(_CHANGES_LIST.search(read_file(path).decode("utf-8", "replace")) for path in naming)

    def _keep(self, module: SourceModule, unit: Unit, want: Want) -> None:
        """Keep what is needed of a statement by now."""
        kept = self._of(module)
        reduced = self.parts.reduce(module, unit)
        folded, constants = self._decisions.folded(module.file, reduced.node)
        node, blanked = without_foreign(self.project, module, folded)
        # A statement without a body is written anew.
        trims = (*reduced.trims, *(constants if hasattr(node, "body") else ()))
        if unit.index in kept.statements and kept.trims[unit.index] == trims:
            return
        kept.statements[unit.index], kept.blanked[unit.index], kept.trims[unit.index] = node, blanked, trims
        self.parts.mention(node)
        is_change = want.changed is not None and not want.via
        via = (*want.via, f"line {unit.node.lineno} of {module.file}" if is_change else f"{module.file}:{want.name}")
        trail = (*want.trail, (module, unit))
        refuse_introspection(module, node, replace(want, via=via))
        for inner in scope.imports_inside(node):
            self._check_inner_import(module, node, inner, replace(want, via=via, trail=trail))
        # Triton evaluates annotations itself; Python does not where the file postpones them.
        annotations = reduced.jitted or not module.lazy_annotations
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
                    trail=trail,
                    changed=want.changed,
                )
            )

    def _keep_import(self, unit: Unit, want: Want) -> None:
        """Keep the one name of an import statement, and what is read off the module that it names."""
        assert isinstance(unit.node, (ast.Import, ast.ImportFrom))
        alias = alias_of(unit.node, want.name)
        imported = self.project.needed(want.module, unit.node, alias)
        names = self._of(want.module).imports.setdefault(unit.index, {})
        if isinstance(imported.module, Outside):
            self._check_outside(".".join((imported.module.dotted, *imported.names, *want.attributes)), want)
            # `import a.b, a.c` binds a twice, and a alone does not make a.b.
            every = [_single(unit.node, one) for one in unit.node.names if bound_by(one) == want.name]
            names[want.name] = ImportedName(statement="; ".join(every))
            return
        path = (*imported.names, *want.attributes)
        end = self.project.follow(imported.module, path, want.module)
        if isinstance(end, Missing):
            raise missing_error(self.project, end, want)
        if isinstance(end, Location):
            raise UncutError(
                f"{want.path()} is a module, and is used as a value",
                where=want.at,
                expected="a name read off it, so that only that is cut",
                actual=reached(want),
                remedy="read the names that are needed off the module where they are used",
            )
        module_parts = parts_of(end.module.file)
        used = len(path) - len(end.attributes)
        if imported.names and used == len(imported.names):
            statement = f"from {synthetic_name(module_parts)} import {path[0]} as {want.name}"
            names.setdefault(want.name, ImportedName(statement=statement))
        else:
            bound = imported.module.parts + imported.names
            statement = f"import {synthetic_name(bound)} as {want.name}"
            entry = names.setdefault(want.name, ImportedName(statement=statement))
            if module_parts != bound:
                entry.below.add(synthetic_name(module_parts))
        self.need(
            Want(
                module=end.module,
                name=end.name,
                attributes=end.attributes,
                at=want.at,
                via=(*want.via, f"{want.module.file}:{want.name}"),
                trail=want.trail,
                changed=want.changed,
            )
        )

    def _check_outside(self, dotted: str, want: Want) -> None:
        self._outside.setdefault(dotted, want)
        refusal = packages.refusal(dotted)
        if refusal is None:
            return
        needed = dotted.partition(".")[0] if packages.is_foreign(dotted) else dotted
        kind = UncutError if refusal.is_by_value else ClosureError
        error = kind(
            f"the kernel needs {needed!r} at compile time: {refusal.reason}",
            where=want.at,
            expected="Triton, this project's files, and the parts of Python's library that only compute",
            actual=reached(want),
            remedy=without_change(want)
            or refusal.remedy
            or f"write the value that {want.path()} stands for into the file",
        )
        raise Refused(want.trail, error)

    def _check_inner_import(
        self, module: SourceModule, around: ast.stmt, node: ast.Import | ast.ImportFrom, want: Want
    ) -> None:
        """Check what an import inside the statement `around` is used for there."""
        for alias in node.names:
            imported = self.project.imported(module, node, alias)
            name = bound_by(alias)
            if not isinstance(imported.module, Outside):
                inner = replace(want, name=name, attributes=(), at=module.position(node))
                error = UncutError(
                    f"`{ast.unparse(node)}` inside another statement cannot be cut",
                    where=inner.at,
                    expected="imports of project files at module level",
                    actual=reached(inner),
                    remedy="move the import to the top of the file",
                )
                raise Refused(inner.trail, error)
            start = ".".join((imported.module.dotted, *imported.names))
            uses = [chain for chain in scope.chains(around) if chain[0].id == name]
            for used, attributes in uses:
                inner = replace(want, name=name, attributes=attributes, at=module.position(used))
                self._check_outside(".".join((start, *attributes)), inner)
            if not uses and not packages.is_useful(start):
                self._check_outside(start, replace(want, name=name, attributes=(), at=module.position(node)))

    def _keep_changes(self) -> None:
        """Keep what the closure's files do to its objects and to each other's: `config.SIZE = 4`, `SIZES.append(1)`."""
        if self._adopted != len(self.project.folders.adopted):
            # What was looked up before took an installed package, which now is a part of the closure, for unknown.
            self._adopted = len(self.project.folders.adopted)
            self.names = Names(self.project)
            self._effects = Effects(Bindings(self.names), objects=self._effects.objects)
        modules = self._modules()
        self.names.modules.update((module.file, module) for module in modules)
        if not self._effects.objects and any(map(self._effects.bindings.changeable, self._needed)):
            self._effects = Effects(self._effects.bindings, objects=True)
        for module, unit, touched in self._effects.touched(modules):
            is_kept = module.file in self.kept and unit.index in self.kept[module.file].statements
            if is_import(unit) or (is_kept and not isinstance(unit.node, ast.ClassDef)):
                continue
            # Packages re-export in ways that only a run can follow; of those that are no part of the closure, only what
            # names the closure's own counts.
            seen = sorted(touch for touch in touched if module.file in self.kept or touch.is_definite)
            hit = next((hit for touch in seen for hit in self._hit(touch)), None)
            if hit is None:
                continue
            if unit.undecided is not None:
                raise Conditional(module, unit, hit.name, hit.at, hit.via)
            # The body of a class may run code that changes something, whatever is read off the class.
            want = Want(module=module, name="", at=module.position(unit.node), changed=hit.name)
            self.parts.use(unit, want)
            self._keep(module, unit, want)

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
            if touch.touches(file, name) and (touch.rebinds or self._effects.bindings.changeable((file, name))):
                yield want

    def _of(self, module: SourceModule) -> Kept:
        return self.kept.setdefault(module.file, Kept(module=module))


def _single(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The import statement for one of its names."""
    if isinstance(node, ast.Import):
        return ast.unparse(ast.Import(names=[alias]))
    return ast.unparse(ast.ImportFrom(module=node.module, names=[alias], level=node.level))
