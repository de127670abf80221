"""Columns of a table whose files have other names for them, or numbers (``SourceFile.columns``)."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lsr_prod.corpus.formats.arrow import field_at

Columns = tuple[tuple[str, str | int], ...]
_NUMBER = b"PARQUET:field_id"


def names_in_file(schema: pa.Schema, columns: Columns) -> dict[str, str]:
    """Return the name or dotted path in a file of every column of a table that the file has."""
    return {name: path for name, path, _ in _found(schema, columns)}


def named_as_in_table(schema: pa.Schema, columns: Columns) -> pa.Schema:
    """Return the columns of a file with their names in the table."""
    return pa.schema([field.with_name(name) for name, _, field in _found(schema, columns)]) if columns else schema


def _found(schema: pa.Schema, columns: Columns) -> Iterator[tuple[str, str, pa.Field]]:
    numbered = dict(_numbered(schema))
    for name, inside in columns:
        path = numbered.get(inside, "") if isinstance(inside, int) else inside
        if (field := field_at(schema, path)) is not None:
            yield name, path, field


def _numbered(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[int, str]]:
    for field in fields:
        if _NUMBER in (field.metadata or {}):
            yield int(field.metadata[_NUMBER]), above + field.name
        if pa.types.is_struct(field.type):
            yield from _numbered(field.type, f"{above}{field.name}.")
