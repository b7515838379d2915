"""The types of values in kernels.yaml: each reads a node strictly, and says in words what it takes.

`read(node, what)` gives the value or raises ManifestError at the node; `what` is the dotted path of the value, such as
`kernels.softmax.blocks` (empty for the whole file), and `words` the type as messages and documentation name it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.expression import Expression, Type, parse_expression
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List, Map, Node, Scalar, describe, other_type

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

INT64 = (-(2**63), 2**63 - 1)


class ValueType(Protocol[T_co]):
    @property
    def words(self) -> str: ...

    def read(self, node: Node, what: str) -> T_co: ...


_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})|0x[0-9a-fA-F]{1,80}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?")

_DIGITS = "write an integer in decimal, or in hexadecimal with 0x"


@dataclass(frozen=True, kw_only=True)
class Integer:
    """A decimal or hexadecimal integer in a range."""

    minimum: int = INT64[0]
    maximum: int = INT64[1]
    power_of_two: bool = False

    @property
    def words(self) -> str:
        kind = "a power of two" if self.power_of_two else "an integer"
        if self.minimum == self.maximum:
            return f"the integer {self.minimum}"
        lowest, highest = self.minimum > INT64[0], self.maximum < INT64[1]
        if lowest and highest:
            return f"{kind} from {self.minimum} to {self.maximum}"
        return f"{kind} that is at least {self.minimum}" if lowest else kind

    def read(self, node: Node, what: str) -> int:
        if not isinstance(node, Scalar) or not node.plain or _INTEGER.fullmatch(node.text) is None:
            quoted = isinstance(node, Scalar) and not node.plain and _INTEGER.fullmatch(node.text)
            number = isinstance(node, Scalar) and other_type(node) == "a number"
            raise wrong(node, what, self.words, "remove the quotes" if quoted else _DIGITS if number else None)
        value = int(node.text, 16 if node.text.startswith("0x") else 10)
        self.check(value, node.position, what, node.text)
        return value

    def check(self, value: int, position: Position, what: str, actual: str) -> None:
        """Refuse a value out of range; `actual` says where it comes from. Raises ManifestError at `position`."""
        fits = self.minimum <= value <= self.maximum
        if not fits or (self.power_of_two and value & (value - 1)):
            raise ManifestError(f"wrong value for `{what}`", where=position, expected=self.words, actual=actual)


@dataclass(frozen=True, kw_only=True)
class Boolean:
    words = "true or false"

    def read(self, node: Node, what: str) -> bool:
        if isinstance(node, Scalar) and node.plain and node.text in ("true", "false"):
            return node.text == "true"
        truth = isinstance(node, Scalar) and other_type(node) == "a truth value"
        quoted = isinstance(node, Scalar) and not node.plain and node.text in ("true", "false")
        remedy = "write true or false" if truth else "remove the quotes" if quoted else None
        raise wrong(node, what, self.words, remedy)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A finite number, at least 0, with or without point and exponent: 1e-5 too, which YAML 1.1 reads as text."""

    words = "a number that is at least 0"

    def read(self, node: Node, what: str) -> float:
        if not isinstance(node, Scalar) or not node.plain or _NUMBER.fullmatch(node.text) is None:
            quoted = isinstance(node, Scalar) and not node.plain and _NUMBER.fullmatch(node.text)
            raise wrong(node, what, self.words, "remove the quotes" if quoted else None)
        value = float(node.text)
        if value < 0 or math.isinf(value):
            raise wrong(node, what, self.words)
        return value


@dataclass(frozen=True, kw_only=True)
class Text:
    """One line of text that satisfies `check(text, position, what)`."""

    words: str = "text"
    check: Callable[[str, Position, str], None] | None = None

    def read(self, node: Node, what: str) -> str:
        text = read_text(node, what, self.words)
        if self.check is not None:
            self.check(text, node.position, what)
        return text


