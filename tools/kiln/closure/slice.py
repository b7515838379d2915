"""Cuts the slice of a project's Python files that one Triton function needs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kiln.closure.cutter import Cutter
from kiln.closure.decisions import Decisions, Refused
from kiln.closure.digest import Digests
from kiln.closure.entry import find, written
from kiln.closure.function_parameters import FunctionParameter, read_parameters
from kiln.closure.kept import Want
from kiln.closure.module import Conditional, SourceModule
from kiln.closure.refusals import undeclared_error
from kiln.closure.render import render
from kiln.closure.resolve import PACKAGE, Project, parts_of, synthetic_name
from kiln.closure.whole import collect, tree, variables
from kiln.closure.world import World, environment_fact
from kiln.errors import ClosureError, Position, UncutError


@dataclass(frozen=True, kw_only=True)
class SlicedModule:
    """What one file gives to a closure."""

    name: str
    """of the synthetic module: kiln_slice.kernels.softmax"""
    file: str
    """relative to the project's root, with forward slashes"""
    text: str
    """Python source; every kept statement stands at its original lines"""

    @property
    def is_slice(self) -> bool:
        """Whether it is cut out of the file, under a name of its own, or the whole file under its own."""
        return self.name.partition(".")[0] == PACKAGE


@dataclass(frozen=True, kw_only=True)
class Closure:
    """A Triton function with all of the project's code that it needs, and nothing else of it. Pickles."""

    function: str
    """as kernels.yaml names it: `kernel`, `Ops.kernel`, `make_kernel.kernel`"""
    position: Position
    """of its `def`"""
    entry: str
    """the name of its `def`, which the image's symbol has"""
    modules: tuple[SlicedModule, ...]
    """the function's own first, then the others by file"""
    parameters: tuple[FunctionParameter, ...]
    factory: str | None = None
    """the function on the path to it that makes it, and has to be called for that"""
    factory_parameters: tuple[FunctionParameter, ...] = ()
    """what kernels.yaml gives that function, as far as the kernel depends on it"""
    sources: tuple[Path, ...]
    """the files that the slice is cut from, in the order of `modules`"""
    digest: str
    """sha256, of everything in the slice that can change what is compiled"""
    components: Mapping[str, str]
    """`kernels/softmax.py:softmax_kernel` -> digest of that definition alone"""
    asked: tuple[str, ...] = ()
    """what of the world it depends on: `backend`, `arch`, `environment NAME`; see kiln.closure.world"""
    environment: Mapping[str, str] = field(default_factory=dict)
    """the variables that whole files find in the environment, and no others; a slice reads none"""
    uncut: str | None = None
    """why the modules are whole files under their own names, where the kernel could not be cut out of them"""

    @property
    def warning(self) -> str | None:
        """What people should know of a kernel that could not be cut."""
        if self.uncut is None:
            return None
        files = dict.fromkeys(module.file for module in self.modules)
        return (
            f"{self.modules[0].file} is imported as it stands to compile {self.function}, and an edit of "
            f"{'any line of it' if len(files) == 1 else 'any line of ' + ', '.join(files)} compiles it again. "
            f"What else it reads while it is imported does not. It could not be cut out:\n{self.uncut}"
        )


def cut(
    source: Path,
    function: str,
    *,
    root: Path,
    roots: tuple[str, ...] = (),
    functions: tuple[str, ...] = (),
    world: World | None = None,
    where: Position | None,
) -> Closure:
    """The closure of `function` in the file `source`. Nothing is executed.

    The file lies below the folder `root`, below one of the `roots`, which are relative to it, or in an installed
    package. `function` may lead into a class or a function: `Ops.kernel`, `make_kernel.kernel`. `functions` are names
    of that file that are given to the kernel as constants. `world` is what the code may ask of the machine that it runs
    on; without one it may ask nothing. `where` is the place that names the function, such as its line in kernels.yaml.

    The reading is static. What the kernel's files do to its objects when they are imported is kept, through aliases and
    calls too. Where only a run can follow the code, or a file that is imported for nothing else changes what the kernel
    needs, the file is taken as a whole, with all that it imports of the project; `uncut` then says why.

    Raises ClosureError when the function is not there or is no Triton function, and when it needs a module that may be
    missing where kernels are built.
    """
    decisions = Decisions(world=world)
    try:
        while True:
            project = Project(root=root, roots=roots, decided=decisions.branches, start=source, is_cut=True)
            module = project.open(source)
            try:
                try:
                    return _slice(project, decisions, module, function, functions, where)
                except Conditional as met:
                    decisions.decide(project, met)
                except Refused as refused:
                    decisions.fold(project, refused)
            except UncutError as reason:
                return _whole(project, module, function, world, reason)
    except RecursionError:
        raise ClosureError(
            f"an expression that {function} needs is nested too deeply to be read",
            where=source.name,
            remedy="break it into several statements",
        ) from None


