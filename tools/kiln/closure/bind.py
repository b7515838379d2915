"""bind: joins a variant's signature with the function's own parameter names into the variant's Interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from kiln.closure.slice import Closure, FunctionParameter
from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Kernel, Value, Variant
from kiln.manifest.names import check_parameter
from kiln.manifest.pattern import placeholders
from kiln.manifest.schema import OPTIONS
from kiln.manifest.signature import SignatureItem


def bind(variant: Variant, closure: Closure) -> Interface:
    """Give each parameter of the function its type from the signature or its value from the constants.

    Raises ManifestError when they do not fit each other, when a name cannot be one in C, C++ or Rust, and when `grid`,
    `select`, `inputs` or `tensors` name what the kernel does not have.
    """
    constants = _constants(variant, closure)
    axes = _own_axes(variant, closure)
    known = {**constants, **axes}
    arguments = _arguments(variant, closure, constants)
    for argument in arguments:
        check_parameter(argument.name, closure.position, "the name of a kernel argument")
    _check_inputs(variant, closure)
    _check_expressions(variant, arguments, known)
    _check_tensors(variant, arguments, known)
    return Interface(arguments=arguments, constants=constants, axes=axes)


def _at(variant: Variant, key: str) -> Position:
    """The place in kernels.yaml of one of the kernel's keys, or of the kernel where the key was left out."""
    return variant.kernel.positions.get(key, variant.kernel.position)


def _constant_at(variant: Variant, name: str) -> Position:
    """The place of a constant: under `constants`, in its block, or that of `blocks`."""
    if f"constants.{name}" in variant.kernel.positions:
        return variant.kernel.positions[f"constants.{name}"]
    block = next((block for block in variant.kernel.blocks if block.tag == variant.block), None)
    return block.positions[name] if block is not None and name in block.positions else _at(variant, "blocks")


def _constants(variant: Variant, closure: Closure) -> dict[str, Value]:
    names = [parameter.name for parameter in closure.parameters]
    for name in variant.constants:
        if name not in names:
            # A misspelt option of a block reads as a constant.
            meant = [*names, *OPTIONS] if name not in variant.kernel.constants else names
            raise ManifestError(
                f"{variant.id} sets the constant {name}, and {closure.function} has no parameter of that name",
                where=_constant_at(variant, name),
                expected=f"one of the parameters of {closure.function} at {closure.position}: {', '.join(names)}",
                actual=f"{name} = {variant.constants[name]!r}",
                remedy=did_you_mean(name, meant) or f"give {closure.function} a parameter `{name}: tl.constexpr`",
            )
    values = {**variant.constants, **variant.axes}
    for parameter in closure.parameters:
        if parameter.is_constexpr and parameter.name not in values and not parameter.has_default:
            raise ManifestError(
                f"{variant.id} gives no value to the constant {parameter.name}",
                where=variant.kernel.position,
                expected=f"a value for {parameter.name}: {parameter.annotation}, a parameter of {closure.function} "
                f"at {closure.position}",
                actual=_listed(f"{name} = {value!r}" for name, value in values.items()),
                remedy=did_you_mean(parameter.name, values)
                or f"set {parameter.name} under `constants` or `axes`, or give it a default in {closure.position.file}",
            )
    return {name: values[name] for name in names if name in values}


def _own_axes(variant: Variant, closure: Closure) -> dict[str, Value]:
    """The axes that set no parameter. Raises ManifestError for one that nothing else uses: its variants are equal."""
    names = [parameter.name for parameter in closure.parameters]
    found = {name: value for name, value in variant.axes.items() if name not in names}
    for name in found:
        if name not in _used(variant.kernel):
            raise ManifestError(
                f"the axis {name} of {variant.kernel.key} changes nothing: {closure.function} has no parameter of "
                "that name, and no expression uses it",
                where=_at(variant, f"axes.{name}"),
                expected=f"one of the parameters of {closure.function} at {closure.position}: {', '.join(names)}",
                actual=name,
                remedy=did_you_mean(name, names) or "use it in an expression or in the signature, or remove it",
            )
    return found


def _used(kernel: Kernel) -> frozenset[str]:
    """The names that expressions and the signature use."""
    options = [*kernel.options.values(), *(value for block in kernel.blocks for value in block.options.values())]
    shapes = [extent for shape in kernel.tensors.values() for extent in shape]
    values = [*options, *kernel.constants.values(), *shapes, *kernel.grid, kernel.select]
    expressions = [value for value in values if isinstance(value, Expression)]
    return placeholders(kernel.signature).union(*(expression.names for expression in expressions))


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


def _check_expressions(variant: Variant, arguments: tuple[Argument, ...], known: Mapping[str, Value]) -> None:
    for expression in variant.kernel.grid:
        _check_names(variant, expression, "grid", arguments, known)
    if variant.kernel.select is not None:
        _check_names(variant, variant.kernel.select, "select", arguments, known)


def _check_tensors(variant: Variant, arguments: tuple[Argument, ...], known: Mapping[str, Value]) -> None:
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
            _check_names(variant, expression, f"the shape of {name}", arguments, known)


def _check_names(
    variant: Variant,
    expression: Expression,
    what: str,
    arguments: tuple[Argument, ...],
    fixed: Mapping[str, Value],
) -> None:
    """Every name must stand for an integer that is known when the kernel is launched."""
    integers = {item.name for item in arguments if item.type[0] in "iu" and item.type != "i1"}
    numbers = {name for name, value in fixed.items() if isinstance(value, int)}
    known = [*(item.name for item in arguments if item.name in integers), *variant.kernel.inputs, *sorted(numbers)]
    for name in sorted(expression.names - set(known)):
        found = next((f"{item.name}: {item.type}, an argument" for item in arguments if item.name == name), None)
        if found is None and name in fixed:
            found = f"{name} = {fixed[name]!r}, {'an axis' if name in variant.axes else 'a constant'}"
        raise ManifestError(
            f"{what} of {variant.id} uses {name}, which is {'no integer' if found else 'not known'}",
            where=expression.position,
            expected=f"one of {', '.join(known)}: integer arguments, inputs, constants and axes"
            if known
            else "numbers only",
            actual=f"`{expression.text}`" + (f", with {found}" if found else ""),
            remedy=did_you_mean(name, known)
            or ("use an integer in its place" if found else f"declare it, as `inputs: {{{name}: i32}}`"),
        )


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "no constants"
