"""Executes a closure's modules, cut or whole, and gives the Triton function. It runs the user's code."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import inspect
import io
import linecache
import os
import sys
import traceback
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

from kiln.closure.slice import Closure, SlicedModule
from kiln.closure.virtual_names import PROJECT, virtual_name
from kiln.errors import ClosureError, Position
from kiln.manifest.constants import FunctionConstant

_loaded: dict[str, types.ModuleType] = {}
"""the modules of the closure that was loaded last"""

_MAX_CALLS = 10
"""calls that a message lists between what went wrong and the line of the file that led there"""


def load(closure: Closure, given: Mapping[str, Any] | None = None) -> Any:
    """Execute the modules and return the triton.JITFunction.

    Slices are modules below `kiln_slice` and import each other there, through a finder that knows nothing else; whole
    files have their own names. sys.path stays as it is, and packages other than Python's library and Triton are not
    there, whatever is installed. An earlier closure's modules are forgotten. The code stands in `linecache` under
    virtual names with the original line numbers, since Triton reads a function's source from there. What the code
    prints is marked as its own.

    `given` has values for the parameters of the function that makes the kernel, where there is one, function constants
    among them; values for others are ignored.

    Raises ClosureError if the code raises, with the user's line, and if the result is not the function that was cut.
    """
    _refuse_interpreter(closure)
    forget()
    finder = Finder(closure.modules)
    for module in closure.modules:
        name = virtual_name(module.file)
        linecache.cache[name] = (len(module.text), None, _lines(module.text), name)
    sys.meta_path.insert(0, finder)
    try:
        with finder.alone(), environment(closure), _marked(closure.modules[0].file):
            before = set(sys.modules)
            namespace = vars(importlib.import_module(closure.modules[0].name))
            found = _followed(closure, namespace, given or {})
            added = sys.modules.keys() - before
            _loaded.update({name: sys.modules[name] for name in added if finder.has(name)})
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # user code may raise anything, SystemExit included
        raise _failure(closure, error) from None
    finally:
        sys.meta_path.remove(finder)
    function = _checked(closure, found)
    _refuse_strangers(closure, [name for name in sorted(added) if not finder.is_known(name)])
    if closure.uncut is not None:
        # A cut leaves `repr=` out: an image's symbol is the function's own name.
        function._repr = None
    return function


def named(closure: Closure, name: str) -> Any:
    """What a name, or a path such as `Ops.relu`, is in the kernel's own file; None if nothing.

    To be asked after `load`, for functions that are given to the kernel as constants.
    """
    return _named(vars(_loaded[closure.modules[0].name]), name)


def _named(namespace: Mapping[str, Any], name: str) -> Any:
    first, *rest = name.split(".")
    value = namespace.get(first)
    for word in rest:
        value = getattr(value, word, None)
    return value


def _given(namespace: Mapping[str, Any], value: Any) -> Any:
    """A constant for a function that makes kernels: a function constant is that function."""
    if isinstance(value, tuple):
        return tuple(_given(namespace, member) for member in value)
    return _named(namespace, value.name) if isinstance(value, FunctionConstant) else value


def _followed(closure: Closure, namespace: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """What the function's path leads to; a function on the way is called, and gives its variables as they then are."""
    first, *rest = closure.function.split(".")
    value = namespace.get(first)
    for word in rest:
        if isinstance(value, types.FunctionType):
            value = _variables(value, {name: _given(namespace, one) for name, one in given.items()}).get(word)
        else:
            value = getattr(value, word, None)
    while (
        value is not None
        and closure.uncut is not None
        and type(value).__name__ != "JITFunction"
        and hasattr(value, "fn")
    ):
        # Autotuners and launchers wrap it, and a whole file has them.
        value = value.fn
    return value


