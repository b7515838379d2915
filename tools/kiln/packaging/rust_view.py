"""Records of one variant -> what the templates of the Rust crate show of it: every name and text as Rust has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.facts import Facts, Role
from kiln.errors import PackagingError
from kiln.manifest.expression import Expression
from kiln.manifest.model import Kernel, Value
from kiln.packaging import rust_names, rust_text
from kiln.packaging.arguments import ArgumentStruct, Member, argument_struct, image_parameters
from kiln.packaging.record import Record
from kiln.toolchain.targets import Kind

_KINDS: Mapping[Kind, str] = {"cubin": "Cubin", "ptx": "Ptx", "hsaco": "Hsaco"}
_ROLES: Mapping[Role, str] = {"user": "User", "global_scratch": "GlobalScratch", "profile_scratch": "ProfileScratch"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a variant's `Args`; offsets and sizes are bytes."""

    name: str
    type: str
    doc: str
    example: str
    """a value for the README"""
    offset: int
    size: int
    parameter: int | None
    """offset in the parameter buffer; None for what is not in it"""
    bytes: str
    """an expression for its bytes, little-endian as on every GPU"""


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
    buffer_bytes: int
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

    Raises PackagingError for images that `arguments.argument_struct` refuses, when an expression names what has no
    integer value, and for a constant that Rust cannot describe.
    """
    variant = records[0].image.variant
    kernel = variant.kernel
    arguments = argument_struct(records)
    names = _field_names(arguments.members)
    fields = tuple(_field(member, names[member.source], kernel) for member in arguments.members)
    grid_wide, grid = _expressions(kernel.grid, "grid", arguments, names, kernel)
    select_wide, select = _expressions([kernel.select] if kernel.select else [], "select", arguments, names, kernel)
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
        constants=tuple((name, _constant(name, value, records[0])) for name, value in records[0].constants.items()),
        constants_text=", ".join(rust_text.code(f"{name} = {value!r}") for name, value in constants.items()) or "none",
        axes_text=", ".join(rust_text.code(f"{name} = {value!r}") for name, value in records[0].interface.axes.items()),
        fields=fields,
        has_pointer=any(member.is_pointer for member in arguments.members),
        buffer_bytes=arguments.buffer_bytes,
        grid=grid,
        grid_texts=tuple(extent.text for extent in kernel.grid),
        grid_text=f"[{', '.join(extent.text for extent in kernel.grid)}]",
        grid_wide=grid_wide,
        select=select[0] if select else "true",
        select_text=kernel.select.text if kernel.select else None,
        select_wide=select_wide,
        images=tuple(_image(record) for record in records),
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


def _field_names(members: Sequence[Member]) -> dict[str, str]:
    """Each member's own name -> the same as a Rust identifier, no two of them alike."""
    names: dict[str, str] = {}
    for member in members:
        names[member.source] = rust_text.identifier(member.source, set(names.values()))
    return names


def _field(member: Member, name: str, kernel: Kernel) -> Field:
    parameter = member.parameter.offset if member.parameter else None
    doc = _meaning(member, kernel)
    if member.is_input:
        doc += "; only the launch depends on it, and the kernel does not take it"
    if member.is_folded:
        doc += "; must be 1, which is compiled in: no image has it as a parameter"
    elif member.promise is not None:
        doc += f"; must be a multiple of {member.promise}"
    if member.is_shifted:
        doc += f"; at byte {parameter} of the parameter buffer"
    rust_type = rust_text.rust_type(member.type)
    if member.is_pointer:
        example, data = f"{rust_type}(0x7000_0000_0000)", f"self.{name}.0.to_le_bytes()"
    else:
        problem = dict(kernel.problems[0]) if kernel.problems else {}
        example = _example(rust_type, 1 if member.is_folded else problem.get(member.source, 1))
        data = f"[u8::from(self.{name})]" if rust_type == "bool" else f"self.{name}.to_le_bytes()"
    return Field(
        name=name,
        type=rust_type,
        doc=f"{doc}.",
        example=example,
        offset=member.offset,
        size=member.size,
        parameter=parameter,
        bytes=data,
    )


def _meaning(member: Member, kernel: Kernel) -> str:
    """What a value of the member is, in Markdown."""
    if not member.is_pointer:
        rust_type = rust_text.rust_type(member.type)
        says_it = rust_type[0] in "bf" or member.type[0] in "iu"
        return f"{'' if says_it else 'The bits of an '}{rust_text.code(member.type)}"
    meaning = f"Device address of {rust_text.code(member.type[1:])} elements"
    if member.source in kernel.tensors:
        shape = ", ".join(axis.text for axis in kernel.tensors[member.source])
        meaning += f" in the shape {rust_text.code(f'[{shape}]')}"
    return meaning


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
    expressions: Sequence[Expression], key: str, arguments: ArgumentStruct, fields: Mapping[str, str], kernel: Kernel
) -> tuple[tuple[Wide, ...], tuple[str, ...]]:
    """The expressions in Rust, over `self` and the constants; and the arguments that need a check before."""
    wide = [
        Wide(name=member.source, field=fields[member.source], local=f"wide_{index}")
        for index, member in enumerate(arguments.wide(expressions))
    ]
    values = {name: f"{rust_text.number(value)}_i64" for name, value in arguments.constants.items()}
    for member in arguments.members:
        if member.is_integer:
            field = f"self.{fields[member.source]}"
            values[member.source] = field if member.type == "i64" else f"i64::from({field})"
    values |= {argument.name: argument.local for argument in wide}
    for expression in expressions:
        arguments.check_names(expression, key, kernel)
    return tuple(wide), tuple(expression.to_rust(values, "crate::arithmetic::") for expression in expressions)


def _image(record: Record) -> ImageView:
    image, facts = record.image, record.facts
    return ImageView(
        id=image.id,
        variant=image.variant.id,
        target=image.target,
        static=rust_names.static(image.target),
        kind=_KINDS[facts.kind],
        facts=facts,
        parameters=tuple(
            ImageParameter(
                name=argument.name if argument else parameter.role,
                type=rust_text.rust_type(argument.type) if argument else rust_text.POINTER,
                role=_ROLES[parameter.role],
                offset=parameter.offset,
                size=parameter.size,
                promise=argument.promise if argument else None,
            )
            for argument, parameter in image_parameters(record)
        ),
        warps_requested=int(image.variant.options.get("num_warps", facts.warps)),
        stored=facts.size + (facts.kind == "ptx"),
        include=f"../../{rust_names.image_file(image)}",
    )
