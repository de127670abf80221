"""Stored fields, which are strings, become typed attributes that queries filter by."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lsr_prod.errors import ConfigError
from lsr_prod.formats.attributes import ATTRIBUTE_TYPES, AttributeType, AttributeValue, parse_value

__all__ = ["check_attributes", "parse_attributes"]


def check_attributes(attributes: Mapping[str, AttributeType], stored_fields: Sequence[str]) -> None:
    """Hold ``index.attributes`` against the fields that the sparse table stores.

    Raises:
        ConfigError: the table does not store a field.
    """
    for name in attributes:
        if name not in stored_fields:
            stored = ", ".join(stored_fields) or "none"
            raise ConfigError(
                "index.attributes", f"the table does not store {name!r}", f"give some of its fields: {stored}"
            )


def parse_attributes(rows: pa.Table, attributes: Mapping[str, AttributeType]) -> tuple[list[pa.Array], dict[str, int]]:
    """Read the attributes of a block of rows from its stored fields; the grammar is that of ``parse_value``.

    A value that is missing is null, and so is one that is empty where the type is not string. What does not parse
    becomes null too, and is counted.

    Args:
        rows: with a string column by the name of each attribute.
        attributes: type by name.

    Returns:
        One array [rows] an attribute, in the order of ``attributes``, and by attribute the values that did not parse;
        attributes without any are left out.
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
