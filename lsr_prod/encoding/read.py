"""A slice of the corpus becomes judged rows: streaming, in bounded memory, and no row is ever dropped."""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lsr_prod.config import SourceSettings
from lsr_prod.encoding.plan import Slice
from lsr_prod.encoding.rows import BadRow, Document, RowBatch, judge, shorten
from lsr_prod.encoding.sources import SourceFile
from lsr_prod.errors import SourceError
from lsr_prod.storage import Store

__all__ = ["Reader", "lines"]

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads slices of one plan.

    Attributes:
        files: the pinned corpus.
        source: the section ``source``.
        buckets: hash buckets of the table.
        options: options of the object store.
    """

    files: Sequence[SourceFile]
    source: SourceSettings
    buckets: int
    options: dict[str, str]

    def read(self, piece: Slice) -> Iterator[pa.Table]:
        """Tables of ``rows.row_schema``, a few MB each, in source order.

        Raises:
            SourceError: the file is gone, has another size than the plan pinned, or is damaged beyond single rows.
        """
        file = piece.file
        store = Store(file.uri, self.options)
        if store.size(file.name) != file.size:
            raise SourceError(f"{file.location} is not as the plan pinned it ({file.size} bytes); run the job again")
        batch = RowBatch(self.source, piece.ordinal, self.buckets)
        try:
            with store.open_reader(file.name) as handle:
                for position, row in self._rows(file, piece, handle):
                    batch.add(position, row)
                    if batch.full:
                        yield batch.take()
        except (pa.ArrowException, EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
            raise SourceError(f"{file.location} cannot be read to its end ({error}); mend or leave it out") from error
        if len(batch):
            yield batch.take()

    def _rows(self, file: SourceFile, piece: Slice, handle: BinaryIO) -> Iterator[tuple[int, Document | BadRow]]:
        if file.format == "parquet":
            yield from self._parquet_rows(file, piece, handle)
            return
        limit = 16 * self.source.max_text_bytes + _BLOCK  # escapes can make JSON six times as long as its text
        if file.format == "jsonl.gz":
            with gzip.open(handle) as plain:
                found = lines(plain, 0, None, limit)  # type: ignore[arg-type]
                yield from ((at, self._json_row(line, whole)) for at, line, whole in found)
            return
        for at, line, whole in lines(handle, piece.start, piece.stop, limit):
            yield at, self._json_row(line, whole)

    def _json_row(self, line: bytes, whole: bool) -> Document | BadRow:
        if not whole:
            return BadRow("row_too_long", "the line is longer than any accepted text", None, shorten(line))
        try:
            record = json.loads(line.decode())
        except UnicodeDecodeError as error:
            return BadRow("invalid_utf8", f"{error.reason} at byte {error.start} of the line", None, shorten(line))
        except (ValueError, RecursionError) as error:
            return BadRow("broken_json", str(error), None, shorten(line))
        if not isinstance(record, dict):
            return BadRow("not_an_object", f"the line holds a {type(record).__name__}", None, shorten(line))
        row = judge(record, self.source)
        return row if isinstance(row, Document) else BadRow(row.reason, row.detail, row.doc_id, shorten(line))

    def _parquet_rows(
        self, file: SourceFile, piece: Slice, handle: BinaryIO
    ) -> Iterator[tuple[int, Document | BadRow]]:
        parquet = pq.ParquetFile(handle)
        wanted = {self.source.id_field, *self.source.text_fields, *self.source.stored_fields}
        columns = [name for name in parquet.schema_arrow.names if name in wanted]
        constants = {name: value for name, value in file.constants if name in wanted}
        position = piece.first_row
        groups = range(piece.start, parquet.num_row_groups if piece.stop < 0 else piece.stop)
        for batch in parquet.iter_batches(batch_size=256, row_groups=list(groups), columns=columns):
            values = [_plain(column) for column in batch.columns]
            for i in range(batch.num_rows):
                record = {name: value[i] for name, value in zip(batch.schema.names, values, strict=True)}
                yield position, judge(constants | record, self.source)
                position += 1


def _plain(column: pa.Array) -> list[Any]:
    """Values as bytes: Arrow does not check that a string column of a file is UTF-8, ``judge`` does."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return [None] * len(column)
    binary = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    values: list[Any] = column.cast(binary).to_pylist()
    return values


def lines(file: BinaryIO, start: int, stop: int | None, limit: int) -> Iterator[tuple[int, bytes, bool]]:
    """The lines whose first byte lies in ``[start, stop)``; ranges that tile a file give every line exactly once.

    Args:
        file: seekable if ``start`` is above 0.
        start: first byte of the range.
        stop: the one after the last; None reads to the end.
        limit: longest line in bytes.

    Yields:
        (offset of the line, its bytes without the newline, whether they are all of it). Blank lines are no rows.
        Of a line longer than ``limit`` the first ``limit`` bytes come, and at most ``limit`` + 1 MiB are ever held.
    """
    offset, skipping = start, start > 0
    if skipping:  # the line that runs into this range belongs to the one before, unless it ends right before us
        offset = start - 1
        file.seek(offset)
    held, cut = bytearray(), False
    while stop is None or offset < stop or skipping:
        newline = held.find(b"\n")
        if newline < 0:
            block = file.read(_BLOCK)
            if not block and not held:
                return
            if block and (len(held) <= limit):
                held += block
                continue
            if block:  # too long: keep the head, let the rest go by
                head, length = bytes(held[:limit]), len(held)
                rest, tail = _skip_line(file, bytes(block))
                if not skipping:
                    yield offset, head, False
                offset, held, skipping = offset + length + rest, bytearray(tail), False
                continue
            newline = len(held)  # the last line has no newline
            cut = True
        line = bytes(held[:newline])
        del held[: newline + 1]
        if not skipping and line.strip():
            yield (offset, line, True) if len(line) <= limit else (offset, line[:limit], False)
        offset += newline + 1
        skipping = False
        if cut:
            return


def _skip_line(file: BinaryIO, block: bytes) -> tuple[int, bytes]:
    """Bytes up to and including the next newline, and what was read beyond it."""
    passed = 0
    while block:
        newline = block.find(b"\n")
        if newline >= 0:
            return passed + newline + 1, block[newline + 1 :]
        passed += len(block)
        block = file.read(_BLOCK)
    return passed, b""
