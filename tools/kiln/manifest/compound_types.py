"""The types of lists and maps in kernels.yaml, over the types of single values: see `value_types`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.value_types import Computed, ValueType, wrong
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List, Map, Node, Scalar, other_type

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class OneOrMore(Generic[T]):
    """A value, or a list of them; read as a list of nodes' values with their positions."""

    item: ValueType[T]

    @property
    def words(self) -> str:
        return f"{self.item.words}, or a list of them"

    def read(self, node: Node, what: str) -> tuple[tuple[T, Position], ...]:
        if isinstance(node, List) and node.items:
            return tuple((self.item.read(item, f"{what}[{i}]"), item.position) for i, item in enumerate(node.items))
        if isinstance(node, List):
            raise wrong(node, what, self.words)
        return ((self.item.read(node, what), node.position),)


@dataclass(frozen=True, kw_only=True)
class ListOf(Generic[T]):
    """A list of one or more values of one type; `unique` ones are hashable, and all different."""

    item: ValueType[T]
    maximum: int | None = None
    unique: bool = True

    @property
    def words(self) -> str:
        count = "values" if self.maximum is None else f"1 to {self.maximum} values"
        return f"a list of {count}, each {self.item.words}"

    def read(self, node: Node, what: str) -> tuple[T, ...]:
        if not isinstance(node, List):
            raise wrong(node, what, self.words, self._remedy_for_one(node, what))
        if not node.items:
            raise wrong(node, what, self.words, "list at least one")
        if isinstance(self.item, Computed):
            _check_commas(node, what, self.item.words)
        if self.maximum is not None and len(node.items) > self.maximum:
            raise wrong(node, what, self.words)
        values: list[T] = []
        seen: dict[T, Position] = {}
        for index, item in enumerate(node.items):
            value = self.item.read(item, f"{what}[{index}]")
            values.append(value)
            if not self.unique:
                continue
            if value in seen:
                first = seen[value]
                raise ManifestError(
                    f"`{what}` holds {show(str(value))} twice",
                    where=item.position,
                    expected="each value once",
                    actual=f"the first is at line {first.line}, column {first.column}",
                    remedy="remove one of them",
                )
            seen[value] = item.position
        return tuple(values)

    def _remedy_for_one(self, node: Node, what: str) -> str | None:
        """What to do about a value that would do as an item."""
        if not isinstance(node, Scalar):
            return None
        try:
            self.item.read(node, what)
        except ManifestError:
            return None
        return "put brackets around it, for a list of one"


@dataclass(frozen=True, kw_only=True)
class MapOf(Generic[T]):
    """A map from keys that `key` reads to values of one type."""

    key: ValueType[str]
    value: ValueType[T]
    minimum: int = 0

    @property
    def words(self) -> str:
        return f"a map from {self.key.words} to {self.value.words}"

    def read(self, node: Node, what: str) -> dict[str, T]:
        if not isinstance(node, Map) or len(node.entries) < self.minimum:
            nothing = isinstance(node, Map) or (isinstance(node, Scalar) and other_type(node) == "nothing")
            missing = self.minimum > 0 and nothing
            raise wrong(node, what, self.words, f"write at least one entry under `{what}`" if missing else None)
        return {
            self.key.read(entry.key, f"{what}: key"): self.value.read(entry.value, f"{what}.{entry.key.text}")
            for entry in node.entries
        }


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a section: what it takes and means. A key that is not required and not given reads as `default`."""

    type: ValueType[Any]
    doc: str
    example: str = ""
    """a value, as YAML in one line"""
    required: bool = False
    default: Any = None
    unless: tuple[str, ...] = ()
    """other keys of the section that stand in its place: with one of them it is not needed, and refused"""
    beside: bool = False
    """it may stand beside those all the same"""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A map with known keys."""

    keys: Mapping[str, Key]

    @property
    def words(self) -> str:
        needed = [name for name, key in self.keys.items() if key.required]
        if needed:
            return f"a map with the keys {', '.join(needed)}, and others where they are wanted"
        return f"a map with keys among {', '.join(self.keys)}"

    def read(self, node: Node, what: str) -> dict[str, Any]:
        """The value of each given key, in the order of `keys`."""
        if not isinstance(node, Map):
            raise wrong(node, what, self.words)
        given = {entry.key.text: entry for entry in node.entries}
        for name, entry in given.items():
            if name not in self.keys:
                raise ManifestError(
                    f"unknown key {show(name)} in {f'`{what}`' if what else 'the file'}",
                    where=entry.key.position,
                    expected=f"keys among {', '.join(self.keys)}",
                    actual=show(name),
                    remedy=did_you_mean(name, self.keys) or "remove it",
                )
        for name, key in self.keys.items():
            other = next((word for word in key.unless if word in given), None)
            if other is not None and name in given and not key.beside:
                raise ManifestError(
                    f"{f'`{what}`' if what else 'the file'} has `{name}` and `{other}`",
                    where=given[name].key.position,
                    expected=f"`{other}` alone, which stands in place of `{name}`",
                    actual="both",
                    remedy=f"remove `{name}`, or remove `{other}`",
                )
            if key.required and other is None and name not in given:
                raise ManifestError(
                    f"{f'`{what}`' if what else 'the file'} lacks the key `{name}`",
                    where=node.position,
                    expected=f"`{name}`: {key.doc.partition('. ')[0]}",
                    actual=f"keys {', '.join(show(given_name, 20) for given_name in given)}" if given else "no keys",
                    remedy=f"add `{name}:`, {key.type.words}"
                    + "".join(f", or `{word}:` in its place" for word in key.unless),
                )
        path = f"{what}." if what else ""
        return {
            name: key.type.read(given[name].value, f"{path}{name}") for name, key in self.keys.items() if name in given
        }


_MOST_PARTS = 8
"""of one expression that are looked for; it keeps the search linear"""


def _check_commas(node: List, what: str, words: str) -> None:
    """Refuse expressions without quotes that a comma in a pair of parentheses has split: [cdiv(n, BLOCK)]."""
    for index, item in enumerate(node.items):
        texts: list[str] = []
        for part in node.items[index : index + _MOST_PARTS]:
            # On one line, since in a list of dashes no comma splits anything.
            if not isinstance(part, Scalar) or not part.plain or part.position.line != item.position.line:
                break
            texts.append(part.text)
            whole = ", ".join(texts)
            if whole.count("(") > whole.count(")"):
                continue
            if len(texts) > 1:
                raise ManifestError(
                    f"`{what}[{index}]` ends within parentheses: a comma splits a list",
                    where=item.position,
                    expected=words,
                    actual=show(texts[0]),
                    remedy=f"quote the expression: {show(whole)}" if len(whole) <= 60 else "quote the expression",
                )
            break
