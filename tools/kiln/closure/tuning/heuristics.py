"""The values that `@triton.heuristics` gives to constants, where they follow from what a variant fixes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from kiln.closure import jit
from kiln.closure.decisions import settle
from kiln.closure.entry import Entry
from kiln.closure.interpret.answers import UndeclaredVariable
from kiln.closure.interpret.interpreter import Interpreter
from kiln.closure.interpret.values import Frame, FunctionValue, OutsideValue, SomeValue, Undecided
from kiln.closure.module import SourceModule
from kiln.closure.names import Names
from kiln.closure.resolve import Project
from kiln.closure.tuning.autotune import find_tuned, names_around, tuning_calls
from kiln.closure.tuning.manifest_values import KernelFile, manifest_value
from kiln.closure.world import World
from kiln.errors import ClosureError, Position
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.interface import Argument

HEURISTICS = frozenset(name for name in jit.TUNING if name.endswith(".heuristics"))

_TORCH = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "fp8e5b16": "float8_e5m2fnuz",
    "i1": "bool",
    **{f"{sign[0]}{bits}": f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)},
}
"""what a pointer points to -> the dtype of the tensor that is launched with it, as torch has it"""


@dataclass(frozen=True, kw_only=True)
class _Heuristic:
    name: str
    """of the parameter"""
    function: object
    position: Position


class Heuristics:
    """Those of one function, for one world. They are read when they are asked for."""

    def __init__(self, project: Project, source: Path, function: str, world: World) -> None:
        self.asked: set[str] = set()
        """what the values that were derived asked of the world, in the words of Closure.asked"""
        self._source = source
        self._function = function
        self._given = project
        self._world = world

    @cached_property
    def _project(self) -> Project:
        return settle(self._given, self._source, self._function, self._world)

    @cached_property
    def _module(self) -> SourceModule:
        return self._project.open(self._source)

    @cached_property
    def _interpreter(self) -> Interpreter:
        return Interpreter(self._project, self._module, self._world, self.asked)

    @property
    def names(self) -> Collection[str]:
        """The parameters that get a value."""
        return dict.fromkeys(heuristic.name for heuristic in self._all)

    @cached_property
    def readable_names(self) -> Collection[str]:
        """The same, and none where the decorator cannot be read: a manifest that says all values does not need it."""
        try:
            return self.names
        except ClosureError:
            return ()

    @cached_property
    def _all(self) -> tuple[_Heuristic, ...]:
        """From the outermost decorator to the innermost, which is the order that they run in."""
        entry = find_tuned(self._project, self._module, self._function)
        if entry is None:
            return ()
        return tuple(heuristic for call in tuning_calls(entry) for heuristic in self._of(entry, call))

    def _of(self, entry: Entry, call: ast.Call) -> Iterator[_Heuristic]:
        module = entry.module
        if self._project.canonical(module, call.func, needed=True) not in HEURISTICS:
            return
        keywords = [keyword.value for keyword in call.keywords if keyword.arg == "values"]
        given = [*call.args, *keywords]
        position = module.position(call)
        unit = next(unit for unit in module.units if call in ast.walk(unit.node))
        interpreter, frame = self._interpreter, Frame(module=module, unknown=names_around(entry))
        try:
            with interpreter.before(module, unit.index):
                values = interpreter.entered(lambda: interpreter.expressions.value(given[0], frame)) if given else None
        except Undecided as error:
            raise self._unread(position, str(error)) from None
        if not isinstance(values, dict):
            raise self._unread(position, "it is no map")
        places = {
            key.value: module.position(key)
            for key in (given[0].keys if isinstance(given[0], ast.Dict) else ())
            if isinstance(key, ast.Constant)
        }
        for name, function in values.items():
            yield _Heuristic(name=str(name), function=function, position=places.get(name, position))

    def _unread(self, position: Position, reason: str) -> ClosureError:
        return ClosureError(
            f"the heuristics of {self._function} cannot be read",
            where=position,
            expected="triton.heuristics({...}), a map from parameters to functions",
            actual=reason,
            remedy="give the constants values under `constants` or `axes`, and take the decorator off",
        )

    def derive(
        self, wanted: Collection[str], constants: Mapping[str, Value], arguments: Sequence[Argument], variant: str
    ) -> dict[str, Value]:
        """The values of the `wanted` parameters of a variant, from its constants and what is known of its arguments.

        Raises ClosureError, at the heuristic, where a value depends on what only a launch knows, or cannot be told.
        """
        known: dict[str, object] = {name: self._value(value) for name, value in constants.items()}
        known |= {name: value for name, value in _arguments(arguments).items() if name not in known}
        derived: dict[str, Value] = {}
        for heuristic in self._all:
            if heuristic.name not in wanted:
                continue
            try:
                value = self._interpreter.entered(partial(self._interpreter.apply, heuristic.function, [dict(known)]))
            except UndeclaredVariable as error:
                raise ClosureError(
                    f"the heuristic for {heuristic.name} depends on an environment variable",
                    where=error.at or heuristic.position,
                    actual=error.reason,
                    remedy=f'declare it: `environment: {{{error.name}: "..."}}`, or null for one that is not set',
                ) from None
            except Undecided as error:
                raise self._depends(heuristic, variant, str(error)) from None
            if isinstance(value, SomeValue):
                raise self._depends(heuristic, variant, f"it is {value.what}")
            known[heuristic.name] = value
            what = f"what the heuristic for {heuristic.name} gives"
            kernel = KernelFile(names=Names(self._project), module=self._module)
            derived[heuristic.name] = manifest_value(
                value, what, heuristic.position, kernel, remedy=_remedy(heuristic.name)
            )
        return derived

    def _depends(self, heuristic: _Heuristic, variant: str, reason: str) -> ClosureError:
        return ClosureError(
            f"{heuristic.name} of {variant} cannot be told before a launch",
            where=heuristic.position,
            expected=f"a heuristic of {self._function} over constants, promises, and which pointers are null, "
            "in Python that Kiln follows",
            actual=reason,
            remedy=_remedy(heuristic.name),
        )

    def _value(self, value: Value) -> object:
        if isinstance(value, DTypeConstant):
            return OutsideValue(dotted=f"triton.language.{DTYPES[value.name].language}")
        if isinstance(value, FunctionConstant):
            return FunctionValue(module=self._module, name=value.name)
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        return value


def _remedy(name: str) -> str:
    return f"give {name} its value under `constants`, or each value that launches need under `axes`"


def _arguments(arguments: Sequence[Argument]) -> dict[str, object]:
    """What is known of each argument before a launch; the members of a tuple stand together under its name."""
    known: dict[str, object] = {}
    for argument in arguments:
        value = _argument(argument)
        if not argument.path:
            known[argument.name] = value
        else:
            before = known.get(argument.parameter, ())
            assert isinstance(before, tuple)
            known[argument.parameter] = (*before, value)
    return known


def _argument(argument: Argument) -> object:
    what = f"the argument {argument.name}"
    if argument.type.startswith("*"):
        dtype = _TORCH.get(argument.type.lstrip("*"))
        return SomeValue(what=what, attributes={"dtype": OutsideValue(dotted=f"torch.{dtype}")} if dtype else {})
    if argument.promise == 1:
        return 1
    return SomeValue(what=what, multiple_of=(argument.promise or 1) if argument.type[0] in "iu" else 0)
