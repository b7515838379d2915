"""bind for CUDA C++: joins a variant's signature with its kernel's parameter names into the variant's Interface."""

from __future__ import annotations

from kiln.closure.arguments import name_arguments
from kiln.closure.bind import check_launch, used_names
from kiln.closure.cuda_source import CudaSource
from kiln.errors import ManifestError, Position
from kiln.manifest.constants import FunctionConstant, written
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Interface
from kiln.manifest.model import Kernel, Variant
from kiln.manifest.pattern import placeholders


def bind_cuda(variant: Variant, source: CudaSource) -> Interface:
    """Give each parameter of the kernel its type from the signature; constants and axes are for expressions.

    Raises ManifestError when they do not fit each other, and for what CUDA C++ has no form for: tuples, arguments that
    are folded away, functions as constants.
    """
    _check_signature(variant)
    arguments = name_arguments(variant, source, ())
    names = {argument.name for argument in arguments}
    for name, value in {**variant.axes, **variant.constants}.items():
        if name in names:
            raise ManifestError(
                f"{name} is a constant of {variant.id}, and an argument of {source.function}",
                where=_at(variant.kernel, name),
                expected="constants that no argument is called like: expressions know both by name",
                actual=f"{name} = {written(value)}, and the parameters {', '.join(names)} at {source.position}",
                remedy="rename the constant",
            )
        if isinstance(value, FunctionConstant):
            raise ManifestError(
                f"the constant {name} of {variant.id} is a function of Triton's",
                where=_at(variant.kernel, name),
                expected="a number, a truth value, a text or {dtype: ...}",
                actual=written(value),
                remedy="write the function's name as a text, and use it in `function` or in `defines`",
            )
    _check_axes(variant)
    check_launch(variant, source, arguments, {**variant.constants, **variant.axes})
    return Interface(arguments=arguments, constants=variant.constants, axes=variant.axes)


def _check_signature(variant: Variant) -> None:
    for item in variant.signature.items:
        what, remedy = None, None
        if len(item.path) > 1:
            what, remedy = "has a tuple", "write its members as arguments of their own"
        elif item.promise == 1:
            what = "promises a value of 1, which folds an argument away"
            remedy = "drop the promise; CUDA C++ gets constants as template arguments or `defines`"
        if what is not None:
            raise ManifestError(
                f"the signature of {variant.id} {what}: that is for Triton",
                where=variant.signature.position,
                expected="types, and :16 for what is divisible by 16",
                actual=variant.signature.text,
                remedy=remedy,
            )


def _check_axes(variant: Variant) -> None:
    """Refuse an axis that nothing uses: its variants would be equal."""
    kernel = variant.kernel
    used = used_names(kernel) | placeholders(kernel.function) | cuda_names(kernel)
    for name in variant.axes:
        if name not in used:
            raise ManifestError(
                f"the axis {name} of {kernel.key} changes nothing: neither `function` nor an expression uses it",
                where=_at(kernel, name),
                expected=f"a use of it, such as `function: name<{{{name}}}>`",
                actual=f"function: {kernel.function}",
                remedy="use it, or remove it",
            )


def cuda_names(kernel: Kernel) -> frozenset[str]:
    """The names that the expressions of CUDA C++'s own keys use."""
    if kernel.cuda is None:
        return frozenset()
    values = [kernel.cuda.threads, kernel.cuda.shared, *kernel.cuda.defines.values()]
    expressions = [value for value in values if isinstance(value, Expression)]
    return frozenset().union(*(expression.names for expression in expressions))


def _at(kernel: Kernel, name: str) -> Position:
    """The place of a constant or an axis in kernels.yaml."""
    places = (f"axes.{name}", f"constants.{name}")
    found = [kernel.positions[place] for place in places if place in kernel.positions]
    found += [block.positions[name] for block in kernel.blocks if name in block.positions]
    return found[0] if found else kernel.positions.get("blocks", kernel.position)
