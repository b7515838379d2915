"""Values as text of kernels.yaml."""

from __future__ import annotations

import json
import math
import re

from kiln.errors import ManifestError, Position
from kiln.manifest.constant_types import Constant
from kiln.manifest.constants import DTypeConstant, FunctionConstant, Value
from kiln.manifest.value_types import FILL_IN
from kiln.manifest.yaml_nodes import Scalar


def yaml_value(value: Value) -> str:
    """A constant as kernels.yaml has it; a place to fill in for infinity and the like, which it has no word for."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return yaml_text(value)
    if isinstance(value, DTypeConstant):
        return f"{{dtype: {value.name}}}"
    if isinstance(value, FunctionConstant):
        return f"{{function: {value.name}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(yaml_value, value))}]"
    return FILL_IN if isinstance(value, float) and not math.isfinite(value) else repr(value)


def yaml_text(text: str) -> str:
    """A text in YAML, be it a key or a value, in quotes where it needs them."""
    return text if re.fullmatch(r"[A-Za-z_][\w./-]*", text) and _is_text(text) else json.dumps(text)


def _is_text(text: str) -> bool:
    """Whether kernels.yaml takes it for a text when it has no quotes: `no` and `None` are none."""
    try:
        return Constant().read(Scalar(text=text, plain=True, position=Position(file="", line=1)), "") == text
    except ManifestError:
        return False


def yaml_expression(text: str) -> str:
    """An expression, in quotes where a comma or a brace would be YAML's."""
    return text if re.fullmatch(r"\w+", text) else json.dumps(text)
