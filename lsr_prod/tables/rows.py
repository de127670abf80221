"""Rows of the sparse table. Every row is built here; the columns themselves are declared in ``formats.table``."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from lsr_prod.formats.table import TableProperties, content_keys, sparse_schema
from lsr_prod.tables.schema import large_strings


def part_schema(properties: TableProperties) -> pa.Schema:
    """Return the schema of the rows of a part in memory.

    The columns of the table without ``bucket``, which is in the path of the part; strings are ``large_string``.
    """
    schema = sparse_schema(properties.stored_fields, properties.impact_bits)
    return large_strings(schema.remove(schema.get_field_index("bucket")))


def content_columns(properties: TableProperties) -> list[str]:
    """Return the columns that the id and the text of a document determine; the others come with its source row."""
    others = ("source_file", *properties.stored_fields)
    return [name for name in part_schema(properties).names if name not in others]


def build_rows(
    properties: TableProperties,
    doc_ids: pa.Array | pa.ChunkedArray,
    vectors: tuple[npt.NDArray[Any], pa.Array, npt.NDArray[Any]],
    content_hashes: pa.Array | pa.ChunkedArray,
    source_files: pa.Array | pa.ChunkedArray,
    stored: Mapping[str, pa.Array | pa.ChunkedArray],
) -> pa.Table:
    """Build rows from encoded documents.

    Returns:
        Rows of ``part_schema``, in the order of ``doc_ids``.
    """
    schema = part_schema(properties)
    offsets, terms, impacts = pa.array(vectors[0], pa.int32()), vectors[1], vectors[2]
    terms_type, impacts_type = schema.field("terms").type, schema.field("impacts").type
    columns = {
        "doc_id": doc_ids,
        "terms": pa.ListArray.from_arrays(offsets, terms, type=terms_type),
        "impacts": pa.ListArray.from_arrays(offsets, pa.array(impacts, impacts_type.value_type), type=impacts_type),
        "content_hash": content_hashes,
        "content_key": content_keys(content_hashes.to_pylist()),
    }
    return _add_source(columns, source_files, stored, schema)


def replace_source(
    properties: TableProperties,
    rows: pa.Table,
    source_files: pa.Array | pa.ChunkedArray,
    stored: Mapping[str, pa.Array | pa.ChunkedArray],
) -> pa.Table:
    """Copy rows of the table whose documents now come from another source row, with their vectors."""
    columns = {name: rows[name] for name in content_columns(properties)}
    return _add_source(columns, source_files, stored, part_schema(properties))


def _add_source(
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    source_files: pa.Array | pa.ChunkedArray,
    stored: Mapping[str, pa.Array | pa.ChunkedArray],
    schema: pa.Schema,
) -> pa.Table:
    by_name = {**columns, "source_file": source_files, **stored}
    return pa.table([by_name[name] for name in schema.names], schema=schema)
