"""Convert an Arrow schema to readable JSON and back, and to the string types that rows have in memory.

Tables store columns of the type ``string``, whose offsets address 2 GiB of text per Arrow array. Rows in memory have
``large_string`` instead, so that arrays can be joined and rows taken however much text there is.
"""

from typing import Any

import pyarrow as pa

from lsr_prod.errors import ArtifactError

_PLAIN = {str(kind): kind for kind in (pa.string(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.bool_())}


def schema_to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return one object per column: name, type, nullable."""
    return [{"name": field.name, "type": _name(field), "nullable": field.nullable} for field in schema]


def schema_from_json(columns: list[dict[str, Any]]) -> pa.Schema:
    """Return the schema that ``schema_to_json`` converted."""
    return pa.schema([pa.field(column["name"], _type(column["type"]), column["nullable"]) for column in columns])


def large_strings(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``large_string`` in place of ``string``: that of rows in memory."""
    return _with_strings(schema, pa.large_string())


def stored_strings(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``string`` in place of ``large_string``: that of stored rows."""
    return _with_strings(schema, pa.string())


def _with_strings(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    for place, field in enumerate(schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            schema = schema.set(place, field.with_type(kind))
    return schema


def _name(field: pa.Field) -> str:
    if pa.types.is_list(field.type) and str(field.type.value_type) in _PLAIN:
        return f"list<{field.type.value_type}>"
    if str(field.type) not in _PLAIN:
        raise ArtifactError(
            f"column {field.name} is {field.type}; tables support {', '.join(_PLAIN)} and lists of them"
        )
    return str(field.type)


def _type(name: str) -> pa.DataType:
    element = name.removeprefix("list<").removesuffix(">")
    if element not in _PLAIN:
        raise ArtifactError(
            f"the table's log names the column type {name!r}, which this release does not know; use a newer release"
        )
    return pa.list_(pa.field("element", _PLAIN[element], nullable=False)) if element != name else _PLAIN[name]
