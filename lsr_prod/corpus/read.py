"""A slice of the corpus becomes judged rows: streaming, in bounded memory, and no row is ever dropped unseen."""

import csv
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.arrow_rows import arrow_rows, parquet_batches, stream_batches
from lsr_prod.corpus.csv_rows import csv_rows
from lsr_prod.corpus.json_rows import json_rows
from lsr_prod.corpus.lines import decompressed
from lsr_prod.corpus.rows import BadRow, Document, RowBatch, shorten
from lsr_prod.corpus.slices import Slice
from lsr_prod.corpus.source_file import DamagedFileError
from lsr_prod.corpus.sources import cut_of
from lsr_prod.errors import SourceError, StorageError
from lsr_prod.storage import Store

__all__ = ["Reader", "guarded"]

_BLOCK = 1 << 20
# What the decoders raise over bytes that they do not understand. Arrow and gzip use a plain OSError for that too;
# trouble of the disk or the network is told apart by where it comes from (``_Watched``).
_DAMAGE = (pa.ArrowException, EOFError, zlib.error, csv.Error, UnicodeDecodeError, DamagedFileError, OSError)

_Row = tuple[int, Document | BadRow | None]  # None: a document that is not wanted
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads slices of one plan.

    Attributes:
        source: the section ``source``.
        cells: into how many cells documents are dealt.
        options: options of the object store.
        keep: the cells that are wanted, at least one; None: all.
    """

    source: SourceSettings
    cells: int
    options: dict[str, str]
    keep: frozenset[int] | None = None

    def read(self, piece: Slice) -> Iterator[pa.Table]:
        """Tables of ``rows.row_schema``, a few MB each, in source order.

        Bytes that do not decode end the slice: the rows before them stand, and one row with the reason
        ``damaged_file`` says what was found where.

        Raises:
            SourceError: the file is gone, has another size than the plan pinned, or cannot be read for now.
        """
        batch = RowBatch(self.source, piece.file, piece.ordinal, self.cells, self.keep)
        wants = batch.wants if self.keep is not None else None
        for position, row in guarded(piece, self.options, partial(self._decode, piece, wants)):
            if row is not None:
                batch.add(position, row)
            if batch.full:
                yield batch.take()
        yield batch.take()

    def _decode(self, piece: Slice, wants: Callable[[str], bool] | None, handle: BinaryIO) -> Iterator[_Row]:
        file, source = piece.file, self.source
        limit = 16 * source.max_text_bytes + _BLOCK  # escapes can make JSON six times as long as its text
        if file.format in ("parquet", "arrow"):
            columns = {source.column(name) for name in source.fields}
            constants = {name: value for name, value in file.constants if name in columns}
            batches = (
                parquet_batches(handle, piece.start, piece.stop, columns)
                if file.format == "parquet"
                else stream_batches(handle, columns)
            )
            yield from arrow_rows(batches, piece.first_row, constants, source, wants)
            return
        whole = cut_of(file, source) == "whole"
        start, stop = (0, None) if whole else (piece.start, piece.stop)
        with decompressed(handle, file.format) as plain:
            if file.format.startswith("jsonl"):
                yield from json_rows(plain, start, stop, source, limit)
            else:
                delimiter = "," if file.format.startswith("csv") else "\t"
                yield from csv_rows(plain, start, stop, delimiter, source, limit)


def guarded(
    piece: Slice, options: dict[str, str], decode: Callable[[BinaryIO], Iterator[tuple[int, T]]]
) -> Iterator[tuple[int, T | BadRow]]:
    """What ``decode`` makes of a slice's file, and a row ``damaged_file`` where its bytes do not decode further.

    Args:
        piece: the slice; its file has to have the size that was pinned.
        options: options of the object store.
        decode: (position, row) of every row of the slice in the open file.

    Raises:
        SourceError: the file is gone, has another size, or cannot be read for now.
    """
    file, store = piece.file, Store(piece.file.uri, options)
    try:
        if store.size(file.name) != file.size:
            raise SourceError(f"{file.location} is not as the plan pinned it ({file.size} bytes); run the job again")
        if file.size == 0:
            return
        with store.open_reader(file.name) as handle:
            yield from _undamaged(piece, _Watched(handle), decode)
    except (StorageError, FileNotFoundError) as error:
        raise SourceError(f"{file.location} cannot be read for now ({error}); run the job again") from error


def _undamaged(
    piece: Slice, watched: "_Watched", decode: Callable[[BinaryIO], Iterator[tuple[int, T]]]
) -> Iterator[tuple[int, T | BadRow]]:
    position, rows = piece.first_row if piece.file.format == "parquet" else piece.start, 0
    try:
        with io.BufferedReader(watched, _BLOCK) as handle:
            for at, row in decode(handle):
                yield at, row
                position, rows = at + 1, rows + 1
    except _DAMAGE as error:
        if isinstance(error, MemoryError):  # Arrow's is both
            raise
        if watched.failure is not None:
            failure = watched.failure
            raise SourceError(f"{piece.file.location} cannot be read for now ({failure}); run the job again") from error
        what = " ".join(str(error).split()) or type(error).__name__
        yield position, BadRow("damaged_file", shorten(f"{what}, after {rows} rows"), None, "")


class _Watched(io.RawIOBase):
    """A file that remembers that reading its bytes failed: what decoders make of such a failure varies."""

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
