"""What the callers of one variant pass, and where its images have it. Each language names it and renders it.

A variant has one argument struct in every language: the kernel's arguments in order, then the launch inputs, each at
its natural alignment. An argument that is promised to be 1 is folded into the images and keeps its place in the struct
all the same, so that a promise does not change what a caller writes, and variants that differ by promises alone share
their struct. What follows a folded argument can lie elsewhere than the images have it: such a struct is no parameter
buffer, and arguments are packed one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.facts import Parameter
from kiln.errors import PackagingError, did_you_mean
from kiln.manifest.constants import Value, same, written
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE, is_integer
from kiln.manifest.expression import Expression
from kiln.manifest.interface import Argument
from kiln.manifest.model import Kernel
from kiln.manifest.names import member_name
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
    def name(self) -> str:
        """in the struct, in every language: `do_` for do, which is a keyword of some"""
        return member_name(self.source)

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def is_integer(self) -> bool:
        """Whether expressions can compute with it."""
        return is_integer(self.type)

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

    @property
    def size(self) -> int:
        """Bytes of the struct; one without members has one, since C has no empty struct."""
        align = max((member.size for member in self.members), default=1)
        end = max((member.offset + member.size for member in self.members), default=1)
        return _aligned(end, align)

    @property
    def promised(self) -> tuple[Member, ...]:
        """The arguments of which something is promised, in order."""
        return tuple(member for member in self.members if member.promise is not None)

    @property
    def promised_text(self) -> str:
        """What is promised, in words: `x % 16 == 0, n == 1`; empty for nothing."""
        said = [f"{item.source} == 1" if item.promise == 1 else f"{item.source} % 16 == 0" for item in self.promised]
        return ", ".join(said)

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


@dataclass(frozen=True, kw_only=True)
class SharedStruct:
    """What the callers of some variants pass that differ by promises alone."""

    base: str
    """their name without promises"""
    variants: Mapping[str, ArgumentStruct]
    """variant -> the struct as its images have it, in order of preference; offsets, sizes and types are the same"""
    records: Mapping[str, tuple[Record, ...]]
    """variant -> its images"""

    @property
    def first(self) -> ArgumentStruct:
        """The struct, for what all variants have alike."""
        return next(iter(self.variants.values()))

    @property
    def kernel(self) -> Kernel:
        """The kernel that all are variants of."""
        return self.first_record.image.variant.kernel

    @property
    def first_record(self) -> Record:
        """An image of the first variant."""
        return next(iter(self.records.values()))[0]

    @property
    def constants(self) -> dict[str, Value]:
        """What is compiled into all of the variants alike."""
        others = [images[0].interface.constants for images in self.records.values()]
        own = self.first_record.interface.constants
        return {name: value for name, value in own.items() if all(same(value, other.get(name)) for other in others)}

    def own_constants(self, variant: str) -> dict[str, Value]:
        """What is compiled into one of the variants, and not into all alike: it follows from what is promised."""
        own = self.records[variant][0].interface.constants
        return {name: value for name, value in own.items() if name not in self.constants}

    def promises(self, source: str) -> dict[int | None, list[str]]:
        """What the variants are promised of an argument: 16, 1 or None -> the variants."""
        found: dict[int | None, list[str]] = {}
        for variant, struct in self.variants.items():
            (promise,) = (member.promise for member in struct.members if member.source == source)
            found.setdefault(promise, []).append(variant)
        return found

    def remarks(self, source: str) -> list[str]:
        """What a caller has to know of an argument: what must hold, and where a parameter buffer has it otherwise."""
        remarks: list[str] = []
        first = next(member for member in self.first.members if member.source == source)
        if first.name != source:
            remarks.append(f"called {source} in the kernel and in records")
        for promise, variants in self.promises(source).items():
            whose = "" if len(variants) == len(self.variants) else f" for {', '.join(variants)}"
            if promise == 1:
                remarks.append(
                    f"must be 1{whose}, which is compiled in: no image{whose and ' there'} has it as a parameter"
                )
            elif promise is not None:
                what = "address" if first.is_pointer else "value"
                remarks.append(f"{what} must be a multiple of {promise}{whose}")
        for variant, struct in self.variants.items():
            (member,) = (member for member in struct.members if member.source == source)
            if member.is_shifted and member.parameter is not None:
                whose = "" if len(self.variants) == 1 else f" of {variant}"
                remarks.append(f"at {member.parameter.offset} in the parameter buffer{whose}")
        return remarks


def shared_structs(records: Sequence[Record]) -> tuple[SharedStruct, ...]:
    """The argument structs of some images, in order.

    Raises PackagingError as `argument_struct` does, and when grid or selection of variants that share a struct would
    depend on what is promised.
    """
    bases: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        variant = record.image.variant
        bases.setdefault(variant.base, {}).setdefault(variant.id, []).append(record)
    found = tuple(
        SharedStruct(
            base=base,
            variants={variant: argument_struct(images) for variant, images in variants.items()},
            records={variant: tuple(images) for variant, images in variants.items()},
        )
        for base, variants in bases.items()
    )
    for shared in found:
        _check_launch(shared)
    return found


def _check_launch(shared: SharedStruct) -> None:
    """Grid and selection are computed before it is known which variant is launched: all must give the same."""
    kernel = shared.kernel
    for expression in (*kernel.grid, *([kernel.select] if kernel.select else [])):
        for variant in shared.variants:
            for name, value in shared.own_constants(variant).items():
                if name in expression.names:
                    raise PackagingError(
                        f"the launch of {shared.base} depends on {name}, which follows from what is promised",
                        where=expression.position,
                        expected="grid and select over what is the same whatever is promised",
                        actual=f"{expression.text}, with {name} = {written(value)} for {variant}",
                        remedy=f"give {name} a value under `constants` or `axes`, or leave it out of the expression",
                    )


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
        if any(member.name == member_name(source) for member in members):
            raise PackagingError(
                f"{kernel.key} has two arguments or launch inputs that structs would call {member_name(source)!a}",
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
