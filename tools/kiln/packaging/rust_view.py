"""Records of one variant -> what the templates of the Rust crate show of it: every name and text as Rust has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.facts import Facts, Parameter, Role
from kiln.errors import PackagingError, did_you_mean
from kiln.manifest.dtypes import DTYPES
from kiln.manifest.expression import Expression
from kiln.manifest.model import Kernel, Value
from kiln.packaging import rust_names, rust_text
from kiln.packaging.record import Record
from kiln.toolchain.targets import Kind

_KINDS: Mapping[Kind, str] = {"cubin": "Cubin", "ptx": "Ptx", "hsaco": "Hsaco"}
_ROLES: Mapping[Role, str] = {"user": "User", "global_scratch": "GlobalScratch", "profile_scratch": "ProfileScratch"}
_POINTER = "DevicePtr"


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a variant's `Args`."""

    source: str
    """the argument's name in the kernel's source, or the launch input's in the manifest"""
    name: str
    """the same as a Rust identifier"""
    type: str
    """Rust type"""
    dtype: str
    """`*fp16`, `i32`"""
    promise: int | None
    parameter: Parameter | None
    """the image's parameter; None for launch inputs and for arguments that are folded into the image"""
    shifted: bool
    """a folded argument comes before it, so that it does not lie where the image has it"""
    doc: str
    example: str
    """a value for the README"""


@dataclass(frozen=True, kw_only=True)
class Wide:
    """An unsigned 64-bit argument of an expression, which has to be checked before it becomes an i64."""

    name: str
    field: str
    local: str


@dataclass(frozen=True, kw_only=True)
class ImageParameter:
    """A parameter in an image's record."""

    name: str
    type: str
    role: str
    offset: int
    size: int
    promise: int | None


@dataclass(frozen=True, kw_only=True)
class ImageView:
    """One image of a variant."""

    id: str
    variant: str
    target: str
    static: str
    kind: str
    facts: Facts
    parameters: tuple[ImageParameter, ...]
    warps_requested: int
    stored: int
    """bytes of the file in the crate"""
    include: str
    """path of that file, relative to the variant's source file"""


@dataclass(frozen=True, kw_only=True)
class VariantView:
    """One variant, as its module shows it. Texts are as declared; the templates quote them."""

    id: str
    kernel: str
    group: str
    dtype: str
    block: str
    source: str
    function: str
    signature: str
    constants: tuple[tuple[str, str], ...]
    constants_text: str
    axes_text: str
    """the axes that set no constant; empty without them"""
    fields: tuple[Field, ...]
    has_pointer: bool
    grid: tuple[str, ...]
    grid_texts: tuple[str, ...]
    grid_text: str
    grid_wide: tuple[Wide, ...]
    select: str
    select_text: str | None
    select_wide: tuple[Wide, ...]
    images: tuple[ImageView, ...]


def view_variant(records: Sequence[Record]) -> VariantView:
    """One variant, of whose images `records` are all, in order.

    Raises PackagingError when the images disagree on where the arguments lie, when an image has another number of
    parameters than the kernel has arguments, and when an expression names what has no integer value.
    """
    variant = records[0].image.variant
    kernel = variant.kernel
    fields = _fields(records)
    grid_wide, grid = _expressions(kernel.grid, "grid", fields, records[0])
    select_wide, select = _expressions((kernel.select,) if kernel.select else (), "select", fields, records[0])
    constants = records[0].interface.constants
    return VariantView(
        id=variant.id,
        kernel=kernel.key,
        group=variant.group,
        dtype=variant.dtype,
        block=variant.block,
        source=kernel.source_name,
        function=kernel.function,
        signature=variant.signature.text,
        constants=tuple((name, _constant(name, value, records[0])) for name, value in constants.items()),
        constants_text=", ".join(rust_text.code(f"{name} = {value!r}") for name, value in constants.items()) or "none",
        axes_text=", ".join(rust_text.code(f"{name} = {value!r}") for name, value in records[0].interface.axes.items()),
        fields=fields,
        has_pointer=any(field.type == _POINTER for field in fields),
        grid=grid,
        grid_texts=tuple(extent.text for extent in kernel.grid),
        grid_text=f"[{', '.join(extent.text for extent in kernel.grid)}]",
        grid_wide=grid_wide,
        select=select[0] if select else "true",
        select_text=kernel.select.text if kernel.select else None,
        select_wide=select_wide,
        images=tuple(_image(record, fields) for record in records),
    )


