"""Slices become records, and records of a corpus become validated rows: streaming, in bounded memory, without loss."""

import csv
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.lines import decompressed
from lsr_prod.corpus.pinned_file import WatchedFile, open_pinned
from lsr_prod.corpus.rows import BadRow, RowBatch, shorten, validate
from lsr_prod.corpus.slices import Slice
from lsr_prod.corpus.source_file import DamagedFileError

__all__ = ["Reader", "read_records", "read_request"]

_BLOCK = 1 << 20
# Exceptions of the decoders for bytes that they do not understand. Arrow and gzip raise a plain OSError for that too;
# failures of the disk or the network are recognized by their origin (``WatchedFile``).
_DAMAGE = (pa.ArrowException, EOFError, zlib.error, csv.Error, UnicodeDecodeError, DamagedFileError, OSError)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads slices of one plan.

    Attributes:
        source: the section ``source``.
        cells: number of cells that documents are assigned to.
        options: options of the object store.
        keep: cells to read, at least one; None: all.
    """

    source: SourceSettings
    cells: int
    options: dict[str, str]
    keep: frozenset[int] | None = None

    def read(self, piece: Slice) -> Iterator[pa.Table]:
        """Yield tables of ``rows.row_schema``, a few MB each, in source order.

        Bytes that do not decode end the slice: rows before them are kept, and one row with the reason ``damaged_file``
        has the error and its place.

        Raises:
            SourceError: the file is missing or has changed since it was pinned, or cannot be read for now.
        """
        source = self.source
        batch = RowBatch(source, piece.file, piece.ordinal, self.cells, self.keep)
        request = read_request(source, batch.wants if self.keep is not None else None)
        for position, record in read_records(piece, request, self.options):
            if record is not None:
                row = record if isinstance(record, BadRow) else validate(record.values, source, line=record.line)
                batch.add(position, row)
            if batch.full:
                yield batch.take()
        yield batch.take()


def read_request(source: SourceSettings, wants: Callable[[str], bool] | None = None) -> ReadRequest:
    """Return the values to read for documents.

    Args:
        source: the section ``source``.
        wants: returns whether the document with an id is wanted (``ReadRequest.wants``); None: all are.
    """
    return ReadRequest(
        source=source,
        columns=frozenset(source.column(name) for name in source.fields),
        limit=16 * source.max_text_bytes + _BLOCK,  # escapes can make JSON six times as long as its text
        ids=frozenset({source.column(source.id_field)}),
        wants=wants,
    )


def read_records(piece: Slice, request: ReadRequest, options: dict[str, str]) -> Iterator[Decoded]:
    """Yield (position, record) of a slice, and one row ``damaged_file`` if its bytes do not decode further.

    Args:
        piece: the slice; its file has to be as it was pinned.
        request: columns and form of their values.
        options: options of the object store.

    Raises:
        SourceError: the file is missing or has changed since it was pinned, or cannot be read for now.
    """
    with open_pinned(piece.file, options) as watched:
        if piece.file.size:
            yield from _undamaged(piece, request, watched)


def _undamaged(piece: Slice, request: ReadRequest, watched: WatchedFile) -> Iterator[Decoded]:
    decoder = file_format(piece.file.format)
    position, rows = piece.start if decoder.footer is None else piece.first_row, 0
    try:
        with io.BufferedReader(watched, _BLOCK) as handle, decompressed(handle, piece.file.format) as plain:
            for at, record in decoder.records(plain, piece, request):
                yield at, record
                position, rows = at + 1, rows + 1
    except _DAMAGE as error:
        if isinstance(error, MemoryError):  # Arrow's MemoryError is an ArrowException too
            raise
        if watched.failure is not None:
            raise  # no damage: ``open_pinned`` reports the failure
        problem = " ".join(str(error).split()) or type(error).__name__
        yield position, BadRow("damaged_file", shorten(f"{problem}, after {rows} rows"), None, "")
