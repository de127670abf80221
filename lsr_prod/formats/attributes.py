"""Typed attributes, by which documents are filtered: columns ``attribute.<name>`` of ``docs.arrow``."""

import datetime as dt
import math
import re
from typing import Literal

import pyarrow as pa

from lsr_prod.errors import ArtifactError

AttributeType = Literal["string", "int64", "float64", "bool", "timestamp"]
AttributeValue = str | int | float | bool | dt.datetime

ATTRIBUTE_TYPES: dict[AttributeType, pa.DataType] = {
    "string": pa.large_string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
MAX_STRING_BYTES = 65_530  # of UTF-8; Tantivy silently drops a longer term

_PREFIX = "attribute."
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOL = {"true": True, "1": True, "false": False, "0": False}


def attribute_column(name: str) -> str:
    """Return the name of the column of ``docs.arrow`` and of the Tantivy field with an attribute."""
    return _PREFIX + name


def attribute_types(schema: pa.Schema) -> dict[str, AttributeType]:
    """Return the type of each attribute, by name, in the schema of ``docs.arrow``."""
    names = {arrow: name for name, arrow in ATTRIBUTE_TYPES.items()}
    found: dict[str, AttributeType] = {}
    for column in schema:
        if column.name.startswith(_PREFIX):
            if column.type not in names:
                raise ArtifactError(f"column {column.name!r} has type {column.type}; build the index again")
            found[column.name.removeprefix(_PREFIX)] = names[column.type]
    return found


def parse_value(text: str, kind: AttributeType) -> AttributeValue:
    """Parse a value of an attribute; spaces around it are part of strings only.

    int64: decimal digits with an optional sign. float64: decimal or scientific, finite; -0 becomes 0. bool: true,
    false, 1 or 0. timestamp: ISO 8601 with a date at least, in UTC if it has no offset; digits below a microsecond are
    dropped. string: up to 65,530 bytes of UTF-8.

    Returns:
        str, int, float, bool, or a datetime in UTC.
    """
    if kind == "string":
        if len(text) > MAX_STRING_BYTES // 4 and len(text.encode()) > MAX_STRING_BYTES:
            raise ValueError(f"longer than {MAX_STRING_BYTES} bytes")
        return text
    text = text.strip()
    match kind:
        case "int64" if _INTEGER.fullmatch(text) and -(1 << 63) <= (number := int(text)) < 1 << 63:
            return number
        case "float64" if _FLOAT.fullmatch(text) and math.isfinite(real := float(text)):
            return real + 0.0
        case "bool" if text.lower() in _BOOL:
            return _BOOL[text.lower()]
        case "timestamp":
            return _parse_timestamp(text)
    raise ValueError(f"{text[:80]!r} is no {kind}")


def _parse_timestamp(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        return moment.replace(tzinfo=dt.UTC)
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError as error:
        raise ValueError(f"{text[:80]!r} is outside the years 1 to 9999") from error
