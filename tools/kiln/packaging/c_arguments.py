"""The argument struct of a variant in C, laid out as its images lay out their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.facts import Parameter
from kiln.errors import PackagingError
from kiln.manifest.dtypes import DTYPES, POINTER_SIZE
from kiln.manifest.interface import Argument
from kiln.packaging.c_text import c_integer, field_name
from kiln.packaging.record import Record

_REBUILD = "delete the image and build again; if it happens again, the check that let the image pass is at fault"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One member of an argument struct; offset and size are bytes."""

    source: str
    """the argument's or launch input's own name"""
    name: str
    """the same as a C identifier"""
    type: str
    """`*fp16`, `i32`"""
    c_type: str
    """`void *`, `int32_t`"""
    promise: int | None
    is_input: bool
    """a launch input: the grid or the selection needs it, and the kernel never sees it"""
    offset: int
    size: int

    @property
    def is_integer(self) -> bool:
        """Whether expressions can compute with it; i1 is a truth value."""
        return self.type[0] in "iu" and self.type != "i1"


def c_type(type: str, where: str) -> tuple[str, int]:
    """`*fp16` -> ("void *", 8), `i32` -> ("int32_t", 4). Raises PackagingError for a type that C has no word for."""
    if type.startswith("*"):
        return "void *", POINTER_SIZE
    if type not in DTYPES:
        raise PackagingError(
            f"an argument of type {type!a} cannot be passed from C",
            where=where,
            expected=f"a pointer, or one of {', '.join(DTYPES)}",
            actual=ascii(type),
            remedy="pass a pointer and integers instead",
        )
    return DTYPES[type].c, DTYPES[type].size


def image_parameters(record: Record) -> list[tuple[Argument, Parameter]]:
    """Each argument that the image takes, with its parameter; an argument that is promised to be 1 is folded away.

    Raises PackagingError when the image has other parameters than the signature asks for.
    """
    passed = [argument for argument in record.interface.arguments if argument.promise != 1]
    found = [parameter for parameter in record.facts.parameters if parameter.role == "user"]
    sizes = [c_type(argument.type, record.image.id)[1] for argument in passed]
    if sizes != [parameter.size for parameter in found]:
        raise PackagingError(
            "the image's parameters are not those of its signature",
            where=record.image.id,
            expected=", ".join(
                f"{argument.name} of {size} bytes" for argument, size in zip(passed, sizes, strict=True)
            ),
            actual=", ".join(f"{parameter.size} bytes at {parameter.offset}" for parameter in found) or "none",
            remedy=_REBUILD,
        )
    return list(zip(passed, found, strict=True))


def argument_struct(records: Sequence[Record]) -> tuple[Field, ...]:
    """The members of one variant's argument struct, from the records of its images (one at least).

    They are the kernel's arguments in order, then the launch inputs; a folded argument stays, so that a promise does
    not change what a caller writes. As long as nothing before it is folded, a member lies where the image has its
    parameter. Raises PackagingError when the images lay the parameters out in different ways or not as C does.
    """
    first = records[0]
    parameters = _agreed_parameters(records)
    where = first.image.id
    members = [(item.name, item.type, item.promise, False) for item in first.interface.arguments]
    members += [(name, dtype, None, True) for name, dtype in first.image.variant.kernel.inputs.items()]

    fields: list[Field] = []
    end = 0
    natural = 0
    for source, type, promise, is_input in members:
        word, size = c_type(type, where)
        end = _aligned(end, size)
        fields.append(
            Field(
                source=source,
                name=field_name(source, where),
                type=type,
                c_type=word,
                promise=promise,
                is_input=is_input,
                offset=end,
                size=size,
            )
        )
        end += size
        if not is_input and promise != 1:
            natural = _aligned(natural, size)
            if parameters[source].offset != natural:
                raise PackagingError(
                    f"the image has argument {source!a} where no C struct has it",
                    where=where,
                    expected=f"offset {natural}",
                    actual=f"offset {parameters[source].offset}",
                    remedy=_REBUILD,
                )
            natural += size
    _refuse_equal_names(fields, where)
    return tuple(fields)


def expression_names(fields: Sequence[Field], record: Record) -> Mapping[str, str]:
    """What each name of a grid or select expression is in C, as an int64_t: members of `args`, and literals."""
    names = {field.source: f"(int64_t)args->{field.name}" for field in fields if field.is_integer}
    for name, value in record.interface.known.items():
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            names[name] = c_integer(int(value))
    return names


def _agreed_parameters(records: Sequence[Record]) -> Mapping[str, Parameter]:
    first = records[0]
    expected = image_parameters(first)
    for other in records[1:]:
        found = image_parameters(other)
        if found != expected:
            raise PackagingError(
                "two images of one variant lay out its arguments in different ways, and one C struct serves both",
                where=first.image.variant.id,
                expected=f"{_layout(expected)}, as in {first.image.id}",
                actual=f"{_layout(found)}, in {other.image.id}",
                remedy="give the targets variants of their own, as kernels with different names",
            )
    return {argument.name: parameter for argument, parameter in expected}


def _layout(parameters: Sequence[tuple[Argument, Parameter]]) -> str:
    shown = (f"{argument.name} at {parameter.offset} ({parameter.size} bytes)" for argument, parameter in parameters)
    return ", ".join(shown) or "no arguments"


def _refuse_equal_names(fields: Sequence[Field], where: str) -> None:
    seen: dict[str, Field] = {}
    for field in fields:
        if field.name in seen:
            raise PackagingError(
                f"two members of the argument struct are {field.name!a} in C",
                where=where,
                expected="arguments and launch inputs with names of their own",
                actual=f"{_origin(seen[field.name])} and {_origin(field)}",
                remedy="rename one of them in the kernel, or under `inputs` in kernels.yaml",
            )
        seen[field.name] = field


def _origin(field: Field) -> str:
    return f"{'launch input' if field.is_input else 'argument'} {field.source!a}"


def _aligned(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment
