"""Parse stored fields, which are strings, into typed attributes that queries filter by."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lsr_prod.errors import ConfigError
from lsr_prod.formats.attributes import ATTRIBUTE_TYPES, AttributeType, AttributeValue, parse_value


def check_attributes(attributes: Mapping[str, AttributeType], stored_fields: Sequence[str]) -> None:
    """Check that the sparse table stores every field of ``index.attributes``."""
    for name in attributes:
        if name not in stored_fields:
            stored = ", ".join(stored_fields) or "none"
            raise ConfigError(
                "index.attributes", f"the table does not store {name!r}", f"choose from its stored fields: {stored}"
            )


def parse_attributes(rows: pa.Table, attributes: Mapping[str, AttributeType]) -> tuple[list[pa.Array], dict[str, int]]:
    """Parse the attributes of rows from their stored fields with ``parse_value``.

    Missing values are null, and so are empty values of other types than string. Values that cannot be parsed become
    null and are counted.

    Returns:
        One array [rows] per attribute, in the order of ``attributes``; and the number of values that could not be
        parsed, by attribute, without zeros.
    """
    columns, unreadable = [], {}
    for name, kind in attributes.items():
        values = list(_values(rows[name].to_pylist(), kind))
        columns.append(pa.array((value for value, _ in values), ATTRIBUTE_TYPES[kind], size=len(values)))
        if bad := sum(not readable for _, readable in values):
            unreadable[name] = bad
    return columns, unreadable


def _values(texts: Sequence[str | None], kind: AttributeType) -> Iterator[tuple[AttributeValue | None, bool]]:
    for text in texts:
        if text is None or (kind != "string" and not text.strip()):
            yield None, True
            continue
        try:
            yield parse_value(text, kind), True
        except ValueError:
            yield None, False
