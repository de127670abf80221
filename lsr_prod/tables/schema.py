"""Convert an Arrow schema to readable JSON and back; only column types that our tables use are supported."""

from typing import Any

import pyarrow as pa

from lsr_prod.errors import ArtifactError

__all__ = ["schema_from_json", "schema_to_json"]

_PLAIN = {str(kind): kind for kind in (pa.string(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.bool_())}


def schema_to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return one object per column: name, type, nullable.

    Raises:
        ArtifactError: the type of a column is not supported.
    """
    return [{"name": field.name, "type": _name(field), "nullable": field.nullable} for field in schema]


def schema_from_json(columns: list[dict[str, Any]]) -> pa.Schema:
    """Return the schema that ``schema_to_json`` converted."""
    return pa.schema([pa.field(column["name"], _type(column["type"]), column["nullable"]) for column in columns])


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
