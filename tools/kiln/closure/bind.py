"""bind: joins a variant's signature with the function's own parameter names into the variant's Interface."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from kiln.closure.arguments import name_arguments, two_members
from kiln.closure.slice import Closure
from kiln.closure.tuning.heuristics import Heuristics
from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.constants import Value, same, written
from kiln.manifest.dtypes import is_integer
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Argument, Interface
from kiln.manifest.model import Kernel, Variant
from kiln.manifest.names import check_parameter, member_name
from kiln.manifest.pattern import placeholders
from kiln.manifest.schema import OPTIONS

if TYPE_CHECKING:
    from kiln.closure.cuda_source import CudaSource


def bind(variant: Variant, closure: Closure, heuristics: Heuristics | None = None) -> Interface:
    """Give each parameter of the function its type from the signature or its value from the constants.

    A constant that the variant leaves open, and that `heuristics` has, gets the value that follows from the rest.

    Raises ManifestError when they do not fit each other, for names that C, C++ and Rust cannot have, and when `grid`,
    `select`, `inputs`, `tensors`, `problems` or `promises` name what the kernel does not have.
    """
    if heuristics is not None:
        _check_chosen_options(variant, heuristics)
    derivable = _derivable(variant, closure, heuristics)
    constants = _constants(variant, closure, derivable)
    axes = _own_axes(variant, closure)
    arguments = name_arguments(variant, closure, {*constants, *derivable})
    if heuristics is not None and derivable:
        constants |= heuristics.derive(derivable, {**constants, **axes}, arguments, variant.id)
        constants = {name: constants[name] for name in _constant_names(closure) if name in constants}
    check_launch(variant, closure, arguments, {**constants, **axes})
    return Interface(arguments=arguments, constants=constants, axes=axes)


def check_launch(
    variant: Variant, closure: Closure | CudaSource, arguments: tuple[Argument, ...], known: Mapping[str, Value]
) -> None:
    """Check what kernels.yaml says of a launch against the arguments; `known` is what the variant fixes.

    Raises ManifestError for names in `grid`, `select`, `inputs`, `tensors`, `problems` that the kernel does not have.
    """
    _check_inputs(variant, closure, arguments)
    _check_expressions(variant, arguments, known)
    _check_tensors(variant, arguments, known)
    _check_slices(variant, arguments)
    _check_problems(variant, arguments)


def check_alike(variant: Variant, interfaces: Mapping[str, Interface]) -> None:
    """Check that a variant is called in one way, whatever target it is built for. Raises ManifestError where it is not.

    `interfaces` has those of two targets, or of one.
    """
    (first, own), *others = interfaces.items()
    used = used_names(variant.kernel)
    for target, other in others:
        for name in [argument.name for argument in (*own.arguments, *other.arguments)]:
            if [item for item in own.arguments if item.name == name] != [
                item for item in other.arguments if item.name == name
            ]:
                raise _differs(variant, f"the argument {name}", first, target)
        for name in sorted(used):
            if name in own.constants and not same(own.constants[name], other.constants.get(name)):
                raise _differs(variant, f"the constant {name}, which an expression uses,", first, target)


def _differs(variant: Variant, what: str, first: str, target: str) -> ManifestError:
    return ManifestError(
        f"{what} of {variant.id} is another one for {target} than for {first}",
        where=variant.kernel.position,
        expected="one way to call a variant, on all of its targets: its source asks what it is built for",
        remedy="declare a kernel for each, with `targets`",
    )


def _at(variant: Variant, key: str) -> Position:
    """The place in kernels.yaml of one of the kernel's keys, or of the kernel where the key was left out."""
    return variant.kernel.positions.get(key, variant.kernel.position)


def _constant_at(variant: Variant, name: str) -> Position:
    """The place of a constant: under `constants`, in its block, or that of `blocks`."""
    if f"constants.{name}" in variant.kernel.positions:
        return variant.kernel.positions[f"constants.{name}"]
    return variant.block_entry.positions.get(name) or _at(variant, "blocks")


def _constant_names(closure: Closure) -> list[str]:
    """The parameters of the function, and of the function that makes it, where there is one."""
    every = [*closure.parameters, *closure.factory_parameters]
    return list(dict.fromkeys(parameter.name for parameter in every))


