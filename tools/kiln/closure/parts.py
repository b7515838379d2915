"""Keeps classes, and functions that make kernels, in part: what the closure needs of their bodies."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kiln.closure import jit, packages, scope
from kiln.closure.classes import ClassUse, Members, mentioned_in
from kiln.closure.factories import Around, Factory
from kiln.closure.kept import Want
from kiln.closure.module import SourceModule, Unit
from kiln.closure.names import Builtin, Names
from kiln.closure.reduced import Reduced, Reduction
from kiln.closure.render import Trim
from kiln.closure.resolve import Definition, Location, bound_inside
from kiln.errors import ClosureError


@dataclass(kw_only=True)
class _Part:
    """A definition that may be kept in part. What is needed of it grows, so it is not frozen."""

    unit: Unit
    want: Want
    """the first one"""
    use: ClassUse = field(default_factory=ClassUse)
    made: set[str] = field(default_factory=set)
    """of a function: the variables that are taken out of it"""


@dataclass(frozen=True, kw_only=True)
class MadeBy:
    """A function that kernels are taken out of."""

    node: ast.FunctionDef
    needed: frozenset[str]
    """the parameters that what it makes depends on"""
    asked: frozenset[str]
    """those of them whose default is taken from a package that need not be there, so that they have none"""


class Parts:
    """What is needed of the definitions of a cut, and how they look with no more than that."""

    def __init__(
        self,
        names: Callable[[], Names],
        is_needed: Callable[[SourceModule, str], bool],
        is_changing: Callable[[SourceModule, ast.FunctionDef], bool],
    ) -> None:
        """`names` gives the names as they are known by now.

        `is_needed` says whether the closure needs the object behind a module's name, and others may change it;
        `is_changing` whether a call of a function may change something else that the closure needs.
        """
        self._names = names
        self._is_needed = is_needed
        self._is_changing = is_changing
        self._parts: dict[tuple[str, int], _Part] = {}
        self._mentioned: set[str] = set()
        self._all_mentioned = False

    def mention(self, node: ast.AST) -> None:
        """Take down what attributes the closure's code reads, of whatever object."""
        found = mentioned_in(node)
        self._all_mentioned = self._all_mentioned or found is None
        self._mentioned |= found or frozenset()

    def use(self, unit: Unit, want: Want) -> None:
        """Take down what a want needs of a definition."""
        if not isinstance(unit.node, (ast.ClassDef, ast.FunctionDef)):
            return
        part = self._parts.setdefault((want.module.file, unit.index), _Part(unit=unit, want=want))
        if isinstance(unit.node, ast.FunctionDef):
            part.made |= {want.made} if want.made else set()
        elif want.attributes and want.name == unit.node.name:
            part.use.names.add(want.attributes[0])
        else:
            part.use.is_whole = True

    def __iter__(self) -> Iterator[tuple[Unit, Want]]:
        """The definitions so far, each with what led to it."""
        for part in list(self._parts.values()):
            yield part.unit, part.want

    def reduce(self, module: SourceModule, unit: Unit) -> Reduced:
        """A statement as the slice has it by now. Raises ClosureError for a decorator that is not known."""
        made = jit.effective(self._names().project, module, unit.node)
        if made.jitted or not isinstance(made.node, (ast.FunctionDef, ast.ClassDef)):
            return Reduced(node=made.node, jitted=made.jitted)
        imports = bound_inside(unit.node)
        definitions = self._definitions(module, made.node, imports)
        part = self._parts[module.file, unit.index]
        if isinstance(made.node, ast.ClassDef):
            mentioned = None if self._all_mentioned else frozenset(self._mentioned)
            members = Members(self._names(), module, made.node, part.use, mentioned)
            own = set(made.node.body)
            reduction = Reduction(is_kept=lambda node: node not in own or members.is_kept(node))
            node = self._finish(module, made.node, reduction, definitions, imports)
            assert isinstance(node, ast.ClassDef)
            if members.drops_bases:
                return Reduced(node=_without_bases(node, reduction), trims=tuple(reduction.trims))
            return Reduced(node=node, trims=tuple(reduction.trims))
        if not definitions:
            return Reduced(node=made.node)
        factory = self.factory(module, unit, definitions)
        reduction = Reduction(is_kept=factory.is_kept, bare=factory.bare)
        if part.made:
            # It is called as it stands here; what decorates it serves other callers.
            reduction.decorators = {made.node: ()}
        node = self._finish(module, made.node, reduction, definitions, imports)
        assert isinstance(node, ast.FunctionDef)
        node = self._without_defaults(module, node, factory, reduction, is_called=bool(part.made))
        return Reduced(node=node, trims=tuple(reduction.trims))

    def made_by(self, module: SourceModule, unit: Unit) -> MadeBy:
        """That of a definition, as the slice has it."""
        node = self.reduce(module, unit).node
        assert isinstance(node, ast.FunctionDef)
        assert isinstance(unit.node, ast.FunctionDef)
        needed, defaults = self.factory(module, unit).parameters, scope.defaults(unit.node.args)
        asked = {owner.arg for owner, default in defaults if self.is_foreign(module, default)}
        return MadeBy(node=node, needed=needed, asked=needed & asked)

    def factory(
        self, module: SourceModule, unit: Unit, definitions: Mapping[ast.AST, ast.stmt] | None = None
    ) -> Factory:
        """The statements that a function needs to make what is taken out of it, or what it returns."""
        assert isinstance(unit.node, ast.FunctionDef)
        part = self._parts[module.file, unit.index]
        imports = bound_inside(unit.node)
        changing = self._is_changing(module, unit.node)
        around = Around(
            definitions=self._definitions(module, unit.node, imports) if definitions is None else definitions,
            is_needed=lambda name: self._is_needed(module, name),
            may_change=lambda name: changing and (not name or self._may_change(module, name)),
            outside=lambda node: jit.outside_name(self._names().project, module, node, imports),
        )
        return Factory(unit.node, frozenset(part.made) or None, around)

    def _may_change(self, module: SourceModule, name: str) -> bool:
        """Whether a call of a name of the module may change more than its arguments: `exec`, `setattr` of a module."""
        target = self._names().trace(module, name)
        if isinstance(target, Builtin):
            return target.name not in packages.READING_BUILTINS
        return isinstance(target, (Definition, Location))

    def _definitions(self, module: SourceModule, node: ast.stmt, imports: jit.Imports) -> dict[ast.AST, ast.stmt]:
        """The jitted functions inside a definition, as the slice has them where it can have them at all.

        Those that an assignment makes are among them: `f = triton.jit(g)`.
        """
        found: dict[ast.AST, ast.stmt] = {}
        project = self._names().project
        for child in ast.walk(node):
            if child is node or not isinstance(child, (ast.FunctionDef, ast.Assign)):
                continue
            if isinstance(child, ast.FunctionDef) and not jit.is_jitted(project, module, child, imports):
                continue
            try:
                made = jit.effective(project, module, child, imports)
            except ClosureError:
                # It is told when the function is needed.
                found[child] = child
                continue
            if made.jitted:
                found[child] = made.node
        return found

    def _finish(
        self,
        module: SourceModule,
        node: ast.stmt,
        reduction: Reduction,
        definitions: Mapping[ast.AST, ast.stmt],
        imports: jit.Imports,
    ) -> ast.stmt:
        made = definitions.items()
        functions = {inner: each.decorator_list for inner, each in made if isinstance(each, ast.FunctionDef)}
        reduction.decorators = {**reduction.decorators, **functions}
        reduction.values = {inner: each.value for inner, each in made if isinstance(each, ast.Assign)}
        reduced = reduction.of(node)
        present = set(ast.walk(reduced))
        for inner, each in made:
            # That it could not be read is told now that it is needed.
            if each is inner and (each in present or (isinstance(each, ast.FunctionDef) and each.body[0] in present)):
                jit.effective(self._names().project, module, each, imports)
        return reduced

    def _without_defaults(
        self, module: SourceModule, node: ast.FunctionDef, factory: Factory, reduction: Reduction, *, is_called: bool
    ) -> ast.FunctionDef:
        """The function without defaults that the slice does not need, or, where it is given values, cannot have."""
        arguments = ast.arguments(**{name: getattr(node.args, name) for name in ast.arguments._fields})
        positional = [*arguments.posonlyargs, *arguments.args]
        owners = positional[len(positional) - len(arguments.defaults) :]

        def renewed(argument: ast.arg, default: ast.expr | None) -> ast.expr | None:
            if default is None or isinstance(default, ast.Constant):
                return default
            if argument.arg in factory.parameters and not (is_called and self.is_foreign(module, default)):
                return default
            reduction.trims.append(Trim(node=default, text="None"))
            return ast.copy_location(ast.Constant(value=None), default)

        arguments.defaults = [
            new for owner, default in zip(owners, arguments.defaults, strict=True) if (new := renewed(owner, default))
        ]
        arguments.kw_defaults = [
            renewed(owner, default) for owner, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ]
        node.args = arguments
        return node

    def is_foreign(self, module: SourceModule, node: ast.expr) -> bool:
        """Whether an expression needs a package that is neither Triton nor Python's."""
        return any(
            outside is not None and packages.is_foreign(outside)
            for read in scope.reads(node)
            for outside in [self._names().project.canonical_path(module, read.name, read.attributes)]
        )


def _without_bases(node: ast.ClassDef, reduction: Reduction) -> ast.ClassDef:
    """The class derived from nothing: what is read off it is its own."""
    first, last = node.bases[0], node.bases[-1]
    place = ast.Constant(
        value=None,
        lineno=first.lineno,
        col_offset=first.col_offset,
        end_lineno=last.end_lineno,
        end_col_offset=last.end_col_offset,
    )
    reduction.trims.append(Trim(node=place, text="object"))
    node.bases = [ast.copy_location(ast.Name(id="object", ctx=ast.Load()), first)]
    return node
