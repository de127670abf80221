"""JSON schemas of requests and results, made from their types; descriptions are the comments of ``Request``."""

import datetime as dt
import decimal
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lsr_prod.search.query.filters import OPERATORS, Filter
from lsr_prod.search.query.search_request import Hybrid, Options, Request
from lsr_prod.search.query.sparse_query import MAX_K

Schema = dict[str, Any]
_PLAIN: Mapping[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    **{kind: {"type": "string"} for kind in (dt.date, dt.datetime, decimal.Decimal)},
    Any: {},
}
_PAIR = [{"type": ["string", "integer"]}, {"type": "number", "minimum": 0}]
VECTOR: Schema = {
    "description": "weight by term of the output vocabulary, or pairs of term (string or id) and weight",
    "anyOf": [
        {"type": "object", "additionalProperties": _PAIR[1]},
        {"type": "array", "items": {"type": "array", "prefixItems": _PAIR, "minItems": 2, "maxItems": 2}},
    ],
}


def filter_schema(place: str) -> Schema:
    """Return the schema of a filter; ``place`` is where a reference finds this schema."""
    part = {"$ref": place}
    parts = {"type": "array", "minItems": 1, "items": part}
    with_value = [name for name in (*OPERATORS, "between") if name != "is_null"]
    forms: list[tuple[Schema, list[str]]] = [
        ({"field": {"type": "string"}, "op": {"enum": with_value}, "value": {}}, ["field", "op", "value"]),
        ({"field": {"type": "string"}, "op": {"const": "is_null"}}, ["field", "op"]),
        ({"and": parts}, ["and"]),
        ({"or": parts}, ["or"]),
        ({"not": part}, ["not"]),
        ({"text": {"type": "string"}}, ["text"]),
        ({"words": {"type": "string"}, "match": {"enum": ["all", "any"]}}, ["words"]),
    ]
    return {"anyOf": [object_schema(properties, required) for properties, required in forms]}


def schema_of(kind: Any, places: Mapping[Any, str] | None = None) -> Schema:
    """Return the schema of a type; a type of ``places`` is a reference to that place."""
    if kind in (places or {}):
        return {"$ref": (places or {})[kind]}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is tuple and Ellipsis not in parts:
        size = len(parts)
        items = [schema_of(part, places) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": size, "maxItems": size}
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": schema_of(parts[0], places)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(parts[1], places)}
    if parts and (origin is Union or "Union" in type(kind).__name__):
        return {"anyOf": [schema_of(part, places) for part in parts]}
    hints = get_type_hints(kind)
    return object_schema({name: schema_of(hint, places) for name, hint in hints.items()}, list(hints))


def option_schemas(filter_place: str) -> dict[str, Schema]:
    """Return the schema of ``k`` and of every option of a search, with default and description."""
    hints: dict[str, Any] = {"k": int, **get_type_hints(Options)}
    hybrid = object_schema({name: schema_of(hint) for name, hint in get_type_hints(Hybrid).items()}, [])
    found = {}
    for each in fields(Request):
        if each.name not in hints:
            continue
        kind = hints[each.name]
        if kind == Hybrid | None:
            schema: Schema = {"anyOf": [hybrid, _PLAIN[type(None)]]}
        else:
            schema = schema_of(kind, {Filter: filter_place})
        if each.default is not MISSING:
            schema["default"] = list(each.default) if isinstance(each.default, tuple) else each.default
        found[each.name] = {**schema, "description": _comments()[each.name]}
    found["k"].update(minimum=0, maximum=MAX_K)
    return found


@cache
def _comments() -> dict[str, str]:
    """Return the comment of each attribute of ``Request``: the lines before it, or the rest of its line."""
    found, before = {}, []
    for line in inspect.getsource(Request).splitlines():
        if (comment := re.match(r"    # (.*)", line)) is not None:
            before.append(comment[1])
        elif (declared := re.match(r"    (\w+): [^#]*(?:# (.*))?$", line)) is not None:
            found[declared[1]] = " ".join([*before, declared[2] or ""]).strip()
            before = []
        elif line.startswith("    def "):
            break
    return found


def object_schema(properties: Schema, required: list[str]) -> Schema:
    """Return the schema of an object without other entries."""
    rest = {"required": required} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **rest}
