"""Lines of JSON, judged."""

import json
from collections.abc import Iterator
from typing import Any

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.lines import Readable, lines
from lsr_prod.corpus.rows import BadRow, Document, judge, shorten

__all__ = ["json_records", "json_rows"]

_BOM = b"\xef\xbb\xbf"


def json_rows(
    file: Readable, start: int, stop: int | None, source: SourceSettings, limit: int
) -> Iterator[tuple[int, Document | BadRow]]:
    """(offset, row) of every line that begins in ``[start, stop)``; blank lines are no rows.

    Args:
        file: the plain bytes.
        start: first byte of the range.
        stop: the one after the last; None reads to the end.
        source: names the fields.
        limit: longest line in bytes.
    """
    for at, line, record in json_records(file, start, stop, limit):
        row = record if isinstance(record, BadRow) else judge(record, source)
        yield at, row if isinstance(row, Document) else BadRow(row.reason, row.detail, row.doc_id, shorten(line))


def json_records(
    file: Readable, start: int, stop: int | None, limit: int
) -> Iterator[tuple[int, bytes, dict[str, Any] | BadRow]]:
    """(offset, line, object) of every line that begins in ``[start, stop)``; a line without an object is a bad row.

    Args:
        file: the plain bytes.
        start: first byte of the range.
        stop: the one after the last; None reads to the end.
        limit: longest line in bytes.
    """
    for at, line, whole in lines(file, start, stop, limit):
        text = line.removeprefix(_BOM) if at == 0 else line
        if text.strip():
            yield at, text, _parse(text, whole)


def _parse(line: bytes, whole: bool) -> dict[str, Any] | BadRow:
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
    return record
