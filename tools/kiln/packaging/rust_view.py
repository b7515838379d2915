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
from kiln.packaging.rust_slices import SlicesView, view_slices
from kiln.toolchain.targets import Kind

_KINDS: Mapping[Kind, str] = {"cubin": "Cubin", "ptx": "Ptx", "hsaco": "Hsaco"}
_ROLES: Mapping[Role, str] = {"user": "User", "global_scratch": "GlobalScratch", "profile_scratch": "ProfileScratch"}


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of an `Args`; offsets and sizes are bytes."""

    name: str
    type: str
    """with paths from the crate's root"""
    doc: str
    is_pointer: bool
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
class Promise:
    """An argument of which something is promised."""

    breaks: str
    """the condition that it does not hold, over `args`"""
    broken: str
    """a call that makes a `Broken` of it"""


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
class ArgumentView:
    """An argument in a variant's record; offset and size are bytes."""

    name: str
    type: str
    offset: int
    size: int
    promise: int | None
    is_input: bool


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
    entries: tuple[str, ...]
    """what its images call the kernel, each name once"""
    has_lines: bool
    signature: str
    constants: tuple[tuple[str, str], ...]
    constants_text: str
    axes_text: str
    """the axes that set no constant; empty without them"""
    promises_text: str
    """what is promised of the arguments; empty for nothing"""
    select_text: str | None
    holds: str
    """the condition of the promises over `self`; empty for none"""
    promises: tuple[Promise, ...]
    arguments: tuple[ArgumentView, ...]
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
    imports: tuple[str, ...]
    """what the README's example takes from the crate's root"""
    problems: tuple[str, ...]
    """what its results are held against a reference with, in Markdown"""
    grid: tuple[str, ...]
    grid_texts: tuple[str, ...]
    grid_text: str
    grid_wide: tuple[Wide, ...]
    select: str | None
    """None: it always can"""
    select_text: str | None
    select_wide: tuple[Wide, ...]
    select_shortfall: str
    """how far the condition is from holding, an i64 in Rust"""
    compared: tuple[tuple[str, str], ...]
    """the arguments that the condition depends on, and each one's value in Rust"""
    compared_constants: tuple[tuple[str, int], ...]
    """the constants that it depends on"""
    slices: SlicesView | None
    """None where no launch can be on slices"""
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
    conditions = [kernel.select, kernel.select.shortfall()] if kernel.select else []
    select_wide, select = _expressions(conditions, "select", arguments, kernel)
    used = kernel.select.names if kernel.select else frozenset[str]()
    return StructView(
        base=shared.base,
        is_variant=shared.base in shared.variants,
        fields=fields,
        imports=tuple(sorted({field.example.split("::")[0] for field in fields if "::" in field.example})),
        problems=tuple(_problem(problem) for problem in kernel.problems),
        grid=grid,
        grid_texts=tuple(extent.text for extent in kernel.grid),
        grid_text=grid_text_of(kernel),
        grid_wide=grid_wide,
        select=select[0] if select else None,
        select_text=kernel.select.text if kernel.select else None,
        select_wide=select_wide,
        select_shortfall=f"{select[1]}.unwrap_or(i64::MAX)" if select else "0",
        compared=tuple((member.source, _told(member)) for member in arguments.members if member.source in used),
        compared_constants=tuple((name, int(value)) for name, value in arguments.constants.items() if name in used),
        slices=view_slices([shared], shapes_of),
        variants=tuple(view_variant(shared, variant) for variant in shared.variants),
    )


def grid_text_of(kernel: Kernel) -> str:
    """A kernel's grid, as kernels.yaml has it."""
    return f"[{', '.join(extent.text for extent in kernel.grid)}]"


