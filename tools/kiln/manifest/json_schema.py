"""The format of kernels.yaml as a JSON Schema, for editors: made of the same tables as the reader.

It says what a schema can: keys, types and ranges. What depends on other keys or files, the reader alone knows. The
schema is of draft-07 (json-schema.org/draft-07), which editors' YAML servers read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

from kiln.manifest.budgets import LIMIT, ByTarget
from kiln.manifest.choices import AUTOTUNE, AxisValues, Blocks, Exclusions
from kiln.manifest.compound_types import Key, ListOf, MapOf, OneOrMore, Section
from kiln.manifest.constant_types import FORMS, Constant, ConstantOrComputed
from kiln.manifest.promises import PromiseSets
from kiln.manifest.schema import INCLUDED, TOP
from kiln.manifest.targets import NAMES, NATIVE, TargetList
from kiln.manifest.value_types import (
    INT64,
    Boolean,
    Computed,
    Either,
    Integer,
    Literal,
    Number,
    Pattern,
    Text,
    TextOrNothing,
    Word,
)

FILE = "kernels.schema.json"
"""its name beside kernels.yaml"""
MODELINE = f"# yaml-language-server: $schema={FILE}\n"
"""the first line of a kernels.yaml whose editor knows the format"""

Schema = dict[str, Any]


def json_schema() -> str:
    """The schema file's text, ending with a newline."""
    own = [name for name, key in TOP.items() if key.required and name not in INCLUDED]
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "kernels.yaml",
        **schema_of(Section(keys=TOP)),
        # Files that others include have this schema, too: they lack what only the first file says, all of it.
        "required": [name for name, key in INCLUDED.items() if key.required and not key.unless],
        "dependencies": {name: [other for other in own if other != name] for name in own},
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
def _(kind: TextOrNothing) -> Schema:
    return {"type": ["string", "null"]}


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
def _(kind: Constant) -> Schema:
    """Members of lists are left to the reader: lists may hold lists, and a schema within the schema cannot say so."""
    return {"anyOf": [{"type": ["boolean", "number", "string", "null", "array"]}, _form(FORMS)]}


@schema_of.register
def _(kind: ConstantOrComputed) -> Schema:
    return {"anyOf": [schema_of(Constant()), _form({"expression": kind.expression})]}


def _form(keys: Mapping[str, Key]) -> Schema:
    return {**schema_of(Section(keys=keys)), "minProperties": 1, "maxProperties": 1}


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
    required = [name for name, key in kind.keys.items() if key.required and not key.unless]
    alternatives = [
        _alternative(kind.keys, unless) for unless in dict.fromkeys(key.unless for key in kind.keys.values()) if unless
    ]
    return {
        "type": "object",
        "properties": _properties(kind.keys),
        **({"required": required} if required else {}),
        **({"allOf": alternatives} if alternatives else {}),
        "additionalProperties": False,
    }


@schema_of.register
def _(kind: Blocks) -> Schema:
    tag = {"type": "string", "description": "what {block} stands for"}
    block = {
        "type": "object",
        "properties": {"tag": tag, **_properties(kind.options)},
        "additionalProperties": schema_of(Constant()),
    }
    return {"anyOf": [{**_list(schema_of(kind.number)), "uniqueItems": True}, _list(block), {"const": AUTOTUNE}]}


@schema_of.register
def _(kind: AxisValues) -> Schema:
    return {"anyOf": [_list(schema_of(Constant())), _map(schema_of(Constant()), 1)]}


@schema_of.register
def _(kind: PromiseSets) -> Schema:
    tag = {"type": "string", "description": "what the names of its variants end with"}
    return _list({"type": "object", "properties": {"tag": tag}, "additionalProperties": {"enum": [1, 16]}})


@schema_of.register
def _(kind: Exclusions) -> Schema:
    return _list({**schema_of(kind.entry), "minProperties": 1})


@schema_of.register
def _(kind: TargetList) -> Schema:
    return {"anyOf": [schema_of(NAMES), {"const": NATIVE}]}


@schema_of.register
def _(kind: ByTarget) -> Schema:
    limit = schema_of(LIMIT)
    return {"anyOf": [*limit["anyOf"], _map(limit, 1)]}


def _alternative(keys: Mapping[str, Key], unless: tuple[str, ...]) -> Schema:
    """With one of `unless`, the keys that it stands in place of are refused; without, the needed ones are asked for."""
    own = {name: key for name, key in keys.items() if key.unless == unless}
    refused = [{"required": [name]} for name, key in own.items() if not key.beside]
    return {
        "if": {"anyOf": [{"required": [name]} for name in unless]},
        "then": {"not": {"anyOf": refused}} if refused else {},
        "else": {"required": [name for name, key in own.items() if key.required]},
    }


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
