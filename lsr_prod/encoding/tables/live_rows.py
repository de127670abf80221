"""Read the rows of a part that are not deleted. Every reader of a table goes through this module.

Files of a snapshot as an Arrow table, one row per file: a table of a million files needs no million Python objects.

Columns: ``path`` (large_string), ``size`` (bytes), ``rows`` (null if another program wrote the file without a row
count), ``deleted`` (``VECTOR_TYPE``, where the deleted rows are stored; null: no row is deleted) and
``partition.<column>`` (large_string) of each partition column.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.encoding.tables.part import (
    DIGESTED,
    MODULUS,
    digest_batches,
    digest_in_name,
    large_strings,
    read_all_rows,
)
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.storage.deletion_vector import VECTOR_TYPE, DeletionVector, Rows, deleted_rows, file_of
from lsr_prod.storage.formats import digests, table_format

_PREFIX = "partition."
_BATCH = 4096


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that a snapshot names."""

    path: str  # inside the table
    size: int  # bytes
    # number of rows in the file, deleted rows included; None if another program wrote it without a row count
    rows: int | None
    partition: Mapping[str, str | None]  # value of each partition column, as text
    deleted: DeletionVector | None = None  # where the numbers of its deleted rows are stored; None: no row is deleted

    @property
    def live_rows(self) -> int | None:
        """Number of rows that are not deleted; None if another program wrote the file without a row count."""
        return self.rows if self.rows is None or self.deleted is None else self.rows - self.deleted.rows


def partition_column(name: str) -> str:
    """Return the name of the column with the values of a partition column."""
    return f"{_PREFIX}{name}"


def file_schema(partition_by: Sequence[str]) -> pa.Schema:
    """Return the columns of a table of files."""
    plain = [pa.field("path", pa.large_string()), pa.field("size", pa.int64()), pa.field("rows", pa.int64())]
    plain.append(pa.field("deleted", VECTOR_TYPE))
    return pa.schema([*plain, *(pa.field(partition_column(name), pa.large_string()) for name in partition_by)])


def to_files(files: pa.Table) -> list[TableFile]:
    """Return the rows of a table of files as Python objects, in their order."""
    names = [name.removeprefix(_PREFIX) for name in files.column_names if name.startswith(_PREFIX)]
    values = [files[partition_column(name)].to_pylist() for name in names]
    partitions = zip(*values, strict=True) if names else ((),) * files.num_rows
    plain = (files[name].to_pylist() for name in ("path", "size", "rows"))
    return [
        TableFile(path, size, rows, dict(zip(names, partition, strict=True)), vector)
        for path, size, rows, partition, vector in zip(*plain, partitions, _vectors(files["deleted"]), strict=True)
    ]


def files_with_paths(files: pa.Table, paths: Collection[str]) -> pa.Table:
    """Return the rows whose path is one of ``paths``."""
    return files.filter(pc.is_in(files["path"], value_set=pa.array([*paths], files.schema.field("path").type)))


def bucket_numbers(files: pa.Table) -> pa.ChunkedArray:
    """Return the bucket of each file of a table that is partitioned by ``bucket`` (int64)."""
    first = pa.scalar("0", pa.large_string())
    values = pc.fill_null(files[partition_column("bucket")], first)
    return pc.if_else(pc.equal(values, ""), first, values).cast(pa.int64())


def files_of_buckets(files: pa.Table, buckets: Collection[int]) -> pa.Table:
    """Return the files of some buckets."""
    return files.filter(pc.is_in(bucket_numbers(files), value_set=pa.array([*buckets], pa.int64())))


def total(files: pa.Table, column: str) -> int:
    """Return the sum of ``size`` or ``rows``; files without a row count add nothing."""
    return int(pc.sum(files[column], min_count=0).as_py())


def total_live_rows(files: pa.Table) -> int:
    """Return the number of rows that are not deleted; files without a row count add nothing."""
    return total(files, "rows") - total_deleted_rows(files.filter(files["rows"].is_valid()))


def total_deleted_rows(files: pa.Table) -> int:
    """Return the number of rows that are deleted, but still in the files."""
    return int(pc.sum(pc.struct_field(files["deleted"], "rows"), min_count=0).as_py())


def vector_column(paths: pa.ChunkedArray, vectors: Mapping[str, DeletionVector]) -> pa.Array:
    """Return the column ``deleted`` for paths of files."""
    values = pa.array([asdict(vector) for vector in vectors.values()], VECTOR_TYPE)
    return values.take(pc.index_in(paths, value_set=pa.array([*vectors], paths.type)).combine_chunks())


def vector_files(files: pa.Table) -> set[str]:
    """Return the paths of the files in which deletion vectors of a snapshot are stored."""
    stored = files["deleted"].filter(files["deleted"].is_valid())
    shared = stored.filter(pc.equal(pc.struct_field(stored, "storage"), "u"))
    names = pc.struct_field(shared, "data").unique().to_pylist()  # many vectors share a file
    return {file_of(DeletionVector("u", name, 0, 0, 0)) or "" for name in names}


