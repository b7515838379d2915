"""Executes a closure's slices in synthetic modules and gives the Triton function. It runs the user's code."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import linecache
import sys
import traceback
import types
import warnings
from collections.abc import Sequence
from typing import Any

from kiln.closure.resolve import PACKAGE
from kiln.closure.slice import Closure, SlicedModule
from kiln.errors import ClosureError, Position

_ROOT = "<kiln>"


def virtual_name(file: str) -> str:
    """The file name that a slice's code carries: one that exists on no disk and is the same on every machine."""
    return f"{_ROOT}/{file}"


def load(closure: Closure) -> Any:
    """Execute the slices and return the triton.JITFunction.

    Slices are modules below `kiln_slice` and import each other there, through a finder that knows nothing else;
    sys.path stays as it is. Slices of an earlier closure are forgotten. Their code stands in `linecache` under virtual
    names with the original line numbers, since Triton reads a function's source from there.

    Raises ClosureError if a slice raises, with the user's line, and if the result is not the function that was cut.
    """
    forget()
    finder = _Finder(closure.modules)
    for module in closure.modules:
        name = virtual_name(module.file)
        linecache.cache[name] = (len(module.text), None, _lines(module.text), name)
    sys.meta_path.insert(0, finder)
    try:
        namespace = vars(importlib.import_module(closure.modules[0].name))
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # user code may raise anything, SystemExit included
        raise _failure(closure, error) from None
    finally:
        sys.meta_path.remove(finder)
    return _checked(closure, namespace.get(closure.function))


def _lines(text: str) -> list[str]:
    """The lines as Python numbers them; splitlines() would split at form feeds and Unicode's separators as well."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def forget() -> None:
    """Drop the modules and source lines of an earlier `load`; functions that it gave keep working."""
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    for name in [name for name in linecache.cache if name.startswith(f"{_ROOT}/")]:
        del linecache.cache[name]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and executes the slices of one closure; the packages around them are empty."""

    def __init__(self, modules: Sequence[SlicedModule]) -> None:
        self.modules = {module.name: module for module in modules}
        words = [module.name.split(".") for module in modules]
        self.packages = {".".join(parts[:depth]) for parts in words for depth in range(1, len(parts))}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.modules and fullname not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname in self.packages)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        sliced = self.modules.get(module.__name__)
        if sliced is not None:
            with warnings.catch_warnings():
                # Python warns of "\\d" in a plain string each time that it compiles it, for every image.
                warnings.simplefilter("ignore")
                code = compile(sliced.text, virtual_name(sliced.file), "exec", dont_inherit=True)
            exec(code, module.__dict__)


def _failure(closure: Closure, error: BaseException) -> ClosureError:
    """What the user's code raised, where it stands; frames of Kiln and of Python's import system are left out."""
    files = {virtual_name(module.file): module.file for module in closure.modules}
    places = [
        (files[frame.filename], frame.lineno or 1, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename in files
    ]
    where: Position | str = closure.modules[0].file
    if places:
        where = Position(file=places[-1][0], line=places[-1][1])
    actual = "".join(traceback.format_exception_only(error)).strip()
    for file, line, name in reversed(places[:-1]):
        actual += f"\n    called from {file}:{line}, in {name}"
    return ClosureError(
        f"the code that {closure.function} needs raises {type(error).__name__}",
        where=where,
        actual=actual,
        remedy="correct that line; it runs when the kernel is compiled, without the rest of its file",
    )


def _checked(closure: Closure, function: Any) -> Any:
    """Make sure that Triton sees the parameters that were read off the source."""
    kind = type(function).__name__
    if kind != "JITFunction":
        raise ClosureError(
            f"{closure.function} is not a Triton function once its slice has run",
            where=closure.position,
            expected="a triton.JITFunction",
            actual=f"{kind}; with TRITON_INTERPRET set, Triton interprets functions instead of compiling them"
            if kind == "InterpretedFunction"
            else kind,
            remedy="unset TRITON_INTERPRET" if kind == "InterpretedFunction" else "decorate it with @triton.jit",
        )
    seen = [(parameter.name, bool(parameter.is_constexpr)) for parameter in function.params]
    cut = [(parameter.name, parameter.is_constexpr) for parameter in closure.parameters]
    if seen != cut:
        raise ClosureError(
            f"Triton sees other parameters of {closure.function} than its source shows",
            where=closure.position,
            expected=_listed(cut),
            actual=_listed(seen),
            remedy="annotate constants as tl.constexpr, with no name of your own for it",
        )
    return function


def _listed(parameters: list[tuple[str, bool]]) -> str:
    return ", ".join(f"{name}: constexpr" if is_constexpr else name for name, is_constexpr in parameters)
