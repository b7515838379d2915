"""The types of single values in kernels.yaml: each reads a node strictly, and says in words what it takes.

`read(node, what)` gives the value or raises ManifestError at the node; `what` is the dotted path of the value, such as
`kernels.softmax.blocks` (empty for the whole file), and `words` the type as messages and documentation name it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kiln.errors import ManifestError, Position, did_you_mean
from kiln.manifest.expression import Expression, Type, parse_expression
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import Map, Node, Scalar, describe, other_type

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

INT64 = (-(2**63), 2**63 - 1)

FILL_IN = "FILL_IN"
"""what stands in a printed entry where a person has to write something"""


class ValueType(Protocol[T_co]):
    @property
    def words(self) -> str: ...

    def read(self, node: Node, what: str) -> T_co: ...


_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})|0x[0-9a-fA-F]{1,80}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?")

_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
"""what YAML has for floats that are no numbers"""

_FINITE = 'write a finite number; a kernel can say float("inf") and float("nan") itself'

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
            wide = f"an integer has 64 bits: {INT64[0]} to {INT64[1]}"
            raise ManifestError(
                f"wrong value for `{what}`",
                where=position,
                expected=self.words,
                actual=actual,
                remedy=None if INT64[0] <= value <= INT64[1] else wide,
            )


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
        value = _float(node, what, self.words)
        if value < 0:
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
class TextOrNothing:
    """One line of text, or null."""

    words = "text or null"

    def read(self, node: Node, what: str) -> str | None:
        if isinstance(node, Scalar) and node.plain and node.text == "null":
            return None
        if isinstance(node, Scalar) and other_type(node) == "nothing":
            raise wrong(node, what, self.words, 'write null, or "" for a text without characters')
        return read_text(node, what, self.words)


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
            return _float(node, what, self.words)
        if _NOT_FINITE.fullmatch(node.text):
            raise wrong(node, what, self.words, _FINITE)
        return read_text(node, what, self.words)


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


def read_text(node: Node, what: str, words: str = "text") -> str:
    """The text of a scalar. Raises ManifestError for a plain one that some YAML reader takes for something else."""
    if not isinstance(node, Scalar):
        raise wrong(node, what, words, "put the text in quotes" if _is_placeholder(node) else None)
    if other_type(node) == "nothing":
        raise wrong(node, what, words, "write the value, or remove the entry")
    if other_type(node) is not None:
        raise wrong(node, what, words, f'quote it: "{node.text}"' if node.text and len(node.text) < 60 else None)
    if node.text == FILL_IN:
        raise ManifestError(
            f"`{what}` is still to be filled in",
            where=node.position,
            expected=words,
            actual=f"{FILL_IN}, which `kiln import` writes where the source does not tell",
            remedy="write what it is",
        )
    return node.text


def _is_placeholder(node: Node) -> bool:
    """Whether a map is what YAML makes of {dtype} without quotes: keys with nothing behind them."""
    values = [entry.value for entry in node.entries] if isinstance(node, Map) else []
    return bool(values) and all(isinstance(value, Scalar) and value.plain and not value.text for value in values)


def _float(node: Scalar, what: str, words: str) -> float:
    """The fp64 of a number's text. Raises ManifestError where it would be infinite, or 0 for what is not 0."""
    value = float(node.text)
    if math.isinf(value):
        raise wrong(node, what, words, f"the largest number is {sys.float_info.max:.4g}")
    if value == 0 and re.search("[1-9]", node.text.lower().partition("e")[0]):
        raise wrong(node, what, words, "it is too small for a float of 64 bits: write 0.0 or a larger number")
    return value


def wrong(node: Node, what: str, words: str, remedy: str | None = None) -> ManifestError:
    """The error for a node of the wrong type."""
    headline = f"wrong value for `{what}`" if what else "the file is no manifest"
    return ManifestError(headline, where=node.position, expected=words, actual=describe(node), remedy=remedy)