def _vectors(column: pa.ChunkedArray) -> Iterable[DeletionVector | None]:
    if column.null_count == len(column):
        return (None,) * len(column)
    return (None if one is None else DeletionVector(**one) for one in column.to_pylist())


def read_part(store: Store, file: TableFile, schema: pa.Schema | None = None) -> pa.Table:
    """Read the rows of a part that are not deleted, in their order.

    Args:
        store: the table's folder.
        file: the part, as a snapshot names it.
        schema: columns to read and their types; None reads the part as it is.

    Raises:
        ArtifactError: the part or its deletion vector is missing or damaged.
    """
    rows = read_all_rows(store, file.path, schema)
    if file.deleted is None:
        return rows
    deleted = deleted_rows(store, file.deleted)
    if len(deleted) and deleted[-1] >= rows.num_rows:
        raise _too_short(store, file, int(deleted[-1]), rows.num_rows)
    return keep_rows(rows, deleted)


def live_batches(store: Store, file: TableFile, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part that are not deleted, in their order; one batch is in memory at a time.

    Args:
        store: the table's folder.
        file: the part, as a snapshot names it.
        columns: names, in the order of the batches.
        batch_rows: largest number of rows of a batch.

    Raises:
        ArtifactError: the part or its deletion vector is missing or damaged.
    """
    for batch, live in masked_batches(store, file, columns, batch_rows):
        yield batch if file.deleted is None else batch.filter(live)


def deleted_batches(store: Store, file: TableFile, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the deleted rows of a part; see ``live_batches``."""
    if file.deleted is not None:
        for batch, live in masked_batches(store, file, columns, batch_rows):
            yield batch.filter(pc.invert(live))


def keep_rows(table: pa.Table, deleted: Rows) -> pa.Table:
    """Return the rows of a whole part that are not deleted."""
    return table.filter(_mask(deleted, 0, table.num_rows)) if len(deleted) else table


def masked_batches(
    store: Store, file: TableFile, columns: Sequence[str], batch_rows: int
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Yield all rows of a part, and which of them are not deleted (bool)."""
    deleted: Rows = np.empty(0, np.uint32) if file.deleted is None else deleted_rows(store, file.deleted)
    end = 0
    damaged = digests.parsing(f"{store.uri}/{file.path} cannot be read", "encode the table again")
    with damaged, store.open_reader(file.path) as data, pq.ParquetFile(data) as part:
        for batch in part.iter_batches(batch_size=batch_rows, columns=list(columns)):
            start, end = end, end + batch.num_rows
            yield batch.select(list(columns)), _mask(deleted, start, end)
    if len(deleted) and deleted[-1] >= end:
        raise _too_short(store, file, int(deleted[-1]), end)


def _mask(deleted: Rows, start: int, end: int) -> pa.Array:
    """Return which of the rows ``start`` to ``end`` are not deleted, bool [end - start]."""
    first, last = np.searchsorted(deleted, [start, end])
    live = np.ones(end - start, np.bool_)
    live[deleted[first:last] - np.uint32(start)] = False
    return pa.array(live)


def _too_short(store: Store, file: TableFile, row: int, rows: int) -> ArtifactError:
    return ArtifactError(
        f"row {row} of {store.uri}/{file.path} is deleted, but it has {rows} rows; encode the table again"
    )


def part_schema(properties: table_format.TableProperties) -> pa.Schema:
    """Return the schema of the rows of a part in memory.

    The columns of the table without ``bucket``, which is in the path of the part; strings are ``large_string``.
    """
    schema = properties.schema
    return large_strings(schema.remove(schema.get_field_index("bucket")))


def content_columns(properties: table_format.TableProperties) -> list[str]:
    """Return the columns that the id and the text of a document determine; the others come with its source row."""
    others = ("source_file", *properties.stored_fields)
    return [name for name in part_schema(properties).names if name not in others]


def build_rows(
    properties: table_format.TableProperties,
    doc_ids: pa.Array | pa.ChunkedArray,
    vectors: tuple[np.typing.NDArray[Any], pa.Array, np.typing.NDArray[Any]],
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
        "content_key": table_format.content_keys(content_hashes.to_pylist()),
        "source_file": source_files,
        **stored,
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)


def replace_source(
    properties: table_format.TableProperties,
    rows: pa.Table,
    source_files: pa.Array | pa.ChunkedArray,
    stored: Mapping[str, pa.Array | pa.ChunkedArray],
) -> pa.Table:
    """Copy rows of the table whose documents now come from another source row, with their vectors."""
    columns = {name: rows[name] for name in content_columns(properties)} | {"source_file": source_files, **stored}
    schema = part_schema(properties)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def part_digest(store: Store, file: TableFile, *, verify: bool = False) -> int:
    """Return the digest of the rows of a part that are not deleted, below 2**256.

    Of a part with a digest in its name only the deleted rows are hashed, and subtracted; one batch of rows is in memory
    at a time.
    """
    named = None if verify else digest_in_name(file.path)
    if named is None:
        return digest_batches(live_batches(store, file, DIGESTED, _BATCH))
    return (named - digest_batches(deleted_batches(store, file, DIGESTED, _BATCH))) % MODULUS
