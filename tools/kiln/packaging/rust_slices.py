"""What a launch on slices has to know of a kernel's tensors, for the templates of the Rust crate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kiln.manifest.dtypes import is_integer
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
    is_written: bool | None
    """None: nobody says what the kernel writes"""

    @property
    def operand(self) -> str:
        """What a slice is passed as."""
        return "OperandMut" if self.is_written else "Operand"


@dataclass(frozen=True, kw_only=True)
class SlicesView:
    """What a launch on slices checks: a tensor for each pointer, in order."""

    tensors: tuple[TensorView, ...]
    wide: tuple[Wide, ...]
    loose: tuple[str, ...]
    """integers that no shape or stride uses, launch inputs among them, for the kernel knows its grid: nothing says what
    they make it touch"""
    indices: tuple[str, ...]
    """pointers to integers, of which nobody looks at what lies there"""

    @property
    def operands(self) -> dict[str, TensorView]:
        """Field -> its tensor."""
        return {tensor.field: tensor for tensor in self.tensors}

    @property
    def says_outputs(self) -> bool:
        """Whether it is known what the kernel writes."""
        return all(tensor.is_written is not None for tensor in self.tensors)

    @property
    def is_safe(self) -> bool:
        """Whether all that a launch could touch outside of the slices is looked at before."""
        return self.says_outputs and not self.loose and not self.indices


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
            is_written=None if kernel.outputs is None else member.source in kernel.outputs,
        )
        for member in pointers
    )
    used = frozenset[str]().union(*(expression.names for expression in expressions))
    open_ones = [each for each in members if each.source not in kernel.any_values]
    return SlicesView(
        tensors=tensors,
        wide=wide,
        loose=tuple(each.source for each in open_ones if each.is_integer and each.source not in used),
        indices=tuple(each.source for each in open_ones if each.is_pointer and is_integer(each.type[1:])),
    )
