"""bind: joins a variant's signature with the function's own parameter names into the variant's Interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from kiln.closure.slice import Closure, FunctionParameter
from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Value, Variant
from kiln.manifest.names import check_parameter
from kiln.manifest.signature import SignatureItem


def bind(variant: Variant, closure: Closure) -> Interface:
    """Give each parameter of the function its type from the signature or its value from the constants.

    Raises ManifestError when they do not fit each other, when a name cannot be one in C, C++ or Rust, and when `grid`,
    `select`, `inputs` or `tensors` name what the kernel does not have.
    """
    constants = _constants(variant, closure)
    arguments = _arguments(variant, closure, constants)
    for argument in arguments:
        check_parameter(argument.name, closure.position, "the name of a kernel argument")
    _check_inputs(variant, closure)
    _check_expressions(variant, arguments, constants)
    _check_tensors(variant, arguments, constants)
    return Interface(arguments=arguments, constants=constants)


def _at(variant: Variant, key: str) -> Position:
    """The place in kernels.yaml of one of the kernel's keys, or of the kernel where the key was left out."""
    return variant.kernel.positions.get(key, variant.kernel.position)


def _constants(variant: Variant, closure: Closure) -> dict[str, Value]:
    names = [parameter.name for parameter in closure.parameters]
    for name in variant.constants:
        if name not in names:
            raise ManifestError(
                f"{variant.id} sets the constant {name}, and {closure.function} has no parameter of that name",
                where=_at(variant, "blocks"),
                expected=f"one of the parameters of {closure.function} at {closure.position}: {', '.join(names)}",
                actual=f"{name} = {variant.constants[name]!r}",
                remedy=did_you_mean(name, names) or f"give {closure.function} a parameter `{name}: tl.constexpr`",
            )
    for parameter in closure.parameters:
        if parameter.is_constexpr and parameter.name not in variant.constants and not parameter.has_default:
            raise ManifestError(
                f"{variant.id} gives no value to the constant {parameter.name}",
                where=variant.kernel.position,
                expected=f"a value for {parameter.name}: {parameter.annotation}, a parameter of {closure.function} "
                f"at {closure.position}",
                actual=_listed(f"{name} = {value!r}" for name, value in variant.constants.items()),
                remedy=did_you_mean(parameter.name, variant.constants)
                or f"give {parameter.name} a default in {closure.position.file}; a block sets BLOCK_SIZE alone",
            )
    return {name: variant.constants[name] for name in names if name in variant.constants}


def _arguments(variant: Variant, closure: Closure, constants: Mapping[str, Value]) -> tuple[Argument, ...]:
    items = variant.signature.items
    parameters = [
        parameter for parameter in closure.parameters if not parameter.is_constexpr and parameter.name not in constants
    ]
    if len(parameters) != len(items):
        few = len(items) < len(parameters)
        raise ManifestError(
            f"{variant.id}: the signature has {'fewer' if few else 'more'} items than {closure.function} has arguments",
            where=variant.signature.position,
            expected=f"{len(parameters)} items, for the parameters of {closure.function} at {closure.position} "
            "that are no constants",
            actual=f"{len(items)} items: {', '.join(_pairs(parameters, items))}",
            remedy="add the missing types" if few else "remove the surplus types; constants have no item",
        )
    return tuple(
        Argument(name=parameter.name, type=item.type, promise=item.promise)
        for parameter, item in zip(parameters, items, strict=True)
    )


def _pairs(parameters: list[FunctionParameter], items: tuple[SignatureItem, ...]) -> Iterator[str]:
    for parameter, item in zip_longest(parameters, items):
        left = parameter.name if parameter is not None else "(no parameter)"
        promise = f":{item.promise}" if item is not None and item.promise is not None else ""
        yield f"{left}: {item.type}{promise}" if item is not None else f"{left}: (no item)"


def _check_inputs(variant: Variant, closure: Closure) -> None:
    parameters = {parameter.name for parameter in closure.parameters}
    for name in variant.kernel.inputs:
        check_parameter(name, _at(variant, "inputs"), "the name of a launch input")
        if name in parameters:
            raise ManifestError(
                f"the input {name} of {variant.id} is already a parameter of {closure.function}",
                where=_at(variant, "inputs"),
                expected="inputs that the kernel itself does not take",
                actual=f"{name}, a parameter of {closure.function} at {closure.position}",
                remedy=f"remove {name} from inputs: expressions can use arguments and constants as they are",
            )


def _check_expressions(variant: Variant, arguments: tuple[Argument, ...], constants: Mapping[str, Value]) -> None:
    for expression in variant.kernel.grid:
        _check_names(variant, expression, "grid", arguments, constants)
    if variant.kernel.select is not None:
        _check_names(variant, variant.kernel.select, "select", arguments, constants)


def _check_tensors(variant: Variant, arguments: tuple[Argument, ...], constants: Mapping[str, Value]) -> None:
    pointers = [argument.name for argument in arguments if argument.type.startswith("*")]
    types = {argument.name: argument.type for argument in arguments}
    for name, shape in variant.kernel.tensors.items():
        if name not in pointers:
            raise ManifestError(
                f"tensors of {variant.id} has a shape for {name}, which is no pointer argument",
                where=_at(variant, "tensors"),
                expected=f"one of {', '.join(pointers)}" if pointers else "nothing: the kernel takes no pointer",
                actual=f"{name}: {types[name]}" if name in types else name,
                remedy=did_you_mean(name, pointers) or f"remove {name} from tensors",
            )
        for expression in shape:
            _check_names(variant, expression, f"the shape of {name}", arguments, constants)


def _check_names(
    variant: Variant,
    expression: Expression,
    what: str,
    arguments: tuple[Argument, ...],
    constants: Mapping[str, Value],
) -> None:
    """Every name must stand for an integer that is known when the kernel is launched."""
    integers = {item.name for item in arguments if item.type[0] in "iu" and item.type != "i1"}
    numbers = {name for name, value in constants.items() if isinstance(value, int)}
    known = [*(item.name for item in arguments if item.name in integers), *variant.kernel.inputs, *sorted(numbers)]
    for name in sorted(expression.names - set(known)):
        found = next((f"{item.name}: {item.type}, an argument" for item in arguments if item.name == name), None)
        if found is None and name in constants:
            found = f"{name} = {constants[name]!r}, a constant"
        raise ManifestError(
            f"{what} of {variant.id} uses {name}, which is {'no integer' if found else 'not known'}",
            where=expression.position,
            expected=f"one of {', '.join(known)}: integer arguments, inputs and constants" if known else "numbers only",
            actual=f"`{expression.text}`" + (f", with {found}" if found else ""),
            remedy=did_you_mean(name, known)
            or ("use an integer in its place" if found else f"declare it, as `inputs: {{{name}: i32}}`"),
        )


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "no constants"
