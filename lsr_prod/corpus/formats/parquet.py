"""Parquet files, cut between row groups."""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.corpus.formats.arrow import BATCH_ROWS, select_columns, typed_records
from lsr_prod.corpus.formats.interface import Decoded, Footer, ReadRequest, SourceFormat
from lsr_prod.corpus.slices import Slice

__all__ = ["PARQUET", "parquet_batches"]

_BUFFER = 1 << 20  # bytes of a column of a row group that are read at once


def parquet_batches(handle: BinaryIO, start: int, stop: int, columns: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yield the row groups ``[start, stop)``, or all if ``stop`` is negative, as small batches of the given columns.

    Raises:
        DamagedFileError: two columns have the same name.
    """
    with pq.ParquetFile(handle, buffer_size=_BUFFER, page_checksum_verification=True) as parquet:
        names = select_columns(parquet.schema_arrow.names, columns)
        # Group by group: a batch of two groups would lose good rows of the first one if the second one is damaged.
        for group in range(start, parquet.num_row_groups if stop < 0 else stop):
            yield from parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=names, use_threads=False)


def _records(handle: BinaryIO, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
    batches = parquet_batches(handle, piece.start, piece.stop, request.columns)
    return typed_records(batches, piece.first_row, dict(piece.file.constants), request)


def _footer(handle: BinaryIO) -> Footer:
    with pq.ParquetFile(handle) as parquet:
        footer = parquet.metadata
        groups = map(footer.row_group, range(footer.num_row_groups))
        sizes = tuple((group.num_rows, group.total_byte_size) for group in groups)
        return Footer(parquet.schema_arrow, sizes)


PARQUET = SourceFormat("parquet", (".parquet",), _records, compressible=False, footer=_footer)