def _constant(name: str, value: Value, record: Record) -> str:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise PackagingError(
            f"constant {name} of {record.image.variant.id} cannot be described in Rust",
            where=record.image.variant.kernel.position,
            expected="an integer that fits 64 bits with a sign",
            actual=str(value),
            remedy="write it as the negative number that has the same bits",
        )
    return rust_text.value(value)


def _fields(records: Sequence[Record]) -> tuple[Field, ...]:
    """The fields of `Args`: the kernel's arguments in order, then the launch inputs, exactly as the C package has them.

    A folded argument stays where it is declared, so that a promise does not change what a caller writes. What comes
    before it lies where the image has it; what comes behind is shifted by it.
    """
    record = records[0]
    kernel = record.image.variant.kernel
    layout = _user_parameters(record)
    for other in records[1:]:
        if _user_parameters(other) != layout:
            raise PackagingError(
                f"two images of {record.image.variant.id} lay out the same arguments in different ways, and one struct "
                "cannot serve both",
                where=kernel.position,
                expected=f"{_describe(layout)} ({record.image.id})",
                actual=f"{_describe(_user_parameters(other))} ({other.image.id})",
                remedy="give the targets kernels of their own",
            )

    arguments = record.interface.arguments
    passed = [argument for argument in arguments if argument.promise != 1]
    if len(passed) != len(layout):
        raise PackagingError(
            f"image {record.image.id} takes another number of parameters than its kernel has arguments",
            where=kernel.position,
            expected=f"{len(passed)}: {', '.join(argument.name for argument in passed) or 'none'}",
            actual=f"{len(layout)}: {_describe(layout)}",
            remedy="remove the image's file and build again",
        )
    values = dict(kernel.problems[0]) if kernel.problems else {}
    fields: list[Field] = []
    parameters = iter(layout)
    for argument in arguments:
        parameter = None if argument.promise == 1 else next(parameters)
        fields.append(_field(argument.name, argument.type, argument.promise, parameter, fields, kernel, values))
    for name, dtype in kernel.inputs.items():
        fields.append(_field(name, dtype, None, None, fields, kernel, values))
    return tuple(fields)


def _user_parameters(record: Record) -> list[Parameter]:
    return [parameter for parameter in record.facts.parameters if parameter.role == "user"]


def _describe(layout: Sequence[Parameter]) -> str:
    return ", ".join(f"{parameter.size} bytes at {parameter.offset}" for parameter in layout) or "no parameter"


