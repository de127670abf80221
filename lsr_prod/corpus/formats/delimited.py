"""CSV and TSV: records with the names of the header, from rows whose fields may be quoted.

Fields are split as bytes (through Latin-1, which maps every byte to one character and back): a field that is not UTF-8
makes a bad row, not a damaged file.

``csv.reader`` parses rows with quotes. A row that spans lines is accepted only if every line of it but the last has
its quotes where RFC 4180 allows them, and if the row has as many fields as the header: one stray quote would otherwise
swallow good rows. After a row that does not parse, reading continues at the next line that begins such a row. The
search for that line is linear: no line both opens a quote that stays open, and continues a quoted field that stays
open, so a line is part of at most two long searches.

Characters that the parser must not see, such as an escaped quote, are private characters of Unicode until the row is
parsed: lines are parsed as Latin-1, which has none.
"""

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from lsr_prod.config import CsvSettings, SourceSettings, corpus
from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.lines import BOM, Counted, Line, WideText, lines, narrow, text_lines, to_utf8
from lsr_prod.corpus.pinned_file import DamagedFileError, Slice
from lsr_prod.corpus.source_rows import DAMAGED_ROW, RAW_LIMIT, BadRow, shorten

Row = tuple[int, list[bytes] | BadRow, bytes]
"""Offset; fields, or the bad row; first bytes."""

_HEADER = 1 << 20  # bytes of the longest header

_ADVICE = "close the quote, or set source.csv.quotes: false where quotes are plain characters"
_ESCAPE_ADVICE = "it has a backslash before a quote: set source.csv.escape: '\\' if that makes the quote a character"
_STRAY = "it spans lines, and a line of it has a quote inside a field"

# A character of Latin-1 that the parser must not see is replaced by the one whose code is higher by this number.
_HIDDEN = 0xE000
_ESCAPED_END = "\ue00a"  # an escape character at the end of a line: it counts only before a line end inside quotes


class _UnclearRowError(Exception):
    """The row may end elsewhere than its quotes say."""


