"""The format of kernels.yaml as a JSON Schema, for editors: made of the same tables as the reader.

It says what a schema can: keys, types and ranges. What depends on other keys or files, the reader alone knows. The
schema is of draft-07 (json-schema.org/draft-07), which editors' YAML servers read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from kiln.manifest.choices import AxisValues, Blocks, Exclusions
from kiln.manifest.schema import TOP
from kiln.manifest.value_types import (
    INT64,
    Boolean,
    Computed,
    Either,
    Integer,
    Key,
    ListOf,
    Literal,
    LiteralOrComputed,
    MapOf,
    Number,
    OneOrMore,
    Pattern,
    Section,
    Text,
    Word,
)

FILE = "kernels.schema.json"
"""its name beside kernels.yaml"""
MODELINE = f"# yaml-language-server: $schema={FILE}\n"
"""the first line of a kernels.yaml whose editor knows the format"""

Schema = dict[str, Any]


def json_schema() -> str:
    """The schema file's text, ending with a newline."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kernels.yaml",
        **schema_of(Section(keys=TOP)),
    }
    return json.dumps(schema, indent=1, ensure_ascii=True) + "\n"


@singledispatch
def schema_of(kind: object) -> Schema:
    """The schema of a type of `value_types` or `choices`. Raises TypeError for one that has none."""
    raise TypeError(f"{type(kind).__name__} has no JSON Schema")


@schema_of.register
def _(kind: Integer) -> Schema:
    if kind.power_of_two:
        powers = [1 << bit for bit in range(kind.maximum.bit_length())]
        return {"enum": [power for power in powers if kind.minimum <= power <= kind.maximum]}
    limits = {"minimum": kind.minimum} if kind.minimum > INT64[0] else {}
    limits |= {"maximum": kind.maximum} if kind.maximum < INT64[1] else {}
    return {"type": "integer", **limits}


@schema_of.register
def _(kind: Boolean) -> Schema:
    return {"type": "boolean"}


@schema_of.register
def _(kind: Number) -> Schema:
    return {"type": "number", "minimum": 0}


@schema_of.register(Text)
@schema_of.register(Pattern)
def _(kind: Text | Pattern) -> Schema:
    return {"type": "string"}


@schema_of.register
def _(kind: Word) -> Schema:
    return {"enum": list(kind.choices)}


@schema_of.register
def _(kind: Computed) -> Schema:
    own = {"int": ["integer"], "bool": ["boolean"], None: ["integer"]}[kind.result]
    return {"type": [*own, "string"]}


@schema_of.register
def _(kind: Either) -> Schema:
    return {"anyOf": [schema_of(kind.literal), {"type": "string"}]}


@schema_of.register
def _(kind: Literal) -> Schema:
    return {"type": ["boolean", "number", "string"]}


@schema_of.register
def _(kind: LiteralOrComputed) -> Schema:
    return {"anyOf": [schema_of(Literal()), schema_of(kind.section)]}


@schema_of.register(OneOrMore)
def _(kind: OneOrMore[Any]) -> Schema:
    return {"anyOf": [schema_of(kind.item), _list(schema_of(kind.item))]}


@schema_of.register(ListOf)
def _(kind: ListOf[Any]) -> Schema:
    limits: Schema = {} if kind.maximum is None else {"maxItems": kind.maximum}
    limits |= {"uniqueItems": True} if kind.unique else {}
    return {**_list(schema_of(kind.item)), **limits}


@schema_of.register(MapOf)
def _(kind: MapOf[Any]) -> Schema:
    names = {"propertyNames": schema_of(kind.key)} if isinstance(kind.key, Word) else {}
    return {**_map(schema_of(kind.value), kind.minimum), **names}


@schema_of.register
def _(kind: Section) -> Schema:
    required = [name for name, key in kind.keys.items() if key.required]
    return {
        "type": "object",
        "properties": _properties(kind.keys),
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


@schema_of.register
def _(kind: Blocks) -> Schema:
    tag = {"type": "string", "description": "what {block} stands for"}
    block = {
        "type": "object",
        "properties": {"tag": tag, **_properties(kind.options)},
        "additionalProperties": schema_of(Literal()),
    }
    return {"anyOf": [{**_list(schema_of(kind.number)), "uniqueItems": True}, _list(block)]}


@schema_of.register
def _(kind: AxisValues) -> Schema:
    return {"anyOf": [_list(schema_of(Literal())), _map(schema_of(Literal()), 1)]}


@schema_of.register
def _(kind: Exclusions) -> Schema:
    return _list({**schema_of(kind.entry), "minProperties": 1})


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _map(value: Schema, minimum: int) -> Schema:
    return {
        "type": "object",
        "additionalProperties": value,
        **({"minProperties": minimum} if minimum else {}),
    }


def _properties(keys: Mapping[str, Key]) -> Schema:
    return {
        name: {
            **schema_of(key.type),
            "description": key.doc,
            **({"default": key.default} if isinstance(key.default, bool | int | str) else {}),
        }
        for name, key in keys.items()
    }
