"""Files of a snapshot as an Arrow table, one row per file: a table of a million files needs no million Python objects.

Columns: ``path`` (large_string), ``size`` (bytes), ``rows`` (null if another program wrote the file without a row
count), ``deleted`` (``VECTOR_TYPE``, where the deleted rows are stored; null: no row is deleted) and
``partition.<column>`` (large_string) of each partition column.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.tables.deletion_vector import VECTOR_TYPE, DeletionVector, file_of

_PREFIX = "partition."


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that a snapshot names.

    Attributes:
        path: inside the table.
        size: bytes.
        rows: number of rows in the file, deleted rows included; None if another program wrote it without a row count.
        partition: value of each partition column, as text.
        deleted: where the numbers of its deleted rows are stored; None: no row is deleted.
    """

    path: str
    size: int
    rows: int | None
    partition: Mapping[str, str | None]
    deleted: DeletionVector | None = None

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
    places = pc.index_in(paths, value_set=pa.array([*vectors], paths.type))
    return values.take(places.combine_chunks())


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