@dataclass(frozen=True, kw_only=True)
class Word:
    """One of a few known words."""

    choices: Sequence[str]
    suggest: Callable[[str, Sequence[str]], str | None] = did_you_mean
    """the remedy for a word that is none of `choices`"""

    @property
    def words(self) -> str:
        return f"one of {', '.join(self.choices)}"

    def read(self, node: Node, what: str) -> str:
        text = read_text(node, what, self.words)
        if text not in self.choices:
            raise wrong(node, what, self.words, self.suggest(text, self.choices))
        return text


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Text with placeholders, checked by the loader, which knows the axes."""

    placeholders: Sequence[str]
    """beside one for each axis"""

    @property
    def words(self) -> str:
        known = ", ".join(f"{{{name}}}" for name in self.placeholders)
        return f"text with {known} or {{name of an axis}} where the value goes"

    def read(self, node: Node, what: str) -> str:
        return read_text(node, what, self.words)


@dataclass(frozen=True, kw_only=True)
class Computed:
    """An expression; its names are checked later, when they are known. `result` None: an integer or a truth value."""

    result: Type | None

    @property
    def words(self) -> str:
        kind = {"int": "an integer", "bool": "a truth value", None: "an integer or a truth value"}[self.result]
        return f"an expression that gives {kind}"

    def read(self, node: Node, what: str) -> Expression:
        if isinstance(node, Scalar) and node.plain and _INTEGER.fullmatch(node.text):
            text = node.text
        elif self.result == "bool" and isinstance(node, Scalar) and node.plain and node.text in ("true", "false"):
            text = node.text.capitalize()
        elif isinstance(node, Scalar) and other_type(node) == "a number":
            raise wrong(node, what, self.words, None if self.result == "bool" else _DIGITS)
        else:
            text = read_text(node, what, self.words)
        expression = parse_expression(text, node.position)
        if self.result is not None and expression.type != self.result:
            found = "an integer" if expression.type == "int" else "a truth value"
            raise ManifestError(
                f"wrong value for `{what}`",
                where=node.position,
                expected=self.words,
                actual=f"{show(expression.text)}, which gives {found}",
            )
        return expression


@dataclass(frozen=True, kw_only=True)
class Literal:
    """true, false, an integer, a number with a point or an exponent, or text."""

    words = "true, false, an integer, a number or text"

    def read(self, node: Node, what: str) -> bool | int | float | str:
        if not isinstance(node, Scalar) or not node.plain:
            return read_text(node, what, self.words)
        if node.text in ("true", "false"):
            return node.text == "true"
        if _INTEGER.fullmatch(node.text):
            return Integer().read(node, what)
        # A number without point and exponent has zeros in front, which some readers take for an octal one.
        if _NUMBER.fullmatch(node.text) and not node.text.lstrip("+-").isdigit():
            value = float(node.text)
            if math.isinf(value):
                raise wrong(node, what, self.words)
            return value
        return read_text(node, what, self.words)


@dataclass(frozen=True, kw_only=True)
class LiteralOrComputed:
    """A literal, or `{expression: ...}`: a text alone is a text."""

    section: Section

    @property
    def words(self) -> str:
        return f"{Literal.words}, or a map with the key `expression`, {self.section.keys['expression'].type.words}"

    def read(self, node: Node, what: str) -> bool | int | float | str | Expression:
        if isinstance(node, Map):
            expression: Expression = self.section.read(node, what)["expression"]
            return expression
        try:
            return Literal().read(node, what)
        except ManifestError as error:
            raise ManifestError(
                error.what, where=error.where, expected=self.words, actual=error.actual, remedy=error.remedy
            ) from None


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
        if not isinstance(node, Scalar):
            raise wrong(node, what, self.words)
        return ((self.item.read(node, what), node.position),)


@dataclass(frozen=True, kw_only=True)
class Either:
    """A literal, or an expression for it that is evaluated for each variant and checked as the literal would be."""

    literal: Integer | Boolean
    computed: Computed

    @property
    def words(self) -> str:
        return f"{self.literal.words}, or {self.computed.words}"

    def read(self, node: Node, what: str) -> bool | int | Expression:
        if isinstance(node, Scalar) and other_type(node) is None:
            return self.computed.read(node, what)
        try:
            return self.literal.read(node, what)
        except ManifestError as error:
            raise ManifestError(
                error.what, where=error.where, expected=self.words, actual=error.actual, remedy=error.remedy
            ) from None

    def resolve(self, value: T | Expression, values: Mapping[str, int], what: str) -> T | int:
        """The literal that `value` is or gives. Raises ManifestError at the expression."""
        if not isinstance(value, Expression):
            return value
        result = value.evaluate(values)
        if isinstance(self.literal, Integer):
            given = ", ".join(f"{name} = {values[name]}" for name in sorted(value.names))
            actual = f"{result}, from {show(value.text)}{f' with {given}' if given else ''}"
            self.literal.check(result, value.position, what, actual)
        return result


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


@dataclass(frozen=True, kw_only=True)
class Section:
    """A map with known keys."""

    keys: Mapping[str, Key]

    @property
    def words(self) -> str:
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
            if key.required and name not in given:
                raise ManifestError(
                    f"{f'`{what}`' if what else 'the file'} lacks the key `{name}`",
                    where=node.position,
                    expected=f"`{name}`: {key.doc}",
                    actual=f"keys {', '.join(show(given_name, 20) for given_name in given)}" if given else "no keys",
                    remedy=f"add `{name}:`, {key.type.words}",
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


def read_text(node: Node, what: str, words: str = "text") -> str:
    """The text of a scalar. Raises ManifestError for a plain one that some YAML reader takes for something else."""
    if not isinstance(node, Scalar):
        raise wrong(node, what, words, "put the text in quotes" if isinstance(node, Map) else None)
    if other_type(node) is not None:
        raise wrong(node, what, words, f'quote it: "{node.text}"' if node.text and len(node.text) < 60 else None)
    return node.text


def wrong(node: Node, what: str, words: str, remedy: str | None = None) -> ManifestError:
    """The error for a node of the wrong type."""
    headline = f"wrong value for `{what}`" if what else "the file is no manifest"
    return ManifestError(headline, where=node.position, expected=words, actual=describe(node), remedy=remedy)
