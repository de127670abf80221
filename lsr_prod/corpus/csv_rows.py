"""Rows of CSV and TSV, judged.

Fields are split as bytes (through Latin-1, which maps every byte to one character and back), so that a field that is no
UTF-8 is a bad row and not a broken file.
"""

import csv
from collections.abc import Iterator

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.lines import Readable, lines
from lsr_prod.corpus.rows import RAW_LIMIT, BadRow, Document, judge, shorten
from lsr_prod.corpus.source_file import DamagedFileError

__all__ = ["csv_rows"]

_BOM = b"\xef\xbb\xbf"
_Record = tuple[int, list[bytes] | None, bytes]  # offset, fields or None where it is too long, how it begins


def csv_rows(
    file: Readable, start: int, stop: int | None, delimiter: str, source: SourceSettings, limit: int
) -> Iterator[tuple[int, Document | BadRow]]:
    """(offset, row) of every record that begins in ``[start, stop)``; the header and blank lines are no rows.

    Args:
        file: the plain bytes.
        start: first byte of the range; above 0 only for a table without quotes.
        stop: the one after the last; None reads to the end.
        delimiter: what stands between two fields.
        source: names the fields; says whether there are a header and quotes.
        limit: longest record in bytes.

    Raises:
        DamagedFileError: a quote is never closed or text follows a closed one, or the header repeats a column.
    """
    header = source.header
    if header is None and start > 0:  # it stands at the beginning, which belongs to another range
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
            yield at, _judge(fields, header, raw, source)


def _judge(fields: list[bytes] | None, header: list[str], raw: bytes, source: SourceSettings) -> Document | BadRow:
    if fields is None:
        return BadRow("row_too_long", "the row is longer than any accepted text", None, shorten(raw))
    if len(fields) != len(header):
        return BadRow("wrong_field_count", f"{len(fields)} fields for {len(header)} columns", None, shorten(raw))
    row = judge(dict(zip(header, fields, strict=True)), source)
    return row if isinstance(row, Document) else BadRow(row.reason, row.detail, row.doc_id, shorten(raw))


def _names(record: _Record | None) -> list[str]:
    if record is None:
        return []
    _, fields, raw = record
    if fields is None:
        raise DamagedFileError(f"the header is longer than any accepted text; it begins with {shorten(raw[:80])!r}")
    names = [field.decode("utf-8", "replace") for field in fields]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DamagedFileError(f"the header has {repeated[0]!r} twice")
    return names


def _plain_records(file: Readable, start: int, stop: int | None, delimiter: str, limit: int) -> Iterator[_Record]:
    for at, line, whole in lines(file, start, stop, limit):
        text = (line.removeprefix(_BOM) if at == 0 else line).removesuffix(b"\r")
        if text.strip():
            yield at, text.split(delimiter.encode()) if whole else None, text[:RAW_LIMIT]


def _quoted_records(file: Readable, delimiter: str, limit: int) -> Iterator[_Record]:
    # The limit of a field is one for the process; it is only ever raised here, to that of a row.
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
    """Hands lines to ``csv.reader`` and remembers where the record in hand began."""

    def __init__(self, file: Readable, limit: int) -> None:
        self._lines = lines(file, 0, None, limit)
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        """What comes next belongs to a new record."""
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
            if self._size > len(line) or b'"' in line:  # it may have ended inside of a quote
                raise DamagedFileError(f"the row at byte {self.at} is longer than any accepted text and has quotes")
            self.raw, self.too_long = bytearray(line[:RAW_LIMIT]), True
            return "\n"
        if len(self.raw) < RAW_LIMIT:
            self.raw += line[:RAW_LIMIT] + b"\n"
        return line.removesuffix(b"\r").decode("latin-1") + "\n"
