"""Rows of typed columns, judged: Parquet by row groups, and the Arrow streams of saved datasets."""

import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.rows import BadRow, Document, TypedValue, judge
from lsr_prod.corpus.source_file import DamagedFileError

__all__ = ["arrow_rows", "column_values", "parquet_batches", "stream_batches"]

_ROWS = 256  # rows made into Python values at once
_BUFFER = 1 << 20  # a column of a row group is read in pieces of this size, and not whole
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def parquet_batches(handle: BinaryIO, start: int, stop: int, columns: set[str]) -> Iterator[pa.RecordBatch]:
    """The row groups ``[start, stop)``, or all if ``stop`` is negative, as small batches of the wanted columns.

    Raises:
        DamagedFileError: two columns have a wanted name.
    """
    with pq.ParquetFile(handle, buffer_size=_BUFFER, page_checksum_verification=True) as parquet:
        names = _wanted(parquet.schema_arrow.names, columns)
        # A batch would span two groups, and a damaged group would take good rows of the one before it along.
        for group in range(start, parquet.num_row_groups if stop < 0 else stop):
            yield from parquet.iter_batches(_ROWS, row_groups=[group], columns=names, use_threads=False)


def stream_batches(handle: BinaryIO, columns: set[str]) -> Iterator[pa.RecordBatch]:
    """An Arrow IPC stream as small batches of the wanted columns.

    Raises:
        DamagedFileError: after the last batch, if the stream does not say that it ends: it was cut between two
            batches. Or two columns have a wanted name.
    """
    with pa.ipc.open_stream(handle) as stream:
        names = _wanted(stream.schema.names, columns)
        for batch in stream:
            some = batch.select(names)
            _check_offsets(some)
            yield from (some.slice(first, _ROWS) for first in range(0, some.num_rows, _ROWS))
    handle.seek(-len(_END_OF_STREAM), io.SEEK_END)
    if handle.read() != _END_OF_STREAM:
        raise DamagedFileError("the stream ends without its end mark")


def arrow_rows(
    batches: Iterator[pa.RecordBatch],
    first: int,
    constants: dict[str, str | None],
    source: SourceSettings,
    wants: Callable[[str], bool] | None,
) -> Iterator[tuple[int, Document | BadRow | None]]:
    """(row number, row) of every row; None for a document that is not wanted.

    Args:
        batches: of a file, in order.
        first: number of the first row.
        constants: columns that have one value in the whole file.
        source: names the fields.
        wants: whether a document of that id is wanted; the texts of others are never touched. None: all are.
    """
    column, position = source.column(source.id_field), first
    for batch in batches:
        count, unwanted = batch.num_rows, set()
        if wants is not None and column in batch.schema.names:
            ids = column_values(batch.column(column), is_id=True)
            unwanted = {i for i in range(count) if not _may_be_wanted(ids[i], wants)}
            batch = batch.take(pa.array([i for i in range(count) if i not in unwanted], pa.int64()))
        values = {name: column_values(batch.column(name), is_id=name == column) for name in batch.schema.names}
        place = 0
        for i in range(count):
            if i in unwanted:
                yield position + i, None
                continue
            record = {name: value[place] for name, value in values.items()}
            yield position + i, judge(constants | record, source)
            place += 1
        position += count


def _wanted(names: list[str], columns: set[str]) -> list[str]:
    found = [name for name in names if name in columns]
    if len(set(found)) < len(found):
        raise DamagedFileError(f"a column of {', '.join(found)} is there twice")
    return found


def _check_offsets(batch: pa.RecordBatch) -> None:
    """A stream has no checksums: a flipped offset would have us read anywhere. UTF-8 is judged row by row."""
    views = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    for column in batch.columns:
        (column.view(views[column.type]) if column.type in views else column).validate(full=True)


def _may_be_wanted(doc_id: object, wants: Callable[[str], bool]) -> bool:
    """Rows without a readable id are dealt by their place: they stay for now."""
    if isinstance(doc_id, bytes):
        try:
            doc_id = doc_id.decode()
        except UnicodeDecodeError:
            return True
    return not isinstance(doc_id, str) or not doc_id or wants(doc_id)


def column_values(column: pa.Array, *, is_id: bool = False) -> list[Any]:
    """Values for ``judge``: strings as bytes, because Arrow does not check that those of a file are UTF-8.

    Args:
        column: of any type.
        is_id: integers become their decimal text.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    kind = column.type
    values: list[Any]
    if pa.types.is_null(kind):
        values = [None] * len(column)
    elif _is_text(kind):
        values = column.cast(pa.large_binary()).to_pylist()
    elif is_id and pa.types.is_integer(kind):
        values = column.cast(pa.string()).to_pylist()
    else:
        shown = column.cast(pa.string()).to_pylist() if _can_be_shown(kind) else [str(kind)] * len(column)
        valid = column.is_valid().to_pylist()
        values = [TypedValue(str(kind), text) if there else None for text, there in zip(shown, valid, strict=True)]
    return values


def _is_text(kind: pa.DataType) -> bool:
    views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
    return views or any(
        check(kind)
        for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _can_be_shown(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
