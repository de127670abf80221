"""Files of a snapshot as an Arrow table, one row per file: a table of a million files needs no million Python objects.

Columns: ``path`` (large_string), ``size`` (bytes), ``rows`` (null if another program wrote the file without a row
count) and ``partition.<column>`` (large_string) of each partition column.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "TableFile",
    "bucket_numbers",
    "file_schema",
    "files_of_buckets",
    "files_with_paths",
    "files_without_paths",
    "partition_column",
    "to_files",
    "total",
]

_PREFIX = "partition."


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that a snapshot names.

    Attributes:
        path: inside the table.
        size: bytes.
        rows: number of rows; None if another program wrote the file without a row count.
        partition: value of each partition column, as text.
    """

    path: str
    size: int
    rows: int | None
    partition: Mapping[str, str | None]


def partition_column(name: str) -> str:
    """Return the name of the column with the values of a partition column."""
    return f"{_PREFIX}{name}"


def file_schema(partition_by: Sequence[str]) -> pa.Schema:
    """Return the columns of a table of files."""
    plain = [pa.field("path", pa.large_string()), pa.field("size", pa.int64()), pa.field("rows", pa.int64())]
    return pa.schema([*plain, *(pa.field(partition_column(name), pa.large_string()) for name in partition_by)])


def to_files(files: pa.Table) -> list[TableFile]:
    """Return the rows of a table of files as Python objects, in their order."""
    names = [name.removeprefix(_PREFIX) for name in files.column_names if name.startswith(_PREFIX)]
    values = [files[partition_column(name)].to_pylist() for name in names]
    partitions = zip(*values, strict=True) if names else ((),) * files.num_rows
    plain = (files[name].to_pylist() for name in ("path", "size", "rows"))
    return [
        TableFile(path, size, rows, dict(zip(names, partition, strict=True)))
        for path, size, rows, partition in zip(*plain, partitions, strict=True)
    ]


def files_with_paths(files: pa.Table, paths: Collection[str]) -> pa.Table:
    """Return the rows whose path is one of ``paths``."""
    return files.filter(_has_path(files, paths))


def files_without_paths(files: pa.Table, paths: Collection[str]) -> pa.Table:
    """Return the rows whose path is none of ``paths``."""
    return files.filter(pc.invert(_has_path(files, paths))) if paths else files


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


def _has_path(files: pa.Table, paths: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(files["path"], value_set=pa.array([*paths], files.schema.field("path").type))
