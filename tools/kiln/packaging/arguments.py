"""What the callers of one variant pass, and where its images have it. Each language names it and renders it.

A variant has one argument struct in every language: the kernel's arguments in order, then the launch inputs, each at
its natural alignment. An argument that is promised to be 1 is folded into the images and keeps its place in the struct
all the same, so that a promise does not change what a caller writes. What follows it can lie elsewhere than the images
have it: such a struct is no parameter buffer, and arguments are packed one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.facts import Parameter
from kiln.errors import PackagingError, did_you_mean
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Argument
from kiln.manifest.model import Kernel
from kiln.packaging.record import Record

_REBUILD = "delete the image and build again; if it happens again, the check that let the image pass is at fault"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member of a variant's argument struct; offsets and sizes are bytes."""

    source: str
    """the argument's name in the kernel's source, or the launch input's in kernels.yaml"""
    type: str
    """`*fp16`, `i32`"""
    promise: int | None
    is_input: bool
    """a launch input: the grid or the selection needs it, and the kernel never sees it"""
    offset: int
    """in the struct"""
    size: int
    parameter: Parameter | None
    """what it is in every image of the variant; None for launch inputs and for arguments that are folded"""

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def is_integer(self) -> bool:
        """Whether expressions can compute with it; i1 is a truth value."""
        return self.type[0] in "iu" and self.type != "i1"

    @property
    def is_folded(self) -> bool:
        return self.promise == 1

    @property
    def is_shifted(self) -> bool:
        """Whether the images have it elsewhere than the struct does, for a folded argument comes before it."""
        return self.parameter is not None and self.parameter.offset != self.offset


@dataclass(frozen=True, kw_only=True)
class ArgumentStruct:
    """What a variant's callers pass, for all of its images."""

    members: tuple[Member, ...]
    constants: Mapping[str, int]
    """the compiled-in integers that expressions can name; a truth value is 0 or 1"""
    buffer_bytes: int
    """size of the largest parameter buffer among the images, hidden parameters included"""

    def check_names(self, expression: Expression, key: str, kernel: Kernel) -> None:
        """Raise PackagingError when an expression of `kernel`, under its key `key`, needs what no launch knows."""
        known = [*(member.source for member in self.members if member.is_integer), *self.constants]
        for unknown in sorted(expression.names - set(known)):
            raise PackagingError(
                f"{key} of {kernel.key} depends on {unknown!a}, an integer that no launch knows",
                where=expression.position,
                expected=f"an integer argument, launch input or constant: {', '.join(known) or 'there is none'}",
                actual=expression.text,
                remedy=did_you_mean(unknown, known) or f"declare {unknown} under inputs",
            )

    def wide(self, expressions: Iterable[Expression | None]) -> tuple[Member, ...]:
        """The unsigned 64-bit members that some expressions use: whether they fit an int64 is known at launch only."""
        used = frozenset[str]().union(*(expression.names for expression in expressions if expression))
        return tuple(member for member in self.members if member.type == "u64" and member.source in used)


def argument_struct(records: Sequence[Record]) -> ArgumentStruct:
    """The argument struct of one variant, of whose images `records` are all.

    Raises PackagingError for an image that `image_parameters` refuses, and when two members share a name.
    """
    first = records[0]
    kernel = first.image.variant.kernel
    # Each image is held against the signature, so all of them have the same parameters.
    layouts = [image_parameters(record) for record in records]
    parameters = {argument.name: parameter for argument, parameter in layouts[0] if argument is not None}
    declared = [(item.name, item.type, item.promise, False) for item in first.interface.arguments]
    declared += [(name, type, None, True) for name, type in kernel.inputs.items()]

    members: list[Member] = []
    end = 0
    for source, type, promise, is_input in declared:
        if any(member.source == source for member in members):
            raise PackagingError(
                f"{kernel.key} has two arguments or launch inputs named {source!a}",
                where=kernel.positions.get("inputs", kernel.position),
                remedy="rename the launch input",
            )
        size = _size(type, kernel)
        offset = _aligned(end, size)
        end = offset + size
        members.append(
            Member(
                source=source,
                type=type,
                promise=promise,
                is_input=is_input,
                offset=offset,
                size=size,
                parameter=None if is_input else parameters.get(source),
            )
        )
    return ArgumentStruct(
        members=tuple(members),
        constants={
            name: int(value)
            for name, value in first.interface.known.items()
            if isinstance(value, int) and -(2**63) <= value < 2**63
        },
        buffer_bytes=max(record.facts.parameter_bytes for record in records),
    )


def image_parameters(record: Record) -> list[tuple[Argument | None, Parameter]]:
    """Every parameter of an image in order, with the argument that it is; None for the hidden ones.

    Raises PackagingError for an argument of a type that cannot be passed, and when the image does not have exactly the
    parameters that its signature asks for, one after the other at their natural alignment.
    """
    kernel = record.image.variant.kernel
    passed = [argument for argument in record.interface.arguments if argument.promise != 1]
    sizes = [_size(argument.type, kernel) for argument in passed]
    user = [parameter for parameter in record.facts.parameters if parameter.role == "user"]
    if sizes != [parameter.size for parameter in user]:
        raise PackagingError(
            "the image's parameters are not those of its signature",
            where=record.image.id,
            expected=", ".join(f"{item.name} of {size} bytes" for item, size in zip(passed, sizes, strict=True))
            or "none",
            actual=_layout(user),
            remedy=_REBUILD,
        )
    end = 0
    for argument, parameter in zip(passed, user, strict=True):
        natural = _aligned(end, parameter.size)
        end = natural + parameter.size
        if parameter.offset != natural:
            raise PackagingError(
                f"the image has argument {argument.name!a} where no struct has it",
                where=record.image.id,
                expected=f"offset {natural}",
                actual=f"offset {parameter.offset}",
                remedy=_REBUILD,
            )
    arguments = iter(passed)
    return [(next(arguments) if item.role == "user" else None, item) for item in record.facts.parameters]


def _size(type: str, kernel: Kernel) -> int:
    """Bytes, and alignment, of an argument."""
    if type.startswith("*"):
        return POINTER_SIZE
    if type not in DTYPES:
        raise PackagingError(
            f"{kernel.key} has an argument of type {type!a}, which no caller can pass",
            where=kernel.positions.get("signature", kernel.position),
            expected=f"a pointer, or one of {', '.join(DTYPES)}",
            actual=ascii(type),
            remedy="pass a pointer and integers instead",
        )
    return DTYPES[type].size


def _layout(parameters: Iterable[Parameter]) -> str:
    return ", ".join(f"{parameter.size} bytes at {parameter.offset}" for parameter in parameters) or "no parameters"


def _aligned(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment
