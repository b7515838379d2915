"""What is said when a name cannot be cut: where it is read, how the kernel came to need it, and what to do."""

from __future__ import annotations

import ast
from dataclasses import replace

from kiln.closure import packages
from kiln.closure.kept import Want
from kiln.closure.module import SourceModule, Unit
from kiln.closure.resolve import Missing, Project
from kiln.errors import ClosureError, Position, UncutError, did_you_mean


def reached(want: Want) -> str:
    """What is needed, and by which way the kernel came to need it."""
    reached = f"{want.path()}, reached by {' -> '.join(want.via)}" if want.via else want.path()
    return f"{reached}, which may change {want.changed}" if want.changed else reached


def without_change(want: Want) -> str | None:
    """What to do where something is needed only because a statement may change what the kernel needs."""
    if want.changed is None:
        return None
    return f"move {want.via[0]} to a file that the kernel does not need, or give it a copy of {want.changed} to change"


def star_error(star: Unit, want: Want) -> UncutError:
    """A name that a star import may bring, and no file tells."""
    source = ast.unparse(star.node).removesuffix("*").strip()
    return UncutError(
        f"{want.name} may come from `{ast.unparse(star.node)}` in line {star.node.lineno}, which cannot be cut",
        where=want.at,
        expected="an import that names it",
        actual=reached(want),
        remedy=f"write `{source} {want.name}` if it comes from there, and name all else that the file needs of it too",
    )


def changed_error(module: SourceModule, unit: Unit, want: Want) -> UncutError:
    """For a statement that changes what the kernel needs, in a file that it needs nothing of."""
    return UncutError(
        f"{module.file} changes {want.name} of {want.module.file}, and the kernel needs nothing else of {module.file}",
        where=module.position(unit.node),
        expected="values that the files which the kernel needs give alone",
        actual=f"`{headline(unit.node)}`; {reached(want)}",
        remedy=f"do it in {want.module.file}",
    )


def refuse_introspection(module: SourceModule, node: ast.stmt, want: Want) -> None:
    """Raise UncutError for a statement that reads the text or the place of code."""
    for found in ast.walk(node):
        name = found.attr if isinstance(found, ast.Attribute) else found.id if isinstance(found, ast.Name) else ""
        if name in packages.OF_THE_TEXT:
            raise UncutError(
                f"{name} tells of the source's text or place, which decide no image",
                where=module.position(found),
                expected="values that stand in the source",
                actual=reached(replace(want, name=name, attributes=())),
                remedy=without_change(want) or "write the value that it gives into the file",
            )


def missing_error(project: Project, missing: Missing, want: Want) -> ClosureError:
    """A name that is read off a module which does not have it."""
    path = missing.location.path
    owner = project.folders.name(path) if path is not None else "/".join(missing.location.parts)
    known = project.open(path).by_name if path is not None else ()
    return ClosureError(
        f"{owner} has no name {missing.name!r} that can be read off its source",
        where=want.at,
        expected=f"a name that {owner} binds at module level",
        actual=reached(want),
        remedy=did_you_mean(missing.name, known) or "define it there; names that come by `import *` cannot be cut",
    )


def undecided_error(module: SourceModule, unit: Unit, name: str, at: Position, via: tuple[str, ...]) -> UncutError:
    """A name whose binding hangs on a condition."""
    assert unit.undecided is not None
    return UncutError(
        f"{name} is bound or changed under a condition that only a run can decide",
        where=module.position(unit.undecided),
        expected="statements at module level, or under a condition over constants of the source and of the target",
        actual=f"`{headline(unit.undecided)}`; {name} is read at {at}" + (f" by {' -> '.join(via)}" if via else ""),
        remedy=f"bind {name} outside of the condition",
    )


def undeclared_error(name: str, where: Position | str | None, actual: str | None = None) -> ClosureError:
    """A variable of the environment that code reads and kernels.yaml does not declare."""
    return ClosureError(
        f"the kernel depends on the environment variable {name}, which kernels.yaml does not declare",
        where=where,
        expected="variables under `environment:` in kernels.yaml: the machine that builds decides no image",
        actual=actual,
        remedy=f'add `environment: {{{name}: "..."}}` with the value to build for, or null for "not set"',
    )


def headline(node: ast.stmt) -> str:
    """The first line of a statement, with its decorators."""
    decorators = [f"@{ast.unparse(decorator)}" for decorator in getattr(node, "decorator_list", ())]
    return " ".join([*decorators, ast.unparse(node).splitlines()[len(decorators)]])


def unbound_error(want: Want) -> ClosureError | None:
    """Why a name that no statement of its module binds must not be needed; None where that is no matter."""
    name, kind = want.name, ClosureError
    expected, gives = "code whose names and values stand in the source", f"{want.name}() gives"
    if name in packages.RUN_TIME | packages.READS_MACHINE:
        kind = UncutError if name in packages.RUN_TIME else ClosureError
        what = f"{name}() reaches what cannot be read off the source"
    elif name in packages.BY_CHANCE:
        what = f"{name}() gives another value in another run"
    elif name in packages.OF_THE_MODULE:
        kind = UncutError
        what = f"{name} is not the same in a slice as in the file"
        expected, gives = "values that stand in the source", f"{name} stands for"
    else:
        return None
    return kind(
        what,
        where=want.at,
        expected=expected,
        actual=reached(want),
        remedy=without_change(want) or f"write the value that {gives} into the file",
    )


def undefined_error(want: Want) -> ClosureError:
    """A name that nothing binds; where names are bound by their texts, a run may bind it."""
    module = want.module
    if want.name in module.dead:
        found = f"bound only in line {module.dead[want.name]}, in a branch that never runs"
    else:
        found = f"no statement at module level binds it; {reached(want)}"
    changing = next((word for word in ("exec(", "globals()", "setattr(", "vars(") if module.mentions({word})), None)
    kind = UncutError if changing else ClosureError
    if changing:
        # Comments may have the word too, so no line is named.
        found += f"; the file has {changing.rstrip('()')}(), which may bind names that do not stand there"
    return kind(
        f"the name {want.name!r} is not defined in {module.file}",
        where=want.at,
        actual=found,
        remedy=did_you_mean(want.name, module.by_name) or "define it at module level, or import it by name",
    )
