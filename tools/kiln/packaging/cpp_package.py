"""Records -> the C++ layer: a generated header on top of that in C, and the fixed ones under the library's prefix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiln.manifest.dtypes import DTYPES
from kiln.manifest.model import Manifest
from kiln.packaging import c_names, cpp_names
from kiln.packaging.c_package import runtime_source
from kiln.packaging.c_view import FrontView, MemberView, view_fronts, view_groups, view_structs
from kiln.packaging.record import Record
from kiln.packaging.templates import environment

_WORDS = {
    **{name: f"std::{dtype.c}" for name, dtype in DTYPES.items() if dtype.c.endswith("_t")},
    **{name: dtype.c for name, dtype in DTYPES.items() if not dtype.c.endswith("_t")},
    **{name: name for name in DTYPES if name in cpp_names.RESERVED},
}
"""dtype -> what the header calls a value of it; one that C has as its bits is a struct of that name"""


@dataclass(frozen=True, kw_only=True)
class MemberText:
    """One member of a struct; `offset` is bytes."""

    name: str
    declaration: str
    comment: str
    offset: int


@dataclass(frozen=True, kw_only=True)
class StructText:
    """One struct, and what a launch with it chooses from: a group, or variants that differ by promises alone."""

    name: str
    c_name: str
    description: Sequence[str]
    members: Sequence[MemberText]
    group: str
    """its symbol; empty for variants"""
    variants: Sequence[str]
    """their symbols; empty for a group"""


@dataclass(frozen=True, kw_only=True)
class FrontText:
    """What a kernel's groups are called together, whatever their dtype."""

    name: str
    title: str
    groups: Sequence[tuple[str, str]]
    """constant of a dtype, struct of its group"""


def render_cpp_header(records: Sequence[Record], manifest: Manifest, staging: Path) -> None:
    """Write the files of `cpp_names.header_files`, relative to `staging`; they include those of `render_header`.

    `records` stand in order of declaration. Raises PackagingError as `c_view.view_structs` does.
    """
    library = manifest.library
    structs, fronts = _structs(library, records), _fronts(library, records)
    names = [*(struct.name for struct in structs), *(front.name for front in fronts)]
    header = (
        environment()
        .get_template("c/library.hpp.j2")
        .render(
            library=library,
            macro=c_names.macro_prefix(library),
            structs=structs,
            fronts=fronts,
            # Macros of whatever is included before have such names, and would replace them.
            shouted=[name for name in names if name == name.upper()],
        )
    )
    files = {cpp_names.library_header(library): header}
    files |= {name: runtime_source(fixed, library) for name, fixed in cpp_names.runtime_files(library).items()}
    for name, text in files.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_text(text, "utf-8")


def _structs(library: str, records: Sequence[Record]) -> list[StructText]:
    found = [
        StructText(
            name=cpp_names.cpp_name(struct.base),
            c_name=f"{library}_{struct.base}_args",
            description=struct.description,
            members=_members(library, struct.members),
            group="",
            variants=[variant.symbol for variant in struct.variants],
        )
        for struct in view_structs(library, records)
    ]
    for group in view_groups(library, records):
        if group.is_uniform:
            found.append(
                StructText(
                    name=cpp_names.cpp_name(group.name),
                    c_name=f"{library}_{group.name}_args",
                    description=[f"Group {group.name}: {', '.join(group.variants)}."],
                    members=_members(library, group.members),
                    group=group.symbol,
                    variants=[],
                )
            )
    return found


def _fronts(library: str, records: Sequence[Record]) -> list[FrontText]:
    names = {group.symbol: cpp_names.cpp_name(group.name) for group in view_groups(library, records)}

    def front(view: FrontView) -> FrontText:
        groups = [(constant, names[symbol]) for constant, symbol in view.groups]
        return FrontText(name=cpp_names.cpp_name(view.name), title=view.name, groups=groups)

    return [front(view) for view in view_fronts(library, records)]


def _members(library: str, members: Iterable[MemberView]) -> list[MemberText]:
    members = list(members)
    # A member may be called like a type that the next one is of; no name that begins with :: can mean it.
    used = {"std", "device_ptr", *_WORDS.values()}
    hides = any(member.name in used for member in members)
    return [
        MemberText(
            name=member.name,
            declaration=_declaration(library, member, in_full=hides),
            comment=member.comment,
            offset=member.offset,
        )
        for member in members
    ]


def _declaration(library: str, member: MemberView, *, in_full: bool) -> str:
    """`device_ptr<fp16> output_ptr`, `std::int32_t n_cols = 0`."""

    def full(word: str) -> str:
        own = word == "device_ptr" or word in cpp_names.RESERVED
        return word if not in_full else f"::{library}::{word}" if own else f"::{word}" if "::" in word else word

    if not member.type.startswith("*"):
        word = _WORDS[member.type]
        value = "{}" if word in cpp_names.RESERVED else "false" if word == "bool" else "0"
        return f"{full(word)} {member.name} = {value}"
    # What a pointer to pointers points to, kernels.yaml does not say any further.
    element = full(_WORDS.get(member.type[1:], "void"))
    return f"{full('device_ptr')}<{element}> {member.name}"
