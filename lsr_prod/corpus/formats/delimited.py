"""CSV and TSV.

Fields are split as bytes (through Latin-1, which maps every byte to one character and back): a field that is not UTF-8
makes a bad row, not a damaged file.
"""

from collections.abc import Iterator

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.compression import Readable, text_lines
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.formats.quoted import Row, quoted_rows, too_long_row
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.rows import RAW_LIMIT, BadRow, shorten
from lsr_prod.corpus.slices import Slice

_HEADER = 1 << 20  # bytes of the longest header


def delimited_records(
    file: Readable, start: int, stop: int | None, delimiter: str, source: SourceSettings, limit: int
) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every record that begins in ``[start, stop)``, without header and blank lines."""
    delimiter, header = source.csv.delimiter or delimiter, source.csv.header
    if header is None and start > 0:  # the header is in the first range of the file
        file.seek(0)
        header = _names(next(_plain_records(file, 0, None, delimiter, limit), None))
    records = (
        quoted_rows(file, delimiter, limit, len(header) if header else None)
        if source.csv.quotes
        else _plain_records(file, start, stop, delimiter, limit)
    )
    for at, fields, raw in records:
        if header is None:
            header = _names((at, fields, raw))
        else:
            yield at, _record(fields, header, raw)


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


def _plain_records(file: Readable, start: int, stop: int | None, delimiter: str, limit: int) -> Iterator[Row]:
    for at, line, whole in text_lines(file, start, stop, limit):
        text = line.removesuffix(b"\r")
        yield at, text.split(delimiter.encode()) if whole else too_long_row(text), text[:RAW_LIMIT]


def _format(name: str, delimiter: str) -> SourceFormat:
    def records(file: Readable, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
        return delimited_records(file, *piece.byte_range, delimiter, request.source, request.limit)

    def names(file: Readable, source: SourceSettings) -> list[str]:
        between = source.csv.delimiter or delimiter
        quoted = source.csv.quotes
        rows = quoted_rows(file, between, _HEADER, None) if quoted else _plain_records(file, 0, None, between, _HEADER)
        return _names(next(rows, None))

    # With quotes, a reader that starts in the middle cannot know whether it starts inside a field.
    return SourceFormat(
        name,
        (f".{name}",),
        records,
        splittable=lambda source: not source.csv.quotes,
        training_data=False,
        header=names,
    )


CSV, TSV = _format("csv", ","), _format("tsv", "\t")
