"""Rows of CSV and TSV whose fields may be quoted, with a way back to good rows after a row that does not parse.

``csv.reader`` parses the rows. A row that spans lines is believed only if every line of it but the last has its quotes
where RFC 4180 allows them, and if the row has as many fields as the header: one stray quote would otherwise swallow
good rows. After a row that does not parse, reading continues at the next line that begins such a row.

The search is linear: no line both opens a quote that stays open, and continues a quoted field that stays open, so a
line is part of at most two long searches.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator

from lsr_prod.corpus.compression import BOM, Readable, lines
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.rows import DAMAGED_ROW, RAW_LIMIT, BadRow, shorten

Row = tuple[int, list[bytes] | BadRow, bytes]
"""Offset; fields, or the bad row; first bytes."""

_ADVICE = "close the quote, or set source.csv.quotes: false where quotes are plain characters"
_STRAY = "it spans lines, and a line of it has a quote inside a field"
_CARRIAGE = "\ue00d"  # no character of Latin-1: the parser would end a row at a carriage return


_Line = tuple[int, bytes, bool]  # offset, bytes without the line feed, whether they are complete


class _UnclearRowError(Exception):
    """The row may end elsewhere than its quotes say."""


def too_long_row(raw: bytes) -> BadRow:
    """Return the bad row for a row that is longer than any accepted text."""
    return BadRow("row_too_long", "the row is longer than any accepted text", None, shorten(raw))


def quoted_rows(file: Readable, delimiter: str, limit: int, columns: int | None) -> Iterator[Row]:
    """Yield every row that is not blank.

    Yields:
        Offset, fields or a bad row, first bytes. A row that does not parse has the reason ``damaged_row``.
    """
    # The field limit is a setting of the whole process; it is only raised here, to the limit of a row.
    csv.field_size_limit(max(csv.field_size_limit(), limit))
    feed, mark = _Feed(file, delimiter, limit), delimiter.encode()
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while (line := feed.begin()) is not None:
        at, data, whole = line
        fields: list[bytes] | BadRow
        if b'"' not in data:
            data = data.removesuffix(b"\r")
            fields = data.split(mark) if whole else too_long_row(data)
            raw = data[:RAW_LIMIT]
        else:
            try:
                texts = next(reader)
                if feed.parsed == 1 and b"\r" not in data:
                    fields, raw = [text.encode("latin-1") for text in texts], data[:RAW_LIMIT]
                else:
                    fields, raw = feed.encoded(texts, columns), feed.raw
            except (csv.Error, _UnclearRowError) as error:
                if columns is None:
                    raise DamagedFileError(f"the header does not parse ({error}); {_ADVICE}", 0) from error
                problem, raw = f"the row at byte {at} does not parse ({error}); {_ADVICE}", feed.raw
                fields = BadRow(DAMAGED_ROW, problem, None, shorten(raw), unread=feed.skip(columns))
                reader = csv.reader(feed, delimiter=delimiter, strict=True)
        if raw:
            yield at, fields, raw
            if columns is None and isinstance(fields, list):
                columns = len(fields)


class _Feed:
    """Line iterator for ``csv.reader`` that keeps the lines of the current row, and can go back to them.

    Attributes:
        parsed: lines of the current row that ``csv.reader`` has got.
    """

    def __init__(self, file: Readable, delimiter: str, limit: int) -> None:
        self._file = _Counted(file)
        self._lines = lines(self._file, 0, None, limit)
        self._again: deque[_Line] = deque()
        self._grammar, self._delimiter, self._limit = _Grammar(delimiter), delimiter, limit
        self._row: list[_Line] = []
        self.parsed = self._size = 0

    def begin(self) -> _Line | None:
        """Start a new row, and return its first line; None: the file ends."""
        line = self._again.popleft() if self._again else next(self._lines, None)
        if line is not None:
            if not line[0]:
                line = (0, line[1].removeprefix(BOM), line[2])
            self._row, self.parsed = [line], 0
        return line

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        if self.parsed:
            if not self._grammar.stays_open(self._row[-1][1], first=self.parsed == 1):
                raise _UnclearRowError(_STRAY)
            self._row.append(self._again.popleft() if self._again else next(self._lines))
        else:
            self._size = 0
        _, data, whole = self._row[self.parsed]
        self.parsed += 1
        self._size += len(data)
        if not whole or self._size > self._limit:  # it may end inside a quote
            raise _UnclearRowError("it is longer than any accepted text and has quotes")
        return _parsable(data)

    @property
    def raw(self) -> bytes:
        """First bytes of the row."""
        return b"\n".join(data[:RAW_LIMIT] for _, data, _ in self._row[:RAW_LIMIT])[:RAW_LIMIT]

    def encoded(self, fields: list[str], columns: int | None) -> list[bytes]:
        """Return the bytes of the fields that ``csv.reader`` made of the row."""
        if self.parsed > 1:
            if columns is not None and len(fields) != columns:
                raise _UnclearRowError(f"{len(fields)} fields for {columns} columns, over several lines")
            if not self._grammar.ends_row(self._row[-1][1].removesuffix(b"\r"), first=False):
                raise _UnclearRowError(_STRAY)
        if any(b"\r" in data for _, data, _ in self._row):
            fields = [field.replace(_CARRIAGE, "\r") for field in fields]
        return [field.encode("latin-1") for field in fields]

    def skip(self, columns: int) -> int:
        """Go back behind the first line of the row, then skip lines up to the next one that begins a good row.

        Returns:
            The number of skipped bytes.
        """
        self._again.extendleft(reversed(self._row[1:]))
        first: int | None = None
        while (line := next(self._ahead(), None)) is not None:
            first = line[0] if first is None else first
            if self._begins_row(columns):
                return line[0] - first
            self._again.popleft()
        return 0 if first is None else self._file.size - first

    def _begins_row(self, columns: int) -> bool:
        """Return whether the next line is, or begins, a row that parses, with its quotes where they are allowed."""
        row: list[str] = []
        size = 0
        for _, data, whole in self._ahead():
            size += len(data) + 1
            if not whole or size > self._limit:
                return False
            row.append(_parsable(data))
            if self._grammar.ends_row(data.removesuffix(b"\r"), first=len(row) == 1):
                return [len(fields) for fields in csv.reader(row, delimiter=self._delimiter, strict=True)] == [columns]
            if not self._grammar.stays_open(data, first=len(row) == 1):
                return False
        return False

    def _ahead(self) -> Iterator[_Line]:
        """Yield the lines after the current one, without taking them."""
        yield from self._again
        for line in self._lines:
            self._again.append(line)
            yield line


def _parsable(line: bytes) -> str:
    text = line.removesuffix(b"\r").decode("latin-1")
    return (text.replace("\r", _CARRIAGE) if "\r" in text else text) + "\n"


class _Counted:
    """Plain bytes that are counted."""

    def __init__(self, file: Readable) -> None:
        self._file, self.size = file, 0

    def read1(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        data = self._file.read1(size)
        self.size += len(data)
        return data

    def seek(self, offset: int, /) -> int:
        """Set the position."""
        return self._file.seek(offset)


class _Grammar:
    """Lines of rows whose quotes are where RFC 4180 allows them; a quote in a plain field is not."""

    def __init__(self, delimiter: str) -> None:
        mark = re.escape(delimiter.encode())
        inside = rb'(?:[^"]++|"")*+'
        field = rb'(?:"%b"|[^"%b]*+)' % (inside, mark)
        rest = rb"(?:%b%b)*+" % (mark, field)
        opening = rb'(?:%b%b)*+"%b' % (field, mark, inside)
        self._opens = re.compile(opening)
        self._continues = re.compile(rb'%b(?:"%b%b)?' % (inside, mark, opening))
        self._row = re.compile(field + rest)
        self._closes = re.compile(inside + b'"' + rest)

    def stays_open(self, line: bytes, *, first: bool) -> bool:
        """Return whether a quoted field is open at the end of the line, which begins the row or is in such a field."""
        return (self._opens if first else self._continues).fullmatch(line) is not None

    def ends_row(self, line: bytes, *, first: bool) -> bool:
        """Return whether the row ends with the line, which begins the row or is in a quoted field."""
        return (self._row if first else self._closes).fullmatch(line) is not None