def _variables(function: types.FunctionType, given: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a function when it has run with the values in `given`; None is given where there is no default.

    They are taken as it returns: what it returns may be something that launches the kernel.
    """
    found: dict[str, Any] = {}

    def watch(frame: types.FrameType, event: str, argument: object) -> None:
        if event == "return" and frame.f_code is function.__code__:
            found.update(frame.f_locals)

    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = parameter.default if parameter.default is not parameter.empty else None
        value = given.get(parameter.name, default)
        if parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = value
        else:
            positional.append(value)
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        function(*positional, **keywords)
    finally:
        sys.setprofile(before)
    return found


class _Marked(io.TextIOBase):
    """Writes on, with each line marked as printed by a file: a compiler's own lines are told by how they begin."""

    def __init__(self, stream: TextIO, file: str) -> None:
        self._stream = stream
        self._mark = f"{file} printed: "
        self._is_new = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self._stream.write(f"{self._mark}{line}" if self._is_new else line)
            self._is_new = line.endswith(("\n", "\r"))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def environment(closure: Closure) -> Iterator[None]:
    """Give code of whole files the variables that kernels.yaml declares, and none of the machine that builds.

    To be entered by whoever runs such code after `load`, too: what Triton evaluates may read them.
    """
    if closure.uncut is None:
        yield
        return
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(closure.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _marked(file: str) -> Iterator[None]:
    with redirect_stdout(_Marked(sys.stdout, file)), redirect_stderr(_Marked(sys.stderr, file)):
        yield


def _lines(text: str) -> list[str]:
    """The lines as Python numbers them; splitlines() would split at form feeds and Unicode's separators as well."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def forget() -> None:
    """Drop the modules and source lines of an earlier `load`; functions that it gave keep working."""
    for name, module in _loaded.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    _loaded.clear()
    for name in [name for name in linecache.cache if name.startswith(f"{PROJECT}/")]:
        del linecache.cache[name]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and executes the modules of one closure; the packages around them are empty.

    It stands first, and says of what is neither Python's library nor Triton that it is not there: whether some package
    is installed where kernels are built must make no difference.
    """

    def __init__(self, modules: Sequence[SlicedModule]) -> None:
        self.modules = {module.name: module for module in modules}
        words = [module.name.split(".") for module in modules]
        self.packages = {".".join(parts[:depth]) for parts in words for depth in range(1, len(parts))}
        self.packages |= {module.name for module in modules if module.file.endswith("__init__.py")}

    def has(self, name: str) -> bool:
        """Whether a module is one of the closure's, or a package around one."""
        return name in self.modules or name in self.packages

    def is_known(self, name: str) -> bool:
        """Whether a module may be loaded while the closure's run."""
        top = name.partition(".")[0]
        return self.has(name) or top == "triton" or top in sys.stdlib_module_names

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hide the modules of other packages, and Kiln's own, from the code that runs."""
        tops = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
        foreign = {top for top in tops if top != "triton" and top not in sys.stdlib_module_names}
        hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in foreign}
        for name in hidden:
            del sys.modules[name]
        try:
            yield
        finally:
            sys.modules.update(hidden)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if self.has(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname in self.packages)
        if not self.is_known(fullname):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        sliced = self.modules.get(module.__name__)
        if sliced is not None:
            with warnings.catch_warnings():
                # Python warns of "\\d" in a plain string each time that it compiles it, for every image.
                warnings.simplefilter("ignore")
                code = compile(sliced.text, virtual_name(sliced.file), "exec", dont_inherit=True)
            if not sliced.is_slice:
                module.__file__ = virtual_name(sliced.file)
            exec(code, module.__dict__)


def _refuse_interpreter(closure: Closure) -> None:
    """With this variable set Triton makes functions that run in Python, and imports NumPy for them."""
    if os.environ.get("TRITON_INTERPRET", "0") != "0":
        raise ClosureError(
            f"{closure.function} cannot be compiled: Triton is told to interpret functions",
            where=closure.position,
            expected="TRITON_INTERPRET unset, or 0",
            actual=f"TRITON_INTERPRET={os.environ['TRITON_INTERPRET']}",
            remedy="unset TRITON_INTERPRET",
        )


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
    remedy = "correct that line; it runs when the kernel is compiled, without the rest of its file"
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "triton":
        remedy = f"{installed()}: correct the name, or use a release that has it"
    for module in closure.modules:
        if module.is_slice:
            # People know the file, and not the module that it is here.
            actual = actual.replace(f"'{module.name}' (unknown location)", module.file)
            actual = actual.replace(f"'{module.name}'", module.file)
            if isinstance(error, ImportError) and error.name == module.name and module.file in {at[0] for at in places}:
                remedy = f"files import each other here, and {module.file} has not bound the name yet: define it in one"
    calls = [f"\n    called from {file}:{line}, in {name}" for file, line, name in reversed(places[:-1])]
    if len(calls) > _MAX_CALLS:
        # An endless recursion has a thousand, all alike.
        calls = [*calls[: _MAX_CALLS - 1], f"\n    ... {len(calls) - _MAX_CALLS} more calls", calls[-1]]
    actual += "".join(calls)
    if closure.uncut is not None:
        reason = "".join(f"\n    {line}" for line in closure.uncut.splitlines())
        return ClosureError(
            f"importing {closure.modules[0].file} for {closure.function} raises {type(error).__name__}",
            where=where,
            actual=f"{actual}\n  imported as it stands, because the kernel could not be cut out of it:{reason}",
            remedy="make either way work: an import without packages other than Triton and Python's own, or the cut",
        )
    return ClosureError(
        f"the code that {closure.function} needs raises {type(error).__name__}",
        where=where,
        actual=actual,
        remedy=remedy,
    )


def installed() -> str:
    """`Triton 3.9.0 is installed`, for messages; to be asked where it has been imported."""
    return f"Triton {sys.modules['triton'].__version__} is installed"


def _refuse_strangers(closure: Closure, names: list[str]) -> None:
    """Refuse modules that the code loaded past the import system: the fingerprint does not have them."""
    if names:
        raise ClosureError(
            f"{closure.modules[0].file} loads the module {names[0]}, which is no part of what {closure.function} is "
            "compiled from",
            where=closure.position,
            expected="import statements, of files of the project, Triton and Python's own library",
            actual=", ".join(dict.fromkeys(name.partition(".")[0] for name in names)),
            remedy="import it by a statement, or move what the kernel needs into a file that does not load it",
        )


def _checked(closure: Closure, function: Any) -> Any:
    """Make sure that Triton sees the parameters that were read off the source."""
    kind = type(function).__name__
    if kind != "JITFunction":
        raise ClosureError(
            f"{closure.function} is not a Triton function once its slice has run",
            where=closure.position,
            expected="a triton.JITFunction",
            actual=kind,
            remedy="decorate it with @triton.jit",
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
