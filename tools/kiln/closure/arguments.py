"""The arguments of a variant: the signature's items, named after the function's parameters, with all promises."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from kiln.closure.function_parameters import FunctionParameter
from kiln.closure.slice import Closure
from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.interface import Argument
from kiln.manifest.model import Variant
from kiln.manifest.names import check_argument, member_name
from kiln.manifest.signature import can_promise, promises_of

if TYPE_CHECKING:
    from kiln.closure.cuda_source import CudaSource


def name_arguments(variant: Variant, closure: Closure | CudaSource, constants: Collection[str]) -> tuple[Argument, ...]:
    """What callers pass, in order: all parameters but the constexpr ones and those that `constants` sets.

    Raises ManifestError when there are more or fewer of them than items in the signature, for names that no struct
    can have or that two arguments would share there, and for promises of the variant that no argument can make.
    """
    parameters = [
        parameter for parameter in closure.parameters if not parameter.is_constexpr and parameter.name not in constants
    ]
    parts = variant.signature.parts
    if len(parameters) != len(parts):
        few, cuda = len(parts) < len(parameters), not isinstance(closure, Closure)
        own = {parameter.name for parameter in closure.parameters if not parameter.is_constexpr}
        fixed = ", ".join(name for name in variant.constants if name in own)
        raise ManifestError(
            f"{variant.id}: the signature has {'fewer' if few else 'more'} items than {closure.function} has arguments",
            where=variant.signature.position,
            expected=f"{len(parameters)} items, for the parameters of {closure.function} at {closure.position}"
            f"{'' if cuda else ' that are no constants'}",
            actual=f"{len(parts)} items: {', '.join(_pairs(parameters, parts))}",
            remedy=_fewer(cuda) if few else _more(cuda, fixed),
        )
    arguments = tuple(
        Argument(
            name="_".join([parameters[item.path[0]].name, *map(str, item.path[1:])]),
            type=item.type,
            promise=item.promise,
            path=item.path[1:],
        )
        for item in variant.signature.items
    )
    _check_names(arguments, closure.position)
    return _promised(variant, arguments)


def _fewer(cuda: bool) -> str:
    """What to do about missing items: a constant takes the place of a parameter in Triton alone."""
    add = "add the missing types"
    return add if cuda else f"{add}, or set a parameter to null or another value under `constants`"


def _more(cuda: bool, fixed: str) -> str:
    """What to do about surplus items; `fixed` are the parameters that constants set."""
    if cuda:
        return "remove the surplus types"
    if fixed:
        return f"remove the types of {fixed}, since constants have no item, or remove those constants"
    return "remove the surplus types; constants have no item"


def _pairs(parameters: list[FunctionParameter], parts: tuple[str, ...]) -> Iterator[str]:
    for parameter, part in zip_longest(parameters, parts):
        left = parameter.name if parameter is not None else "(no parameter)"
        yield f"{left}: {part}" if part is not None else f"{left}: (no item)"


def _check_names(arguments: tuple[Argument, ...], position: Position) -> None:
    seen: dict[str, Argument] = {}
    for argument in arguments:
        check_argument(argument.name, position, "the name of a kernel argument")
        member = member_name(argument.name)
        first = seen.setdefault(member, argument)
        if first.name != argument.name:
            raise two_members(first.name, argument.name, member, position)
        if first is not argument:
            tuple_ = argument.parameter if argument.path else first.parameter
            raise ManifestError(
                f"two arguments are called {argument.name}: a parameter, and a member of the tuple {tuple_}",
                where=position,
                expected="parameters whose names no member of a tuple has",
                actual=argument.name,
                remedy="rename one of the parameters in the source",
            )


def two_members(first: str, second: str, member: str, where: Position) -> ManifestError:
    """What is wrong when structs would call an argument, and another or a launch input, the same."""
    kept = first if first != member else second
    return ManifestError(
        f"{first} and {second} would both be {member} in C and Rust, where {kept} has an underscore behind it",
        where=where,
        expected=f"names that stay apart when {kept}, which C, C++ or Rust keeps for itself, is called {member}",
        actual=f"{first}, {second}",
        remedy="rename one of them",
    )


def _promised(variant: Variant, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """The arguments with the promises of the variant's own set beside those of the signature."""
    known = {argument.name: argument for argument in arguments}
    for name, promise in variant.promises.promises.items():
        where = variant.promises.positions[name]
        if name not in known:
            raise ManifestError(
                f"the promises of {variant.id} are about {name}, which is no argument of it",
                where=where,
                expected=f"one of {', '.join(known)}" if known else "nothing: the kernel takes no arguments",
                actual=name,
                remedy=did_you_mean(name, known) or f"remove {name}",
            )
        argument = known[name]
        if argument.promise is not None:
            raise ManifestError(
                f"the signature of {variant.id} already has a promise for {name}",
                where=where,
                expected="promises for arguments that the signature says nothing of",
                actual=f"{name}: {promise} beside {argument.type}:{argument.promise}",
                remedy=f"remove {name} here, or :{argument.promise} from the signature",
            )
        if not can_promise(argument.type, promise):
            raise ManifestError(
                f"{name} of {variant.id} cannot promise {promise}",
                where=where,
                expected=promises_of(argument.type),
                actual=f"{name}: {argument.type}, {promise}",
                remedy=f"remove {name} here",
            )
    return tuple(
        replace(argument, promise=variant.promises.promises.get(argument.name, argument.promise))
        for argument in arguments
    )
