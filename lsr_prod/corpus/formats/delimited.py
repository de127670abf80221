"""CSV and TSV.

Fields are split as bytes (through Latin-1, which maps every byte to one character and back): a field that is not UTF-8
makes a bad row, not a damaged file.
"""

from collections.abc import Iterator
from dataclasses import replace

from lsr_prod.config import CsvSettings, SourceSettings
from lsr_prod.config.corpus import is_line_encoding
from lsr_prod.corpus.compression import Readable
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.formats.quoted import Row, quoted_rows, too_long_row
from lsr_prod.corpus.lines import WideText, narrow, text_lines, to_utf8
from lsr_prod.corpus.pinned_file import DamagedFileError, Slice
from lsr_prod.corpus.rows import RAW_LIMIT, BadRow, shorten

_HEADER = 1 << 20  # bytes of the longest header


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


def _format(name: str, delimiter: str) -> SourceFormat:
    def records(file: Readable, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
        return delimited_records(file, *piece.byte_range, delimiter, request.source, request.limit)

    def names(file: Readable, source: SourceSettings) -> list[str]:
        text = narrow(file, source.csv.encoding)
        return _names(next(_rows(text, 0, None, delimiter, source, _HEADER, None), None))

    # With quotes, a reader that starts in the middle cannot know whether it starts inside a field.
    return SourceFormat(
        name,
        (f".{name}",),
        records,
        splittable=lambda source: not source.csv.quotes and is_line_encoding(source.csv.encoding),
        training_data=False,
        header=names,
    )


CSV, TSV = _format("csv", ","), _format("tsv", "\t")
