"""Read the rows of a part that are not deleted. Every reader of a table goes through this module."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store
from lsr_prod.tables.deletion_vector import Rows, deleted_rows
from lsr_prod.tables.file_table import TableFile
from lsr_prod.tables.part import read_all_rows


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
    if file.deleted is None:
        yield from _all_batches(store, file, columns, batch_rows)
        return
    for batch, live in _masked_batches(store, file, columns, batch_rows):
        yield batch.filter(live)


def deleted_batches(store: Store, file: TableFile, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the deleted rows of a part; see ``live_batches``."""
    if file.deleted is not None:
        for batch, live in _masked_batches(store, file, columns, batch_rows):
            yield batch.filter(pc.invert(live))


def keep_rows(table: pa.Table, deleted: Rows) -> pa.Table:
    """Return the rows of a whole part that are not deleted."""
    return table.filter(_mask(deleted, 0, table.num_rows)) if len(deleted) else table


def _masked_batches(
    store: Store, file: TableFile, columns: Sequence[str], batch_rows: int
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """Yield all rows of a part, and which of them are not deleted (bool)."""
    assert file.deleted is not None
    deleted = deleted_rows(store, file.deleted)
    end = 0
    for batch in _all_batches(store, file, columns, batch_rows):
        start, end = end, end + batch.num_rows
        yield batch, _mask(deleted, start, end)
    if len(deleted) and deleted[-1] >= end:
        raise _too_short(store, file, int(deleted[-1]), end)


def _all_batches(store: Store, file: TableFile, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    try:
        with store.open_reader(file.path) as data, pq.ParquetFile(data) as part:
            for batch in part.iter_batches(batch_size=batch_rows, columns=list(columns)):
                yield batch.select(list(columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{store.uri}/{file.path} cannot be read ({error}); encode the table again") from error


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