def view_variant(shared: SharedStruct, name: str) -> VariantView:
    """One of the variants that share arguments."""
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
        entries=tuple(dict.fromkeys(record.facts.entry for record in records)),
        has_lines=kernel.debug,
        signature=variant.signature.text,
        constants=tuple((name, _constant(name, value, records[0])) for name, value in records[0].constants.items()),
        constants_text=_values(interface.constants) or "none",
        axes_text=_values(interface.axes),
        promises_text=struct.promised_text,
        select_text=kernel.select.text if kernel.select else None,
        holds=" && ".join(_holds(member, "self") for member in struct.promised),
        promises=tuple(_promise(member) for member in struct.promised),
        arguments=tuple(
            ArgumentView(
                name=member.source,
                type=member.type,
                offset=member.offset,
                size=member.size,
                promise=member.promise,
                is_input=member.is_input,
            )
            for member in struct.members
        ),
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


def _holds(member: Member, owner: str, compare: str = "==") -> str:
    """The condition that a member's promise holds; with `!=`, that it does not."""
    value = _value(member, owner)
    return f"{value} {compare} 1" if member.promise == 1 else f"{value} % {member.promise} {compare} 0"


def _promise(member: Member) -> Promise:
    kind = "address" if member.is_pointer else "value"
    given = f"{rust_text.literal(member.source)}, {member.promise}, {_value(member, 'args')}"
    return Promise(breaks=_holds(member, "args", "!="), broken=f"Broken::{kind}({given})")


def _problem(problem: Mapping[str, int]) -> str:
    return rust_text.code(", ".join(f"{name} = {value}" for name, value in problem.items()))


def _value(member: Member, owner: str) -> str:
    """An argument as a number."""
    return f"{owner}.{member.name}.address()" if member.is_pointer else f"{owner}.{member.name}"


def _bytes(member: Member) -> str:
    value = _value(member, "args")
    if rust_text.is_bits(member.type):
        value += ".to_bits()"
    if member.is_pointer:
        return f"{value}.to_le_bytes()"
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
    doc = "; ".join([doc_of(member, kernel), *shared.remarks(member.source)])
    rust_type = rust_text.rust_type(member.type)
    if member.is_pointer:
        example = "DevicePtr::new(0x7000_0000_0000)"
    else:
        problem = dict(kernel.problems[0]) if kernel.problems else {}
        example = _example(rust_type, _fitting(problem.get(member.source, 1), shared.promises(member.source)))
    return Field(
        name=member.name,
        type=rust_text.rust_type(member.type, "crate::"),
        doc=f"{doc}.",
        is_pointer=member.is_pointer,
        example=example,
        offset=member.offset,
        size=member.size,
    )


def _fitting(wanted: int, promises: Collection[int | None]) -> int:
    """A value for the README that keeps the promise that every variant has."""
    if None in promises:
        return wanted
    return 1 if 1 in promises else wanted if wanted % 16 == 0 else 16


def doc_of(member: Member, kernel: Kernel) -> str:
    """What documentation says of an argument, without a full stop."""
    meaning = _meaning(member, kernel)
    only = "; only the launch depends on it, and the kernel does not take it"
    return f"{meaning}{only}" if member.is_input else meaning


def _meaning(member: Member, kernel: Kernel) -> str:
    """What a value of the member is, in Markdown."""
    if not member.is_pointer:
        return rust_text.code(member.type)
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
    if rust_type[0] in "BF":
        return f"{rust_type}::from_bits(0x38)"
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


def _told(member: Member) -> str:
    """The value of an integer as an i64, whose largest stands for all that it does not hold."""
    if member.type == "u64":
        return f"i64::try_from(self.{member.name}).unwrap_or(i64::MAX)"
    return f"self.{member.name}" if member.type == "i64" else f"i64::from(self.{member.name})"


def shapes_of(struct: SharedStruct, expressions: Sequence[Expression]) -> tuple[tuple[Wide, ...], tuple[str, ...]]:
    """Extents and strides of a struct's tensors, as `view_slices` takes them."""
    return _expressions(expressions, "tensors", struct.first, struct.kernel)


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
                type=rust_text.rust_type(argument.type) if argument else rust_text.SCRATCH,
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
