"""After a compile: everything that Triton visited must lie in the closure, since nothing else is in its digest."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiln.closure.slice import Closure
from kiln.closure.virtual_names import virtual_name
from kiln.errors import ClosureError, Position


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A jitted function that was compiled, or with a name, what that stood for in one."""

    function: Any
    """a triton.JITFunction"""
    name: str | None = None
    value: Any = None


def check_visits(closure: Closure, visits: Iterable[Visit], triton: Path) -> None:
    """Raise ClosureError for the first visit that leads out of the closure and of Triton, whose folder is `triton`."""
    files = {virtual_name(module.file): module.file for module in closure.modules}
    sliced = {module.file for module in closure.modules if module.is_slice}
    modules = {module.name for module in closure.modules}
    for visit in visits:
        code: types.CodeType = visit.function.fn.__code__
        if Path(code.co_filename).is_relative_to(triton):
            continue
        file = files.get(code.co_filename)
        if file is None:
            raise _stranger(closure, f"the function {code.co_name} of {code.co_filename}", closure.position)
        if visit.name is None:
            continue
        where = Position(file=file, line=_line(visit.function))
        is_bound = visit.name in code.co_freevars or f"{file}:{visit.name}" in closure.components
        if file in sliced and not is_bound:
            raise _stranger(closure, f"the name {visit.name}, which the slice of {file} does not bind,", where)
        for origin in _origins(visit.value):
            if isinstance(origin, Path):
                if str(origin) not in files and not origin.is_relative_to(triton):
                    raise _stranger(closure, f"{visit.name}, which is from {origin},", where)
            elif not _is_known(origin, modules):
                raise _stranger(closure, f"{visit.name}, which is from the module {origin},", where)


def _line(function: Any) -> int:
    """The line of `def`: releases of Triton before 3.8 know only where the decorators begin."""
    lines: list[str] = function.raw_src
    return int(function.starting_line_number) + next(
        (index for index, line in enumerate(lines) if line.lstrip().startswith("def ")), 0
    )


def _origins(value: Any, depth: int = 4) -> Iterator[Path | str]:
    """The files, and the names of modules, that an object and its members come from."""
    if isinstance(value, types.ModuleType):
        yield value.__name__
    elif isinstance(value, type):
        yield value.__module__
    elif isinstance(value, (tuple, list, set, frozenset)) and depth:
        for member in value:
            yield from _origins(member, depth - 1)
    elif isinstance(value, dict) and depth:
        for member in value.values():
            yield from _origins(member, depth - 1)
    elif type(value).__name__ == "constexpr" and depth:
        yield from _origins(value.value, depth - 1)
    else:
        code = getattr(getattr(value, "fn", value), "__code__", None)
        if isinstance(code, types.CodeType):
            yield Path(code.co_filename)


def _is_known(module: str, modules: set[str]) -> bool:
    top = module.partition(".")[0]
    is_package = any(name.startswith(f"{module}.") for name in modules)
    return module in modules or is_package or top == "triton" or top in sys.stdlib_module_names


def _stranger(closure: Closure, what: str, where: Position) -> ClosureError:
    return ClosureError(
        f"Triton compiled {what} into {closure.function}, and the closure does not have it",
        where=where,
        expected=f"what stands in the closure: {', '.join(dict.fromkeys(module.file for module in closure.modules))}",
        remedy="bind the name by an import or a plain statement at module level; if it is, this is a fault of Kiln's",
    )