def _slice(
    project: Project,
    decisions: Decisions,
    module: SourceModule,
    function: str,
    functions: tuple[str, ...],
    where: Position | None,
) -> Closure:
    cutter = Cutter(project, decisions)
    entry = find(cutter.names, module, function, where)
    name, *path = function.split(".")
    at = entry.module.position(entry.definition)
    if entry.factory is None:
        cutter.need(Want(module=module, name=name, attributes=tuple(path), at=at))
    else:
        cutter.need(Want(module=module, name=name, made=path[-1], at=at))
    for given in functions:
        first, *rest = given.split(".")
        cutter.need(Want(module=module, name=first, attributes=tuple(rest), at=where or at))
    cutter.follow()
    files = sorted(cutter.kept.values(), key=lambda kept: (kept.module is not module, kept.module.file))
    modules = tuple(
        SlicedModule(
            name=synthetic_name(parts_of(kept.module.file)),
            file=kept.module.file,
            text=render(kept.module, kept.content(), kept.blanked, kept.trims),
        )
        for kept in files
    )
    by_name = {sliced.name: sliced for sliced in modules}
    for sliced in modules:
        if by_name[sliced.name] is not sliced:
            raise ClosureError(
                f"{sliced.file} and {by_name[sliced.name].file} are the same module to Python",
                where=sliced.file,
                remedy="rename one of them",
            )
    digests = Digests(function=function)
    for sliced in modules:
        digests.add(sliced.name, sliced.file, sliced.text)
    digests.add_answers(decisions.answers())
    given_to: tuple[FunctionParameter, ...] = ()
    if entry.factory is not None:
        made = cutter.parts.made_by(module, module.binding(name)[-1])
        every = read_parameters(project, module, made.node, made.needed)
        given_to = tuple(replace(each, has_default=each.has_default and each.name not in made.asked) for each in every)
    return Closure(
        function=function,
        position=at,
        entry=entry.definition.name,
        modules=modules,
        parameters=tuple(read_parameters(project, entry.module, entry.definition)),
        factory=entry.factory.name if entry.factory is not None else None,
        factory_parameters=given_to,
        asked=tuple(sorted(decisions.asked)),
        sources=tuple(kept.module.path for kept in files),
        digest=digests.hexdigest(),
        components=digests.components,
    )


def _whole(project: Project, module: SourceModule, function: str, world: World | None, reason: UncutError) -> Closure:
    """The closure of a function whose file is imported as it stands. Raises `reason` where that is no way either."""
    try:
        files = collect(project, module)
    except ClosureError:
        raise reason from None
    found = written(tree(module).body, function)
    definition = found[-1] if found else None
    factories = [node for node in found[:-1] if isinstance(node, ast.FunctionDef)]
    if not isinstance(definition, ast.FunctionDef) or len(factories) > 1:
        raise reason
    digests = Digests(function=function)
    for file in files:
        digests.add_whole(file.name, file.module.file, file.text)
    declared = world.environment if world is not None else {}
    for file in files:
        for name, at in variables(file.module):
            if name not in declared:
                said = f"{file.module.file} reads it, and is imported as it stands: {str(reason).splitlines()[0]}"
                raise undeclared_error(name, at, said) from None
    asked = tuple(sorted(map(environment_fact, declared)))
    digests.add_answers({fact: world.answer(fact) for fact in asked} if world is not None else {})
    return Closure(
        function=function,
        position=module.position(definition),
        entry=definition.name,
        modules=tuple(SlicedModule(name=file.name, file=file.module.file, text=file.text) for file in files),
        parameters=tuple(read_parameters(project, module, definition)),
        factory=factories[0].name if factories else None,
        factory_parameters=tuple(read_parameters(project, module, factories[0])) if factories else (),
        sources=tuple(dict.fromkeys(file.module.path for file in files)),
        digest=digests.hexdigest(),
        components=digests.components,
        asked=asked,
        environment={name: value for name, value in declared.items() if value is not None},
        uncut=str(reason),
    )
