"""Values that the interpreter finds in sources -> the words of a manifest: constants, and compiler options."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kiln.closure.interpret.values import FunctionValue, OutsideValue, Undecided, plain
from kiln.closure.module import SourceModule
from kiln.closure.names import Names
from kiln.closure.resolve import Definition
from kiln.closure.world import World, of_target
from kiln.errors import ClosureError, ManifestError, Position
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.schema import OPTIONS
from kiln.manifest.value_types import Either, Integer

T = TypeVar("T")

WRITE_OUT = "write the blocks out in kernels.yaml; `kiln import` prints what it can tell"

_LANGUAGE = "triton.language."
_DTYPES = {dtype.language: dtype.name for dtype in DTYPES.values()}


@dataclass(frozen=True, kw_only=True)
class KernelFile:
    """The file of a kernel, whose names function constants are in."""

    names: Names
    module: SourceModule

    def name_of(self, function: FunctionValue) -> str | None:
        """What the file calls a function of the project, `relu` or `ops.relu`; None where it has no name for it."""
        names = sorted(self.module.by_name, key=lambda name: (name != function.name, name))
        for path in ((), (function.name,)):
            for name in names:
                found = self.names.trace(self.module, name, path)
                if (
                    isinstance(found, Definition)
                    and (found.module.file, found.name) == (function.module.file, function.name)
                    and not found.attributes
                ):
                    return ".".join((name, *path))
        return None


def manifest_value(value: object, what: str, where: Position, kernel: KernelFile, remedy: str = WRITE_OUT) -> Value:
    """A constant in a manifest's words; `what` is what it is a value of, such as `BLOCK of a configuration`.

    Raises ClosureError at `where` for what a constant cannot be, and for a function that the kernel's file has no name
    for.
    """
    value = plain(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(manifest_value(member, what, where, kernel, remedy) for member in value)
    if isinstance(value, OutsideValue) and value.dotted.startswith(_LANGUAGE):
        name = _DTYPES.get(value.dotted.removeprefix(_LANGUAGE).removeprefix("core."))
        if name is not None:
            return DTypeConstant(name=name)
    if isinstance(value, FunctionValue):
        name = kernel.name_of(value)
        if name is None:
            raise ClosureError(
                f"{what} is {value.name} of {value.module.file}, and {kernel.module.file} has no name for it",
                where=where,
                expected="a function that the kernel's file defines or imports",
                actual=f"{value.module.file}:{value.name}",
                remedy=f"import it in {kernel.module.file}",
            )
        return FunctionConstant(name=name)
    shown = value.dotted if isinstance(value, OutsideValue) else type(value).__name__
    raise ClosureError(
        f"{what} is nothing that a constant can be",
        where=where,
        expected="a number, a text, True, False, None, a dtype of triton.language, a function, or a list of these",
        actual=shown,
        remedy=remedy,
    )


def option_value(name: str, value: object, of: str, where: Position, remedy: str = WRITE_OUT) -> int:
    """The value of the compiler option `name`: an integer or a truth value. `of` is what sets it.

    Raises ClosureError at `where` for anything else, and for what the option cannot be.
    """
    own, what = plain(value), f"{name} of {of}"
    if isinstance(own, int):
        kind = OPTIONS[name].type
        if isinstance(kind, Either) and isinstance(kind.literal, Integer):
            try:
                kind.literal.check(own, where, what, str(own))
            except ManifestError as error:
                raise ClosureError(
                    f"{what} is nothing that {name} can be",
                    where=where,
                    expected=error.expected,
                    actual=error.actual,
                    remedy="correct it there",
                ) from None
        return own
    raise ClosureError(
        f"{what} is neither an integer nor a truth value",
        where=where,
        expected="a value that a compiler option can have",
        actual=repr(own) if isinstance(own, (str, float)) or own is None else type(own).__name__,
        remedy=remedy,
    )


def identity(values: Mapping[str, Value]) -> Hashable:
    """What two sets of values share when they are equal: 1, 1.0 and true are three values."""
    return tuple(sorted((name, _typed(value)) for name, value in values.items()))


def _typed(value: Value) -> str:
    return f"{type(value).__name__} {value!r}"


def undecided(error: Undecided, what: str, where: Position, remedy: str = WRITE_OUT) -> ClosureError:
    """The error for what cannot be told without running the source; `what` is such as `the configurations of f`."""
    return ClosureError(
        f"{what} cannot be told without running the file: {error.reason}",
        where=error.at or where,
        expected="code that depends on the file itself, the target, Triton's version and declared variables alone",
        remedy=remedy,
    )


def for_targets(
    worlds: Mapping[str, World], read: Callable[[World, set[str]], Sequence[tuple[Hashable, T]]]
) -> list[tuple[T, tuple[str, ...] | None]]:
    """What `read` finds for each target, merged: each thing once, with the targets that have it, None where all do.

    `read(world, asked)` gives (identity, thing) in order, and adds to `asked` what the world was asked for: where that
    is nothing of the target, one world stands for all. The things of the first target come first, in its order.
    """
    found: dict[str, Sequence[tuple[Hashable, T]]] = {}
    asked: set[str] = set()
    for target, world in worlds.items():
        if found and not any(map(of_target, asked)):
            break
        found[target] = read(world, asked)
    things: dict[Hashable, T] = {}
    targets: dict[Hashable, dict[str, None]] = {}
    for target, listed in found.items():
        for key, thing in listed:
            things.setdefault(key, thing)
            targets.setdefault(key, {})[target] = None
    return [(thing, None if len(targets[key]) == len(found) else tuple(targets[key])) for key, thing in things.items()]