def _field(
    name: str,
    dtype: str,
    promise: int | None,
    parameter: Parameter | None,
    before: Sequence[Field],
    kernel: Kernel,
    values: Mapping[str, int],
) -> Field:
    if any(field.source == name for field in before):
        raise PackagingError(
            f"{kernel.key} has two arguments or launch inputs named {name!r}",
            where=kernel.positions.get("inputs", kernel.position),
            remedy="rename the launch input",
        )
    if dtype.startswith("*"):
        rust_type, example = _POINTER, f"{_POINTER}(0x7000_0000_0000)"
        doc = f"Device address of {rust_text.code(dtype[1:])} elements"
        if name in kernel.tensors:
            doc += f" in the shape {rust_text.code('[' + ', '.join(axis.text for axis in kernel.tensors[name]) + ']')}"
    else:
        if dtype not in DTYPES:
            raise PackagingError(
                f"argument {name!r} of {kernel.key} has type {dtype!r}, which cannot be passed from Rust",
                where=kernel.positions.get("signature", kernel.position),
                expected=f"a pointer, or one of {', '.join(DTYPES)}",
                actual=dtype,
            )
        rust_type = DTYPES[dtype].rust
        example = _example(rust_type, 1 if promise == 1 else values.get(name, 1))
        bits = "" if rust_type[0] in "bf" or dtype[0] in "iu" else "The bits of an "
        doc = f"{bits}{rust_text.code(dtype)}"
        if parameter is None and promise != 1:
            doc += "; only the launch depends on it, and the kernel does not take it"
    if promise == 1:
        doc += "; must be 1, which is compiled in"
    elif promise is not None:
        doc += f"; must be a multiple of {promise}"
    return Field(
        source=name,
        name=rust_text.identifier(name, {field.name for field in before}),
        type=rust_type,
        dtype=dtype,
        promise=promise,
        parameter=parameter,
        shifted=any(field.promise == 1 for field in before),
        doc=f"{doc}.",
        example=example,
    )


def _example(rust_type: str, wanted: int) -> str:
    """A literal of the type: the wanted value where the type holds it."""
    if rust_type == "bool":
        return "true"
    if rust_type[0] == "f":
        return "1.0"
    bits = int(rust_type[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if rust_type[0] == "i" else (0, 2**bits)
    return str(wanted) if low <= wanted < high else "1"


def _expressions(
    expressions: Sequence[Expression], key: str, fields: Sequence[Field], record: Record
) -> tuple[tuple[Wide, ...], tuple[str, ...]]:
    """The expressions in Rust, over `self` and the constants; and the arguments that need a check before."""
    names: dict[str, str] = {
        name: f"{rust_text.number(int(value))}_i64"
        for name, value in record.interface.known.items()
        if isinstance(value, int)
    }
    wide: dict[str, Wide] = {}
    for field in fields:
        if field.type == "u64":
            wide[field.source] = Wide(name=field.source, field=field.name, local=f"wide_{len(wide)}")
            names[field.source] = wide[field.source].local
        elif field.type == "i64":
            names[field.source] = f"self.{field.name}"
        elif field.dtype[0] in "iu":
            names[field.source] = f"i64::from(self.{field.name})"
    used: set[str] = set()
    for expression in expressions:
        for unknown in sorted(expression.names - names.keys()):
            raise PackagingError(
                f"{key} of {record.image.variant.kernel.key} depends on {unknown!r}, an integer that no launch knows",
                where=expression.position,
                expected=f"an integer argument, launch input or constant: {', '.join(names) or 'there is none'}",
                actual=unknown,
                remedy=did_you_mean(unknown, names) or f"declare {unknown} under inputs",
            )
        used |= expression.names
    return (
        tuple(argument for name, argument in wide.items() if name in used),
        tuple(expression.to_rust(names, "crate::arithmetic::") for expression in expressions),
    )


def _image(record: Record, fields: Sequence[Field]) -> ImageView:
    image, facts = record.image, record.facts
    user = iter([field for field in fields if field.parameter is not None])
    parameters = []
    for parameter in facts.parameters:
        field = next(user) if parameter.role == "user" else None
        parameters.append(
            ImageParameter(
                name=field.source if field else parameter.role,
                type=field.type if field else _POINTER,
                role=_ROLES[parameter.role],
                offset=parameter.offset,
                size=parameter.size,
                promise=field.promise if field else None,
            )
        )
    return ImageView(
        id=image.id,
        variant=image.variant.id,
        target=image.target,
        static=rust_names.static(image.target),
        kind=_KINDS[facts.kind],
        facts=facts,
        parameters=tuple(parameters),
        warps_requested=int(image.variant.options.get("num_warps", facts.warps)),
        stored=facts.size + (facts.kind == "ptx"),
        include=f"../../{rust_names.image_file(image)}",
    )
