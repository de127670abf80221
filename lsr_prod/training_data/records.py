"""Slices of training data become judged rows, through the readers of the corpus."""

from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.arrow_rows import column_values, parquet_batches
from lsr_prod.corpus.json_rows import json_records
from lsr_prod.corpus.lines import decompressed
from lsr_prod.corpus.read import guarded
from lsr_prod.corpus.rows import BadRow
from lsr_prod.corpus.slices import Slice
from lsr_prod.training_data.rows import TrainingRow, judge

__all__ = ["line_limit", "read_rows", "source_settings"]

_JSON_BYTES = 1 << 20


def source_settings(data: TrainingDataSettings) -> SourceSettings:
    """Training data as a source, for the functions that list and cut files."""
    columns = [data.column(field) for field in data.fields]
    return SourceSettings(
        paths=data.paths,
        format=data.format,
        version=data.version,
        id_field=columns[0],
        text_fields=columns,
        stored_fields=[],
    )


def line_limit(data: TrainingDataSettings) -> int:
    """Bytes of the longest line of JSON that is read: a row has many texts, and escapes make each longer."""
    return 64 * data.max_text_bytes + _JSON_BYTES


def read_rows(
    piece: Slice, data: TrainingDataSettings, options: dict[str, str], *, needs_negative: bool
) -> Iterator[tuple[int, TrainingRow | BadRow]]:
    """(position, row) of every row of a slice; a position is a byte of JSONL and a row number of Parquet.

    Args:
        piece: the slice.
        data: names and kind of the rows.
        options: options of the object store.
        needs_negative: a row without a negative is bad.

    Raises:
        SourceError: the file is gone, has another size than was pinned, or cannot be read for now.
    """
    decode = _parquet if piece.file.format == "parquet" else _jsonl
    return guarded(piece, options, partial(decode, piece, data, needs_negative))


def _jsonl(
    piece: Slice, data: TrainingDataSettings, needs_negative: bool, handle: BinaryIO
) -> Iterator[tuple[int, TrainingRow | BadRow]]:
    whole = piece.file.format != "jsonl"
    start, stop = (0, None) if whole else (piece.start, piece.stop)
    with decompressed(handle, piece.file.format) as plain:
        for at, line, record in json_records(plain, start, stop, line_limit(data)):
            yield (
                at,
                record if isinstance(record, BadRow) else judge(record, data, needs_negative=needs_negative, line=line),
            )


def _parquet(
    piece: Slice, data: TrainingDataSettings, needs_negative: bool, handle: BinaryIO
) -> Iterator[tuple[int, TrainingRow | BadRow]]:
    columns = {data.column(field) for field in data.fields}
    constants = {name: value for name, value in piece.file.constants if name in columns}
    position = piece.first_row
    for batch in parquet_batches(handle, piece.start, piece.stop, columns):
        values = {name: _values(batch.column(name)) for name in batch.schema.names}
        for row in range(batch.num_rows):
            record = constants | {name: value[row] for name, value in values.items()}
            yield position + row, judge(record, data, needs_negative=needs_negative)
        position += batch.num_rows


def _values(column: pa.Array) -> list[Any]:
    """Values for ``judge``: lists of strings and of numbers as Python has them, else what the corpus makes of them."""
    kind = column.type
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind) or pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.large_list(kind.value_type))
    elif not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return column_values(column)
    inner = column.flatten()  # without what null lists may hide
    if pa.types.is_floating(inner.type):
        items = inner.cast(pa.float64()).to_pylist()
    else:
        items = inner.to_pylist() if pa.types.is_integer(inner.type) else column_values(inner)
    lengths = column.value_lengths().to_pylist()
    values: list[Any] = []
    start = 0
    for length in lengths:
        values.append(None if length is None else items[start : start + length])
        start += length or 0
    return values