def _check_chosen_options(variant: Variant, heuristics: Heuristics) -> None:
    """Refuse a heuristic for a compiler option that kernels.yaml leaves open: Triton would launch with what it says."""
    kernel = variant.kernel
    for name in heuristics.readable_names:
        stated = f"options.{name}" in kernel.positions or name in variant.block_entry.options
        if name in OPTIONS and not stated:
            raise ManifestError(
                f"{variant.id} leaves {name} to the source's heuristics, which a build does not follow for options",
                where=_at(variant, "options"),
                expected=f"{name} under `options` of {kernel.key}, a value or an expression that says what "
                f"@triton.heuristics says in {kernel.source_name}",
                actual=f"{name} = {variant.options[name]}, by default" if name in variant.options else "nothing",
                remedy=f'write it, as in `options: {{{name}: "8 if BLOCK_SIZE >= 1024 else 4"}}`',
            )


def _derivable(variant: Variant, closure: Closure, heuristics: Heuristics | None) -> frozenset[str]:
    """The constants that the variant leaves to the function's heuristics."""
    given = {*variant.constants, *variant.axes}
    open_ = {item.name for item in closure.parameters if item.is_constexpr and item.name not in given}
    return frozenset(open_.intersection(heuristics.names)) if heuristics is not None and open_ else frozenset()


def _constants(variant: Variant, closure: Closure, derivable: Collection[str]) -> dict[str, Value]:
    names = _constant_names(closure)
    for name in variant.constants:
        if name not in names:
            # A misspelt option of a block reads as a constant.
            meant = [*names, *OPTIONS] if name not in variant.kernel.constants else names
            raise ManifestError(
                f"{variant.id} sets the constant {name}, and {closure.function} has no parameter of that name",
                where=_constant_at(variant, name),
                expected=f"one of the parameters of {closure.function} at {closure.position}: {', '.join(names)}",
                actual=f"{name} = {written(variant.constants[name])}",
                remedy=did_you_mean(name, meant) or f"give {closure.function} a parameter `{name}: tl.constexpr`",
            )
    # A kernel may take the compiler's own num_warps as a constant: Triton hands an option to both.
    asked = [item.name for item in closure.parameters if item.is_constexpr and item.name in variant.options]
    values = {**{name: variant.options[name] for name in asked}, **variant.constants, **variant.axes}
    for parameter in closure.parameters:
        if parameter.name in derivable:
            continue
        if parameter.is_constexpr and parameter.name not in values and not parameter.has_default:
            raise ManifestError(
                f"{variant.id} gives no value to the constant {parameter.name}",
                where=variant.kernel.position,
                expected=f"a value for {parameter.name}: {parameter.annotation}, a parameter of {closure.function} "
                f"at {closure.position}",
                actual=_listed(f"{name} = {written(value)}" for name, value in values.items()),
                remedy=did_you_mean(parameter.name, values)
                or f"set {parameter.name} under `constants`, `axes` or `blocks`, or give it a default in the source",
            )
    for parameter in closure.factory_parameters:
        if parameter.name not in values and not parameter.has_default:
            raise ManifestError(
                f"{variant.id} gives no value to {parameter.name}, which {closure.factory} makes the kernel with",
                where=variant.kernel.position,
                expected=f"a value for {parameter.name}, a parameter of {closure.factory} in {closure.position.file}",
                actual=_listed(f"{name} = {written(value)}" for name, value in values.items()),
                remedy=did_you_mean(parameter.name, values.keys() - set(names))
                or f"set {parameter.name} under `constants` or `axes`",
            )
    return {name: values[name] for name in names if name in values}


def _own_axes(variant: Variant, closure: Closure) -> dict[str, Value]:
    """The axes that set no parameter. Raises ManifestError for one that nothing else uses: its variants are equal."""
    names = _constant_names(closure)
    found = {name: value for name, value in variant.axes.items() if name not in names}
    for name in found:
        if name not in used_names(variant.kernel):
            raise ManifestError(
                f"the axis {name} of {variant.kernel.key} changes nothing: {closure.function} has no parameter of "
                "that name, and no expression uses it",
                where=_at(variant, f"axes.{name}"),
                expected=f"one of the parameters of {closure.function} at {closure.position}: {', '.join(names)}",
                actual=name,
                remedy=did_you_mean(name, names) or "use it in an expression or in the signature, or remove it",
            )
    return found


