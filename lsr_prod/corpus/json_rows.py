"""Lines of JSON, judged."""

import json
from collections.abc import Iterator

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.lines import Readable, lines
from lsr_prod.corpus.rows import BadRow, Document, judge, shorten

__all__ = ["json_rows"]

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
    for at, line, whole in lines(file, start, stop, limit):
        record = line.removeprefix(_BOM) if at == 0 else line
        if record.strip():
            yield at, _judge(record, whole, source)


def _judge(line: bytes, whole: bool, source: SourceSettings) -> Document | BadRow:
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
    row = judge(record, source)
    return row if isinstance(row, Document) else BadRow(row.reason, row.detail, row.doc_id, shorten(line))
