"""Records as the C package has them: a struct, its lists and its texts in one block of bytes, written as assembly.

A block holds no pointer, so that a loader has nothing to do for it: what lies in the block is said as an offset from
the start of the struct that names it, and what lies outside as a distance that the linker fills in. Assembly, for C has
no constant for such a distance; and an assembler takes a fifth of the time that a compiler takes.

The layouts below are those of the structs in kiln_image.h and kiln_launch.h. Registries hold the compiler to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kiln.packaging.c_text import assembly_string

_WORDS = {1: ".byte", 2: ".short", 4: ".long", 8: ".quad"}
"""what both hosts' assemblers call a number of so many bytes"""

_LABEL = ".Lrecord"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One member of a struct; `size` is bytes of one element, and `offset` bytes from the struct's start."""

    name: str
    size: int
    count: int
    offset: int


@dataclass(frozen=True)
class Layout:
    """A struct as C compilers of both hosts lay it out: each member is aligned to its size."""

    struct: str
    """its name without the library's prefix"""
    declared: tuple[tuple[str, int, int], ...]
    """name, bytes of an element and number of elements of each member, in order"""

    @cached_property
    def members(self) -> tuple[Member, ...]:
        made = []
        at = 0
        for name, size, count in self.declared:
            at = _aligned(at, size)
            made.append(Member(name=name, size=size, count=count, offset=at))
            at += size * count
        return tuple(made)

    @cached_property
    def size(self) -> int:
        last = self.members[-1]
        return _aligned(last.offset + last.size * last.count, max(member.size for member in self.members))


def _layout(struct: str, **members: int | tuple[int, int]) -> Layout:
    """A layout of members: the bytes of each, or of an element of it and their number."""
    return Layout(struct, tuple((n, *(m if isinstance(m, tuple) else (m, 1))) for n, m in members.items()))


PARAMETER = _layout("parameter", name_at=4, type_at=4, role=4, offset=4, size=4, promise=4)
CONSTANT = _layout("constant", value=8, name_at=4, text_at=4)
IMAGE = _layout(
    "image",
    global_scratch_bytes=8,
    profile_scratch_bytes=8,
    threads=4,
    shared_static=4,
    shared_dynamic=4,
    parameter_bytes=4,
    cluster=(4, 3),
    kind=4,
    cooperative=1,
    pdl=1,
    anchor_at=4,
    parameter_count=4,
    parameters_at=4,
    data_at=8,
    size=8,
    sha256=(1, 32),
    global_scratch_align=4,
    profile_scratch_align=4,
    warps=4,
    warps_requested=4,
    warp_size=4,
    registers=4,
    scalar_registers=4,
    spills=4,
    stack=4,
    constant_count=4,
    constants_at=4,
    id_at=4,
    kernel_at=4,
    variant_at=4,
    group_at=4,
    dtype_at=4,
    block_at=4,
    target_at=4,
    entry_at=4,
    ptx_isa_at=4,
    grid_at=(4, 3),
    select_at=4,
)
ARGUMENT = _layout("argument", name_at=4, type_at=4, offset=4, size=4, promise=4, is_pointer=1, is_input=1)
VARIANT = _layout(
    "variant",
    anchor_at=4,
    cache_at=4,
    images_at=4,
    grid_at=4,
    selects_at=4,
    broken_at=4,
    pack_at=4,
    bundle_at=4,
    args_bytes=4,
    buffer_bytes=4,
    image_count=4,
    argument_count=4,
    arguments_at=4,
    name_at=4,
    base_at=4,
    kernel_at=4,
    group_at=4,
    dtype_at=4,
    block_at=4,
    select_at=4,
)
EXTENT = _layout("extent", name_at=4, offset=4, size=4, is_signed=1)
GROUP = _layout(
    "group",
    anchor_at=4,
    variants_at=4,
    tuned_at=4,
    variant_count=4,
    extent_count=4,
    extents_at=4,
    name_at=4,
    is_uniform=1,
)

LAYOUTS = (PARAMETER, CONSTANT, IMAGE, ARGUMENT, VARIANT, EXTENT, GROUP)

