"""The targets that a manifest names: its own, those of a kernel, and the word native for those of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.compound_types import ListOf
from kiln.manifest.model import Variant
from kiln.manifest.value_types import Text, wrong
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List, Node, Scalar

NATIVE = "native"
"""what stands for the GPUs of the machine that builds"""

NativeTargets = Callable[[Position], tuple[str, ...]]
"""Finds the targets of this machine's GPUs, without repetitions. Raises ManifestError at the position of the word."""

NAMES = ListOf(item=Text(words="the name of a target, such as sm_90a"))


@dataclass(frozen=True, kw_only=True)
class TargetList:
    """A list of targets, native among them or not; or the word native alone, which is read as a list of it."""

    @property
    def words(self) -> str:
        return f"{NAMES.words}; or the word {NATIVE}"

    def read(self, node: Node, what: str) -> tuple[str, ...]:
        if not isinstance(node, Scalar):
            return NAMES.read(node, what)
        if node.text == NATIVE:
            return (NATIVE,)
        remedy = did_you_mean(node.text, [NATIVE]) or "put brackets around it, for a list of one"
        raise wrong(node, what, self.words, remedy)


@dataclass(frozen=True, kw_only=True)
class LibraryTargets:
    """What a library is built for, in order."""

    positions: Mapping[str, Position]
    """target -> where it is named; those that `native` stands for, at that word"""
    native: tuple[str, ...]
    """those that `native` stands for; none where it is not used"""
    native_position: Position | None = None
    """of that word"""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.positions)


def library_targets(given: tuple[str, ...], node: Node, find_native: NativeTargets | None) -> LibraryTargets:
    """The targets of the library, which has `given` under its `targets`, read from `node`.

    A target that is named beside `native` and found there too is one target. Raises ManifestError where the machine's
    GPUs are asked for and cannot be told; `find_native` is None where nobody may look at the machine.
    """
    positions: dict[str, Position] = {}
    native: tuple[str, ...] = ()
    word: Position | None = None
    for name, position in _placed(given, node):
        if name != NATIVE:
            positions.setdefault(name, position)
            continue
        if find_native is None:
            raise ManifestError(
                f"the word {NATIVE} stands for the GPUs of a machine, and the manifest is looked at alone here",
                where=position,
                expected="targets by name",
                actual=NATIVE,
                remedy="load it as a build does",
            )
        native, word = find_native(position), position
        for found in native:
            positions.setdefault(found, position)
    return LibraryTargets(positions=positions, native=native, native_position=word)


def kernel_targets(
    key: str, given: tuple[str, ...] | None, node: Node | None, library: LibraryTargets
) -> tuple[str, ...]:
    """The kernel's targets in the library's order: all of them where it has none of its own, `given` being None.

    Raises ManifestError for one that the library is not built for.
    """
    if given is None or node is None:
        return library.names
    chosen: set[str] = set()
    for name, position in _placed(given, node):
        known = library.native if name == NATIVE else (name,) if name in library.positions else ()
        if not known:
            names = [*library.names, *([NATIVE] if library.native else [])]
            raise ManifestError(
                f"`kernels.{key}.targets` holds {show(name)}, which the library is not built for",
                where=position,
                expected=f"targets among {', '.join(names)}",
                actual=show(name),
                remedy=did_you_mean(name, names) or "add it to the library's `targets`, or remove it here",
            )
        chosen.update(known)
    return tuple(name for name in library.names if name in chosen)


def check_used(variants: Iterable[Variant], positions: Mapping[str, Position]) -> None:
    """Each target has an archive and a table of its own, which cannot be empty. Raises ManifestError at the target."""
    used = {target for variant in variants for target in variant.targets}
    for name, position in positions.items():
        if name not in used:
            raise ManifestError(
                f"no kernel is built for {show(name)}",
                where=position,
                expected="at least one kernel for each of the library's targets",
                actual="every kernel has `targets` of its own, without it, or no configuration for it in its source",
                remedy="remove it here, or add it to the `targets` of a kernel",
            )


def _placed(given: tuple[str, ...], node: Node) -> Iterable[tuple[str, Position]]:
    """Each name with its place."""
    places = [item.position for item in node.items] if isinstance(node, List) else [node.position]
    return zip(given, places, strict=True)
