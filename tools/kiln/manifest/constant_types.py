"""The type of a constant in kernels.yaml: what Python would write as 64, None, (1, 2), tl.float16 or the name relu."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kiln.errors import ManifestError, Position
from kiln.manifest.compound_types import Key, Section
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value
from kiln.manifest.dtypes import DTYPES, dtype_called, suggest_dtype
from kiln.manifest.expression import Expression
from kiln.manifest.value_types import Literal, Text, wrong
from kiln.manifest.wording import show
from kiln.manifest.yaml_nodes import List, Map, Node, Scalar, other_type

_PYTHON_DTYPE = re.compile(r"(?:tl|triton\.language|torch|np|numpy|jnp)\.(\w+)")


def _check_dtype(text: str, position: Position, what: str) -> None:
    if "{" not in text and text not in DTYPES:
        raise ManifestError(
            f"`{what}` is no dtype",
            where=position,
            expected=f"one of {', '.join(DTYPES)}, or {{dtype}}, or {{name of an axis}} whose values are dtypes",
            actual=show(text),
            remedy=suggest_dtype(text.rpartition(".")[2]),
        )


def _check_function(text: str, position: Position, what: str) -> None:
    if not text.isascii() or not all(part.isidentifier() for part in text.split(".")):
        raise ManifestError(
            f"`{what}` is no function's name",
            where=position,
            expected="the name of a jitted function in the kernel's own file, defined or imported there",
            actual=show(text),
        )


FORMS: dict[str, Key] = {
    "dtype": Key(
        type=Text(words="a dtype such as fp16, or {dtype} or {NAME} for the variant's own", check=_check_dtype),
        doc="what a kernel knows as tl.float16 and the like",
        example='"{dtype}"',
    ),
    "function": Key(
        type=Text(words="the name of a function", check=_check_function),
        doc="a jitted function of the kernel's own file",
        example="relu",
    ),
}
"""What a value is that YAML has no word for."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A value that a kernel is compiled with."""

    @property
    def words(self) -> str:
        return _words(FORMS)

    def read(self, node: Node, what: str) -> Value:
        if isinstance(node, Map):
            return _named(*_read_form(node, what, FORMS))
        if isinstance(node, List):
            return tuple(self.read(item, f"{what}[{index}]") for index, item in enumerate(node.items))
        return _read_scalar(node, what, self.words)


@dataclass(frozen=True, kw_only=True)
class ConstantOrComputed:
    """A constant, or `{expression: ...}`: a text alone is a text."""

    expression: Key

    @property
    def keys(self) -> Mapping[str, Key]:
        """Of the map form, of which one is given."""
        return {"expression": self.expression, **FORMS}

    @property
    def words(self) -> str:
        return _words(self.keys)

    def read(self, node: Node, what: str) -> Value | Expression:
        if isinstance(node, Map):
            form, value = _read_form(node, what, self.keys)
            return value if isinstance(value, Expression) else _named(form, value)
        return _read_scalar(node, what, self.words) if isinstance(node, Scalar) else Constant().read(node, what)


def _words(keys: Mapping[str, Key]) -> str:
    forms = ", ".join(f"`{name}` ({key.type.words})" for name, key in keys.items())
    return (
        f"true, false, null, an integer, a number, text, a list of such values, or a map with one of the keys {forms}"
    )


def _read_form(node: Map, what: str, keys: Mapping[str, Key]) -> tuple[str, Any]:
    """The one key that is given, and its value."""
    given = Section(keys=keys).read(node, what)
    if len(given) != 1:
        raise wrong(node, what, f"a map with one of the keys {', '.join(keys)}")
    ((name, value),) = given.items()
    return name, value


def _named(form: str, name: str) -> Value:
    return DTypeConstant(name=name) if form == "dtype" else FunctionConstant(name=name)


def _read_scalar(node: Scalar, what: str, words: str) -> Value:
    if node.plain and node.text == "null":
        return None
    _check_habits(node, what, words)
    try:
        return Literal().read(node, what)
    except ManifestError as error:
        raise ManifestError(
            error.what, where=error.where, expected=words, actual=error.actual, remedy=error.remedy
        ) from None


def _check_habits(node: Scalar, what: str, words: str) -> None:
    """Refuse what Python and some YAML readers have for null, true and dtypes, and what would be a mere text here."""
    if not node.plain:
        return
    python = _PYTHON_DTYPE.fullmatch(node.text)
    dtype = dtype_called(python[1]) if python is not None else None
    if node.text == "None":
        raise wrong(node, what, words, 'write null for Python\'s None, or quote the text: "None"')
    if other_type(node) == "nothing":
        raise wrong(node, what, words, "write null for Python's None")
    if node.text in ("True", "False"):
        raise wrong(node, what, words, f"write {node.text.lower()}")
    if dtype is not None:
        raise wrong(node, what, words, f"write {{dtype: {dtype}}} for the dtype, or quote the text")
