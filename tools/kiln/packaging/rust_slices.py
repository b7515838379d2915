"""What a launch on slices has to know of a kernel's tensors, for the templates of the Rust crate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kiln.manifest.expression import Expression
from kiln.packaging import rust_text
from kiln.packaging.arguments import SharedStruct

if TYPE_CHECKING:
    from kiln.packaging.rust_view import Wide

Compute = Callable[[SharedStruct, Sequence[Expression]], "tuple[tuple[Wide, ...], tuple[str, ...]]"]
"""expressions of a struct's kernel -> the arguments that need a check before, and the expressions in Rust"""


@dataclass(frozen=True, kw_only=True)
class TensorView:
    """The tensor behind a pointer; extents and strides are expressions in Rust over `self`."""

    name: str
    field: str
    element: str
    """the type, with paths from the crate's root"""
    shape: tuple[tuple[str, str], ...]
    """each extent as it is declared, and in Rust"""
    strides: tuple[tuple[str, str], ...] | None
    """None: without gaps, the last dimension innermost"""


@dataclass(frozen=True, kw_only=True)
class SlicesView:
    """What a launch on slices checks: a tensor for each pointer, in order."""

    tensors: tuple[TensorView, ...]
    wide: tuple[Wide, ...]
    loose: tuple[str, ...]
    """integers that the kernel takes and no shape or stride uses: nothing says what they make it touch"""

    @property
    def elements(self) -> dict[str, str]:
        """Field -> the type of its elements."""
        return {tensor.field: tensor.element for tensor in self.tensors}


def view_slices(structs: Sequence[SharedStruct], compute: Compute) -> SlicesView | None:
    """What a launch of structs that are alike checks.

    None where no launch on slices can be: there is no pointer, one has no declared shape, or two of the structs differ
    in what lies behind one.
    """
    first, *others = (_view(struct, compute) for struct in structs)
    return first if all(other == first for other in others) else None


def _view(struct: SharedStruct, compute: Compute) -> SlicesView | None:
    kernel, members = struct.kernel, struct.first.members
    pointers = [member for member in members if member.is_pointer]
    if not pointers or any(member.source not in kernel.tensors for member in pointers):
        return None
    expressions: list[Expression] = []
    for member in pointers:
        expressions += [*kernel.tensors[member.source], *kernel.strides.get(member.source, ())]
    wide, texts = compute(struct, expressions)
    rest = iter(texts)
    tensors = tuple(
        TensorView(
            name=member.source,
            field=member.name,
            element=rust_text.rust_type(member.type[1:], "crate::"),
            shape=tuple((extent.text, next(rest)) for extent in kernel.tensors[member.source]),
            strides=tuple((stride.text, next(rest)) for stride in kernel.strides[member.source])
            if member.source in kernel.strides
            else None,
        )
        for member in pointers
    )
    used = frozenset[str]().union(*(expression.names for expression in expressions))
    loose = [each for each in members if each.is_integer and not each.is_input and each.source not in used]
    return SlicesView(tensors=tensors, wide=wide, loose=tuple(member.source for member in loose))
