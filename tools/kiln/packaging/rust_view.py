"""Records of one variant -> what the templates of the Rust crate show of it: every name and text as Rust has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kiln.binaries.facts import Facts, Role
from kiln.errors import PackagingError
from kiln.manifest.constants import Value, described
from kiln.manifest.expression import Expression
from kiln.manifest.model import Kernel
from kiln.packaging import rust_names, rust_text
from kiln.packaging.arguments import ArgumentStruct, Member, SharedStruct, image_parameters, shared_structs
from kiln.packaging.record import Record
from kiln.toolchain.targets import Kind

_KINDS: Mapping[Kind, str] = {"cubin": "Cubin", "ptx": "Ptx", "hsaco": "Hsaco"}
_ROLES: Mapping[Role, str] = {"user": "User", "global_scratch": "GlobalScratch", "profile_scratch": "ProfileScratch"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of an `Args`; offsets and sizes are bytes."""

    name: str
    type: str
    doc: str
    example: str
    """a value for the README"""
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Packed:
    """An argument in a variant's parameter buffer; offset and end are bytes."""

    offset: int
    end: int
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
    base: str
    """the module that has its `Args`: its own, or that of all variants that differ from it by promises alone"""
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
    promises_text: str
    """what is promised of the arguments; empty for nothing"""
    holds: str
    """the condition of the promises over `self`; empty for none"""
    packed: tuple[Packed, ...]
    buffer_bytes: int
    images: tuple[ImageView, ...]


@dataclass(frozen=True, kw_only=True)
class StructView:
    """What variants share that differ by promises alone: their `Args`."""

    base: str
    is_variant: bool
    """one of the variants has the name of the base, and its module has the `Args`"""
    fields: tuple[Field, ...]
    has_pointer: bool
    grid: tuple[str, ...]
    grid_texts: tuple[str, ...]
    grid_text: str
    grid_wide: tuple[Wide, ...]
    select: str
    select_text: str | None
    select_wide: tuple[Wide, ...]
    variants: tuple[VariantView, ...]


def view_structs(records: Sequence[Record]) -> tuple[StructView, ...]:
    """All variants, grouped by what they share, in order; `records` are all of their images.

    Raises PackagingError for images that `arguments.argument_struct` refuses, when an expression names what has no
    integer value, and for a constant that Rust cannot describe.
    """
    return tuple(_struct(shared) for shared in shared_structs(records))


def _struct(shared: SharedStruct) -> StructView:
    kernel, arguments = shared.kernel, shared.first
    fields = tuple(_field(member, shared) for member in arguments.members)
    grid_wide, grid = _expressions(kernel.grid, "grid", arguments, kernel)
    select_wide, select = _expressions([kernel.select] if kernel.select else [], "select", arguments, kernel)
    return StructView(
        base=shared.base,
        is_variant=shared.base in shared.variants,
        fields=fields,
        has_pointer=any(member.is_pointer for member in arguments.members),
        grid=grid,
        grid_texts=tuple(extent.text for extent in kernel.grid),
        grid_text=f"[{', '.join(extent.text for extent in kernel.grid)}]",
        grid_wide=grid_wide,
        select=select[0] if select else "true",
        select_text=kernel.select.text if kernel.select else None,
        select_wide=select_wide,
        variants=tuple(_variant(shared, variant) for variant in shared.variants),
    )


def _variant(shared: SharedStruct, name: str) -> VariantView:
    struct, records = shared.variants[name], shared.records[name]
    variant, interface = records[0].image.variant, records[0].interface
    kernel = variant.kernel
    return VariantView(
        id=name,
        base=shared.base,
        kernel=kernel.key,
        group=variant.group,
        dtype=variant.dtype,
        block=variant.block,
        source=kernel.source_name,
        function=kernel.function,
        signature=variant.signature.text,
        constants=tuple((name, _constant(name, value, records[0])) for name, value in records[0].constants.items()),
        constants_text=_values(interface.constants) or "none",
        axes_text=_values(interface.axes),
        promises_text=struct.promised_text,
        holds=" && ".join(_holds(member) for member in struct.promised),
        packed=tuple(
            Packed(
                offset=member.parameter.offset,
                end=member.parameter.offset + member.size,
                bytes=_bytes(member),
            )
            for member in struct.members
            if member.parameter is not None
        ),
        buffer_bytes=struct.buffer_bytes,
        images=tuple(_image(record) for record in records),
    )


def _values(values: Mapping[str, Value]) -> str:
    """Names and values, in Markdown."""
    shown = {name: repr(value) if isinstance(value, str) else described(value) for name, value in values.items()}
    return ", ".join(rust_text.code(f"{name} = {text}") for name, text in shown.items())


def _holds(member: Member) -> str:
    """The condition that a member's promise holds."""
    value = f"self.{member.name}.0" if member.is_pointer else f"self.{member.name}"
    return f"{value} == 1" if member.promise == 1 else f"{value} % {member.promise} == 0"


def _bytes(member: Member) -> str:
    value = f"args.{member.name}"
    if member.is_pointer:
        return f"{value}.0.to_le_bytes()"
    return f"[u8::from({value})]" if rust_text.rust_type(member.type) == "bool" else f"{value}.to_le_bytes()"


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


def _field(member: Member, shared: SharedStruct) -> Field:
    kernel = shared.kernel
    doc = _meaning(member, kernel)
    if member.is_input:
        doc += "; only the launch depends on it, and the kernel does not take it"
    doc = "; ".join([doc, *shared.remarks(member.source)])
    rust_type = rust_text.rust_type(member.type)
    if member.is_pointer:
        example = f"{rust_type}(0x7000_0000_0000)"
    else:
        problem = dict(kernel.problems[0]) if kernel.problems else {}
        example = _example(rust_type, _fitting(problem.get(member.source, 1), shared.promises(member.source)))
    return Field(
        name=member.name, type=rust_type, doc=f"{doc}.", example=example, offset=member.offset, size=member.size
    )


def _fitting(wanted: int, promises: Collection[int | None]) -> int:
    """A value for the README that keeps the promise that every variant has."""
    if None in promises:
        return wanted
    return 1 if 1 in promises else wanted if wanted % 16 == 0 else 16


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
    expressions: Sequence[Expression], key: str, arguments: ArgumentStruct, kernel: Kernel
) -> tuple[tuple[Wide, ...], tuple[str, ...]]:
    """The expressions in Rust, over `self` and the constants; and the arguments that need a check before."""
    wide = [
        Wide(name=member.source, field=member.name, local=f"wide_{index}")
        for index, member in enumerate(arguments.wide(expressions))
    ]
    values = {name: f"{rust_text.number(value)}_i64" for name, value in arguments.constants.items()}
    for member in arguments.members:
        if member.is_integer:
            field = f"self.{member.name}"
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