def delimited_records(
    file: Readable, start: int, stop: int | None, delimiter: str, source: SourceSettings, limit: int
) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every record that begins in ``[start, stop)``, without headers and blank lines.

    A row with the names of the columns is a header, wherever it is: files may have been joined.
    """
    header = source.csv.header
    text = narrow(file, source.csv.encoding)
    if header is None and start > 0:  # the header is in the first range of the file
        text.seek(0)
        header = _names(next(_rows(text, 0, None, delimiter, source, limit, None), None))
    names = [name.encode() for name in header or ()]
    for at, fields, raw in _rows(text, start, stop, delimiter, source, limit, len(names) or None):
        if header is None:
            header = _names((at, fields, raw))
            names = [name.encode() for name in header]
        elif fields != names:
            record = _record(fields, header, raw)
            if isinstance(record, BadRow) and record.unread and isinstance(text, WideText):
                record = replace(record, unread=text.packed(record.unread))
            yield at, record


def _rows(
    file: Readable,
    start: int,
    stop: int | None,
    delimiter: str,
    source: SourceSettings,
    limit: int,
    columns: int | None,
) -> Iterator[Row]:
    dialect = source.csv.model_copy(update={"delimiter": source.csv.delimiter or delimiter})
    return (
        quoted_rows(file, dialect, limit, columns) if dialect.quotes else _plain_rows(file, start, stop, dialect, limit)
    )


def _record(fields: list[bytes] | BadRow, header: list[str], raw: bytes) -> Record | BadRow:
    if isinstance(fields, BadRow):
        return fields
    if len(fields) != len(header):
        return BadRow("wrong_field_count", f"{len(fields)} fields for {len(header)} columns", None, shorten(raw))
    return Record(dict(zip(header, fields, strict=True)), raw)


def _names(record: Row | None) -> list[str]:
    if record is None:
        return []
    _, fields, raw = record
    if isinstance(fields, BadRow):
        raise DamagedFileError(f"the header is longer than any accepted text; it begins with {shorten(raw[:80])!r}", 0)
    if b"\r" in b"".join(fields):
        raise DamagedFileError("the header holds a carriage return; end lines with a line feed", 0)
    names = [field.decode("utf-8", "replace") for field in fields]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DamagedFileError(f"the header has {repeated[0]!r} twice", 0)
    return names


def _plain_rows(file: Readable, start: int, stop: int | None, dialect: CsvSettings, limit: int) -> Iterator[Row]:
    mark = (dialect.delimiter or "").encode()
    for at, line, whole in to_utf8(text_lines(file, start, stop, limit), dialect.encoding):
        text = line.removesuffix(b"\r")
        yield at, text.split(mark) if whole else too_long_row(text), text[:RAW_LIMIT]


def too_long_row(raw: bytes) -> BadRow:
    """Return the bad row for a row that is longer than any accepted text."""
    return BadRow("row_too_long", "the row is longer than any accepted text", None, shorten(raw))


def quoted_rows(file: Readable, dialect: CsvSettings, limit: int, columns: int | None) -> Iterator[Row]:
    """Yield every row that is not blank.

    Yields:
        Offset, fields or a bad row, first bytes. A row that does not parse has the reason ``damaged_row``.
    """
    # The field limit is a setting of the whole process; it is only raised here, to the limit of a row.
    csv.field_size_limit(max(csv.field_size_limit(), limit))
    feed = _Feed(file, dialect, limit)
    mark, quote = (dialect.delimiter or "").encode(), dialect.quote.encode()
    escape = quote if dialect.escape is None else dialect.escape.encode()
    reader = feed.parser(feed)
    while (line := feed.begin()) is not None:
        at, data, whole = line
        fields: list[bytes] | BadRow
        if quote not in data and escape not in data:
            data = data.removesuffix(b"\r")
            fields = data.split(mark) if whole else too_long_row(data)
            raw = data[:RAW_LIMIT]
        else:
            try:
                texts = next(reader)
                if feed.parsed == 1 and b"\r" not in data and dialect.escape is None:
                    fields, raw = [text.encode("latin-1") for text in texts], data[:RAW_LIMIT]
                else:
                    fields, raw = feed.encoded(texts, columns), feed.raw
            except (csv.Error, _UnclearRowError) as error:
                raw = feed.raw
                advice = _ESCAPE_ADVICE if b'\\"' in raw and dialect.escape is None else _ADVICE
                if columns is None:
                    raise DamagedFileError(f"the header does not parse ({error}); {advice}", 0) from error
                problem = f"the row at byte {at} does not parse ({error}); {advice}"
                fields = BadRow(DAMAGED_ROW, problem, None, shorten(raw), unread=feed.skip(columns))
                reader = feed.parser(feed)
        if raw:
            yield at, fields, raw
            if columns is None and isinstance(fields, list):
                columns = len(fields)


class _Feed:
    """Line iterator for ``csv.reader`` that keeps the lines of the current row, and can go back to them.

    Attributes:
        parsed: lines of the current row that ``csv.reader`` has got.
    """

    def __init__(self, file: Readable, dialect: CsvSettings, limit: int) -> None:
        self._file = Counted(file)
        self._lines = to_utf8(lines(self._file, 0, None, limit), dialect.encoding)
        self._again: deque[Line] = deque()
        self._grammar, self._text, self._limit = _Grammar(dialect), _Text(dialect), limit
        self.parser = partial(csv.reader, delimiter=dialect.delimiter or "", quotechar=dialect.quote, strict=True)
        self._row: list[Line] = []
        self.parsed = self._size = 0

    def begin(self) -> Line | None:
        """Start a new row, and return its first line; None: the file ends."""
        line = self._again.popleft() if self._again else next(self._lines, None)
        if line is not None:
            if line[1].startswith(BOM):  # of the file, or of one that was joined to it
                line = (line[0], line[1].removeprefix(BOM), line[2])
            self._row, self.parsed = [line], 0
        return line

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        if self.parsed:
            if not self._grammar.stays_open(self._text.hidden(self._row[-1][1]), first=self.parsed == 1):
                raise _UnclearRowError(_STRAY)
            self._row.append(self._again.popleft() if self._again else next(self._lines))
        else:
            self._size = 0
        _, data, whole = self._row[self.parsed]
        self.parsed += 1
        self._size += len(data)
        if not whole or self._size > self._limit:  # it may end inside a quote
            raise _UnclearRowError("it is longer than any accepted text and has quotes")
        return self._text.hidden(data) + "\n"

    @property
    def raw(self) -> bytes:
        """First bytes of the row."""
        return b"\n".join(data[:RAW_LIMIT] for _, data, _ in self._row[:RAW_LIMIT])[:RAW_LIMIT]

    def encoded(self, fields: list[str], columns: int | None) -> list[bytes]:
        """Return the bytes of the fields that ``csv.reader`` made of the row."""
        if self.parsed > 1:
            if columns is not None and len(fields) != columns:
                raise _UnclearRowError(f"{len(fields)} fields for {columns} columns, over several lines")
            if not self._grammar.ends_row(self._text.hidden(self._row[-1][1]), first=False):
                raise _UnclearRowError(_STRAY)
        return [self._text.shown(field).encode("latin-1") for field in fields]

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
            text = self._text.hidden(data if row else data.removeprefix(BOM))
            row.append(text + "\n")
            if self._grammar.ends_row(text, first=len(row) == 1):
                return [len(fields) for fields in self.parser(row)] == [columns]
            if not self._grammar.stays_open(text, first=len(row) == 1):
                return False
        return False

    def _ahead(self) -> Iterator[Line]:
        """Yield the lines after the current one, without taking them."""
        yield from self._again
        for line in self._lines:
            self._again.append(line)
            yield line


class _Text:
    """Text of a line in which the characters that the parser must not see are hidden."""

    def __init__(self, dialect: CsvSettings) -> None:
        self._escape = dialect.escape or ""
        marks = re.escape(f"{dialect.delimiter}{dialect.quote}{self._escape}")
        self._escaped = re.compile(rf"{re.escape(self._escape)}(?:([{marks}])|\Z)")
        self._shown: dict[int, int | str] = {_HIDDEN + code: code for code in range(128)}
        self._shown[ord(_ESCAPED_END)] = self._escape

    def hidden(self, line: bytes) -> str:
        """Return a line without its carriage return at the end; other ones would end a row."""
        text = line.removesuffix(b"\r").decode("latin-1")
        if "\r" in text:
            text = text.replace("\r", chr(_HIDDEN + ord("\r")))
        if self._escape and self._escape in text:
            text = self._escaped.sub(lambda found: chr(_HIDDEN + ord(found[1] or "\n")), text)
        return text

    def shown(self, field: str) -> str:
        """Return a field as the file means it."""
        return field.replace(f"{_ESCAPED_END}\n", "\n").translate(self._shown)


class _Grammar:
    """Lines of rows whose quotes are where RFC 4180 allows them; a quote in a plain field is not."""

    def __init__(self, dialect: CsvSettings) -> None:
        mark, quote = re.escape(dialect.delimiter or ""), re.escape(dialect.quote)
        inside = f"(?:[^{quote}]++|{quote}{quote})*+"
        field = f"(?:{quote}{inside}{quote}|[^{quote}{mark}]*+)"
        rest = f"(?:{mark}{field})*+"
        opening = f"(?:{field}{mark})*+{quote}{inside}"
        self._opens = re.compile(opening)
        self._continues = re.compile(f"{inside}(?:{quote}{mark}{opening})?")
        self._row = re.compile(field + rest)
        self._closes = re.compile(f"{inside}{quote}{rest}")

    def stays_open(self, line: str, *, first: bool) -> bool:
        """Return whether a quoted field is open at the end of the line, which begins the row or is in such a field."""
        return (self._opens if first else self._continues).fullmatch(line) is not None

    def ends_row(self, line: str, *, first: bool) -> bool:
        """Return whether the row ends with the line, which begins the row or is in a quoted field."""
        return (self._row if first else self._closes).fullmatch(line) is not None


def _format(name: str, delimiter: str) -> SourceFormat:
    def records(file: Readable, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
        return delimited_records(file, *piece.byte_range, delimiter, request.source, request.limit)

    def names(file: Readable, source: SourceSettings) -> list[str]:
        return _names(next(_rows(narrow(file, source.csv.encoding), 0, None, delimiter, source, _HEADER, None), None))

    # With quotes, a reader that starts in the middle cannot know whether it starts inside a field.
    return SourceFormat(
        name,
        (f".{name}",),
        records,
        splittable=lambda source: not source.csv.quotes and corpus.is_line_encoding(source.csv.encoding),
        training_data=False,
        header=names,
    )


CSV, TSV = _format("csv", ","), _format("tsv", "\t")