ALIGNMENT = 64
"""of a record, in bytes: what a launch reads of an image's is one line of a cache then"""


@dataclass(frozen=True)
class Outside:
    """The distance of a symbol from the record."""

    symbol: str


Row = Mapping[str, int | str]
"""a value for each member of a struct in a list"""


@dataclass(frozen=True)
class Rows:
    """A list of structs within the block; the member that says where it lies counts from the record's start."""

    layout: Layout
    rows: Sequence[Row]


Value = int | str | None | Outside | Rows | Sequence[int] | Sequence[str]
"""of a member: numbers as they are, a text or a list within the block, nothing, or what lies outside"""


@dataclass
class _Block:
    """What is laid out so far."""

    layout: Layout
    lists: dict[int, Rows] = field(default_factory=dict)
    """by offset from the record's start"""
    texts: dict[str, int] = field(default_factory=dict)
    """the same, of each text once"""
    end: int = 0

    def place(self, values: Mapping[str, Value]) -> None:
        """Give all lists their places behind the struct, and all texts theirs behind the lists."""
        rows = [value for value in values.values() if isinstance(value, Rows)]
        self.end = self.layout.size
        for one in rows:
            self.end = _aligned(self.end, 8)
            self.lists[self.end] = one
            self.end += one.layout.size * len(one.rows)
        self._place_texts(values)
        for one in rows:
            for row in one.rows:
                self._place_texts(row)

    def _place_texts(self, values: Mapping[str, Value]) -> None:
        for value in values.values():
            for text in [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else ():
                if isinstance(text, str) and text not in self.texts:
                    self.texts[text] = self.end
                    self.end += len(text.encode()) + 1

    def list_at(self, rows: Rows) -> int:
        return next(at for at, placed in self.lists.items() if placed is rows)


def block(symbol: str, hidden: str, layout: Layout, values: Mapping[str, Value]) -> list[str]:
    """The lines of assembly that define a record at two symbols: `symbol`, and `hidden` for the library's own use.

    They belong into a section of data that is only read.
    `values` gives one to each member of `layout`, in that order. Raises ValueError where it does not.
    """
    if list(values) != [member.name for member in layout.members]:
        raise ValueError(f"the values are not those of struct {layout.struct}: {', '.join(values)}")
    made = _Block(layout)
    made.place(values)
    lines = [
        f".balign {ALIGNMENT}",
        f".globl {symbol}, {hidden}",
        f".hidden {hidden}",
        f".type {symbol}, %object",
        f".type {hidden}, %object",
        f"{_LABEL}:",
        f"{symbol}:",
        f"{hidden}:",
        *_struct(made, layout, values, 0),
    ]
    at = layout.size
    for start, rows in made.lists.items():
        if start != at:
            lines.append(f".zero {start - at}")
        for index, row in enumerate(rows.rows):
            lines += _struct(made, rows.layout, row, start + index * rows.layout.size)
        at = start + rows.layout.size * len(rows.rows)
    lines += [f".asciz {assembly_string(text)}" for text in made.texts]
    # The whole block: what a program that copies a record from a shared library gets.
    return [*lines, f".size {symbol}, . - {symbol}", f".size {hidden}, . - {hidden}"]


def _struct(made: _Block, layout: Layout, values: Mapping[str, Value], start: int) -> Iterator[str]:
    """The lines of one struct that lies `start` bytes from the record's start."""
    at = 0
    for member in layout.members:
        if member.offset != at:
            yield f".zero {member.offset - at}"
        yield f"{_WORDS[member.size]} {_number(made, values[member.name], start)} /* {member.name} */"
        at = member.offset + member.size * member.count
    if layout.size != at:
        yield f".zero {layout.size - at}"


def _number(made: _Block, value: Value, start: int) -> str:
    """A member's value, or those of its elements."""
    match value:
        case None:
            return "0"
        case int():
            return str(int(value))
        case str():
            return str(made.texts[value] - start)
        case Outside():
            return f"{value.symbol} - {_LABEL}"
        case Rows():
            return str(made.list_at(value))
        case _:
            return ", ".join(_number(made, each, start) for each in value)


def _aligned(at: int, alignment: int) -> int:
    return -(-at // alignment) * alignment