def used_names(kernel: Kernel) -> frozenset[str]:
    """The names that the expressions of a launch and of options use, and the signature."""
    options = [*kernel.options.values(), *(value for block in kernel.blocks for value in block.options.values())]
    shapes = [each for part in (kernel.tensors, kernel.strides) for shape in part.values() for each in shape]
    values = [*options, *kernel.constants.values(), *shapes, *kernel.grid, kernel.select]
    expressions = [value for value in values if isinstance(value, Expression)]
    return placeholders(kernel.signature).union(*(expression.names for expression in expressions))


def _check_inputs(variant: Variant, closure: Closure | CudaSource, arguments: tuple[Argument, ...]) -> None:
    parameters = {parameter.name for parameter in closure.parameters} | {argument.name for argument in arguments}
    members = {member_name(argument.name): argument.name for argument in arguments}
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
        if member_name(name) in members:
            raise two_members(members[member_name(name)], name, member_name(name), _at(variant, "inputs"))


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
        for expression in variant.kernel.strides.get(name, ()):
            _check_names(variant, expression, f"a stride of {name}", arguments, known)


def _check_slices(variant: Variant, arguments: tuple[Argument, ...]) -> None:
    """What launches on slices are told: `outputs` are pointers; `any_values` integers, or pointers to such."""
    kernel = variant.kernel
    types = {**{argument.name: argument.type for argument in arguments}, **kernel.inputs}
    pointers = [name for name, type in types.items() if type.startswith("*")]
    integers = [name for name, type in types.items() if is_integer(type.removeprefix("*"))]
    for key, names, known, what in (
        ("outputs", kernel.outputs or (), pointers, "a pointer argument"),
        ("any_values", kernel.any_values, integers, "an integer, or a pointer to integers"),
    ):
        for name in names:
            if name not in known:
                raise ManifestError(
                    f"{key} of {variant.id} has {name}, which is not {what}",
                    where=_at(variant, key),
                    expected=f"names of {', '.join(known)}" if known else "nothing: the kernel takes none",
                    actual=f"{name}: {types[name]}" if name in types else name,
                    remedy=did_you_mean(name, known) or f"remove {name} from {key}",
                )


def _check_problems(variant: Variant, arguments: tuple[Argument, ...]) -> None:
    integers = [item.name for item in arguments if is_integer(item.type)]
    known = [*integers, *variant.kernel.inputs]
    for index, problem in enumerate(variant.kernel.problems):
        for name in problem:
            if name in known:
                continue
            found = next((item for item in arguments if item.name == name), None)
            raise ManifestError(
                f"problems of {variant.kernel.key} give a value to {name}, which is "
                + (f"{found.type}, no integer" if found else "neither an argument nor an input"),
                where=variant.kernel.positions.get(f"problems.{index}.{name}", _at(variant, "problems")),
                expected=f"one of {', '.join(known)}" if known else "nothing: the kernel takes no integers",
                actual=f"{name}: {problem[name]}",
                remedy=did_you_mean(name, known) or f"remove {name}",
            )


def _check_names(
    variant: Variant,
    expression: Expression,
    what: str,
    arguments: tuple[Argument, ...],
    fixed: Mapping[str, Value],
) -> None:
    """Every name must stand for an integer that is known when the kernel is launched."""
    integers = {item.name for item in arguments if is_integer(item.type)}
    numbers = {name for name, value in fixed.items() if isinstance(value, int)}
    known = [*(item.name for item in arguments if item.name in integers), *variant.kernel.inputs, *sorted(numbers)]
    for name in sorted(expression.names - set(known)):
        found = next((f"{item.name}: {item.type}, an argument" for item in arguments if item.name == name), None)
        if found is None and name in fixed:
            found = f"{name} = {written(fixed[name])}, {'an axis' if name in variant.axes else 'a constant'}"
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
