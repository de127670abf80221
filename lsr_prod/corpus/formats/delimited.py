"""CSV and TSV.

Fields are split as bytes (through Latin-1, which maps every byte to one character and back): a field that is not UTF-8
makes a bad row, not a damaged file.
"""

import csv
from collections.abc import Iterator

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.lines import Readable, lines
from lsr_prod.corpus.rows import RAW_LIMIT, BadRow, shorten
from lsr_prod.corpus.slices import Slice
from lsr_prod.corpus.source_file import DamagedFileError

__all__ = ["CSV", "TSV", "delimited_records"]

_BOM = b"\xef\xbb\xbf"
_Fields = tuple[int, list[bytes] | None, bytes]  # offset, fields (None: too long), first bytes


def delimited_records(
    file: Readable, start: int, stop: int | None, delimiter: str, source: SourceSettings, limit: int
) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every record that begins in ``[start, stop)``; the header and blank lines are skipped.

    Args:
        file: the plain bytes.
        start: first byte of the range; above 0 only without quotes.
        stop: end of the range (exclusive); None reads to the end.
        delimiter: character between two fields.
        source: header and quotes.
        limit: longest record in bytes.

    Raises:
        DamagedFileError: a quote is not closed, text follows a closing quote, or the header repeats a column.
    """
    header = source.header
    if header is None and start > 0:  # the header is in the first range of the file
        file.seek(0)
        header = _names(next(_plain_records(file, 0, None, delimiter, limit), None))
    records = (
        _quoted_records(file, delimiter, limit)
        if source.quotes
        else _plain_records(file, start, stop, delimiter, limit)
    )
    for at, fields, raw in records:
        if header is None:
            header = _names((at, fields, raw))
        else:
            yield at, _record(fields, header, raw)


def _record(fields: list[bytes] | None, header: list[str], raw: bytes) -> Record | BadRow:
    if fields is None:
        return BadRow("row_too_long", "the row is longer than any accepted text", None, shorten(raw))
    if len(fields) != len(header):
        return BadRow("wrong_field_count", f"{len(fields)} fields for {len(header)} columns", None, shorten(raw))
    return Record(dict(zip(header, fields, strict=True)), raw)


def _names(record: _Fields | None) -> list[str]:
    if record is None:
        return []
    _, fields, raw = record
    if fields is None:
        raise DamagedFileError(f"the header is longer than any accepted text; it begins with {shorten(raw[:80])!r}")
    names = [field.decode("utf-8", "replace") for field in fields]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DamagedFileError(f"the header has {repeated[0]!r} twice")
    return names


def _plain_records(file: Readable, start: int, stop: int | None, delimiter: str, limit: int) -> Iterator[_Fields]:
    for at, line, whole in lines(file, start, stop, limit):
        text = (line.removeprefix(_BOM) if at == 0 else line).removesuffix(b"\r")
        if text.strip():
            yield at, text.split(delimiter.encode()) if whole else None, text[:RAW_LIMIT]


def _quoted_records(file: Readable, delimiter: str, limit: int) -> Iterator[_Fields]:
    # The field limit is a setting of the whole process; it is only raised here, to the limit of a row.
    csv.field_size_limit(max(csv.field_size_limit(), limit))
    feed = _Feed(file, limit)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.begin()
        try:
            fields = next(reader, None)
        except csv.Error as error:
            advice = "close the quote, or set source.quotes: false where quotes are plain characters"
            raise DamagedFileError(f"the row at byte {feed.at} does not parse ({error}); {advice}") from error
        if fields is None:
            return
        if feed.too_long:
            yield feed.at, None, bytes(feed.raw)
        elif fields:
            yield feed.at, [field.encode("latin-1") for field in fields], bytes(feed.raw)


class _Feed:
    """Line iterator for ``csv.reader`` that remembers offset and first bytes of the current record."""

    def __init__(self, file: Readable, limit: int) -> None:
        self._lines = lines(file, 0, None, limit)
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        """Start a new record with the next line."""
        self.at, self.raw, self.too_long, self._size = -1, bytearray(), False, 0

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        at, line, whole = next(self._lines)
        if self.at < 0:
            self.at = at
            line = line.removeprefix(_BOM) if at == 0 else line
        self._size += len(line)
        if not whole or self._size > self._limit:
            if self._size > len(line) or b'"' in line:  # the record may end inside a quote
                raise DamagedFileError(f"the row at byte {self.at} is longer than any accepted text and has quotes")
            self.raw, self.too_long = bytearray(line[:RAW_LIMIT]), True
            return "\n"
        if len(self.raw) < RAW_LIMIT:
            self.raw += line[:RAW_LIMIT] + b"\n"
        return line.removesuffix(b"\r").decode("latin-1") + "\n"


def _format(name: str, delimiter: str) -> SourceFormat:
    def records(file: Readable, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
        return delimited_records(file, *piece.byte_range, delimiter, request.source, request.limit)

    # With quotes, a reader that starts in the middle cannot know whether it starts inside a field.
    return SourceFormat(name, (f".{name}",), records, splittable=lambda source: not source.quotes, training_data=False)


CSV, TSV = _format("csv", ","), _format("tsv", "\t")
