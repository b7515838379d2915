"""Interface: what the callers of a variant pass, by name, type and order, and what is compiled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kiln.manifest.model import Value


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument that a caller passes, in order; the members of a tuple are arguments of their own."""

    name: str
    """of the function's parameter; of a tuple's member with its place in it: `sizes_0`, `sizes_1_2`"""
    type: str
    """`*fp16` or `i32`"""
    promise: int | None
    """16, 1 or None; an argument with promise 1 is folded and has no parameter in the image"""
    path: tuple[int, ...] = ()
    """the place in the tuple that the parameter is, (1, 2) for `sizes_1_2`; () for a parameter that is no tuple"""

    @property
    def parameter(self) -> str:
        """The function's parameter that it is, or is a member of."""
        return self.name.removesuffix("".join(f"_{index}" for index in self.path))


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The arguments of one variant, and the constants that are compiled in."""

    arguments: tuple[Argument, ...]
    constants: Mapping[str, Value]
    """Constexpr parameter -> value, in the order of the function's parameters, without those left to their default.
    The parameters of a function that makes the kernel come after them."""
    axes: Mapping[str, Value] = field(default_factory=dict)
    """the axes that set no parameter: expressions know them, and the image does not"""

    @property
    def known(self) -> Mapping[str, Value]:
        """What the variant fixes, for expressions over it: constants, then axes that set no parameter."""
        return {**self.constants, **self.axes}
