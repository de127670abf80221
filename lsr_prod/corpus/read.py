"""Slices become records, and records of a corpus become validated rows: streaming, in bounded memory, without loss."""

import csv
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.lines import decompressed
from lsr_prod.corpus.rows import BadRow, RowBatch, shorten, validate
from lsr_prod.corpus.slices import Slice
from lsr_prod.corpus.source_file import DamagedFileError
from lsr_prod.errors import SourceError, StorageError
from lsr_prod.storage import Store

__all__ = ["Reader", "read_records"]

_BLOCK = 1 << 20
# Exceptions of the decoders for bytes that they do not understand. Arrow and gzip raise a plain OSError for that too;
# failures of the disk or the network are recognized by their origin (``_WatchedFile``).
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
            SourceError: the file was deleted, has another size than the plan pinned, or cannot be read for now.
        """
        source = self.source
        batch = RowBatch(source, piece.file, piece.ordinal, self.cells, self.keep)
        request = ReadRequest(
            source=source,
            columns=frozenset(source.column(name) for name in source.fields),
            limit=16 * source.max_text_bytes + _BLOCK,  # escapes can make JSON six times as long as its text
            ids=frozenset({source.column(source.id_field)}),
            wants=batch.wants if self.keep is not None else None,
        )
        for position, record in read_records(piece, request, self.options):
            if record is not None:
                row = record if isinstance(record, BadRow) else validate(record.values, source, line=record.line)
                batch.add(position, row)
            if batch.full:
                yield batch.take()
        yield batch.take()


def read_records(piece: Slice, request: ReadRequest, options: dict[str, str]) -> Iterator[Decoded]:
    """Yield (position, record) of a slice, and one row ``damaged_file`` if its bytes do not decode further.

    Args:
        piece: the slice; its file has to have the size that was pinned.
        request: columns and form of their values.
        options: options of the object store.

    Raises:
        SourceError: the file was deleted, has another size, or cannot be read for now.
    """
    file, store = piece.file, Store(piece.file.uri, options)
    try:
        if store.size(file.name) != file.size:
            raise SourceError(f"{file.location} is not as the plan pinned it ({file.size} bytes); run the job again")
        if file.size == 0:
            return
        with store.open_reader(file.name) as handle:
            yield from _undamaged(piece, request, _WatchedFile(handle))
    except (StorageError, FileNotFoundError) as error:
        raise SourceError(f"{file.location} cannot be read for now ({error}); run the job again") from error


def _undamaged(piece: Slice, request: ReadRequest, watched: "_WatchedFile") -> Iterator[Decoded]:
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
            failure = watched.failure
            raise SourceError(f"{piece.file.location} cannot be read for now ({failure}); run the job again") from error
        problem = " ".join(str(error).split()) or type(error).__name__
        yield position, BadRow("damaged_file", shorten(f"{problem}, after {rows} rows"), None, "")


class _WatchedFile(io.RawIOBase):
    """File that records a failure to read its bytes: decoders raise different exceptions for such a failure."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self.failure: OSError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._handle.tell()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._handle.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int:
        try:
            return int(self._handle.readinto(buffer))  # type: ignore[attr-defined]
        except OSError as error:
            self.failure = error
            raise
