"""JSON Lines: one object per line."""

import json
from collections.abc import Iterator
from typing import Any

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.compression import Readable, lines
from lsr_prod.corpus.formats.interface import Decoded, FolderFormat, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.pinned_file import SourceFile, pin_files
from lsr_prod.corpus.rows import BadRow, shorten
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store

_BOM = b"\xef\xbb\xbf"


def json_records(file: Readable, start: int, stop: int | None, limit: int) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every line that begins in ``[start, stop)``; blank lines are skipped."""
    for at, line, whole in lines(file, start, stop, limit):
        text = line.removeprefix(_BOM) if at == 0 else line
        if text.strip():
            yield at, _parse(text, whole)


def _parse(line: bytes, whole: bool) -> Record | BadRow:
    if not whole:
        return BadRow("row_too_long", "the line is longer than any accepted text", None, shorten(line))
    try:
        record: Any = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return BadRow("invalid_utf8", f"{error.reason} at byte {error.start} of the line", None, shorten(line))
    except (ValueError, RecursionError) as error:
        return BadRow("broken_json", str(error), None, shorten(line))
    if not isinstance(record, dict):
        return BadRow("not_an_object", f"the line holds a {type(record).__name__}", None, shorten(line))
    return Record(record, line)


def _records(file: Readable, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
    return json_records(file, *piece.byte_range, request.limit)


JSON_LINES = SourceFormat("jsonl", (".jsonl", ".ndjson"), _records, splittable=lambda _: True)


_FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst")


def _corpus(path: str, options: dict[str, str]) -> tuple[Entry, str] | None:
    store = Store(path, options)
    found = ((store.entry(f"corpus.{file_format}"), file_format) for file_format in _FORMATS)
    return next(((entry, file_format) for entry, file_format in found if entry is not None), None)


def _is_beir(path: str, options: dict[str, str]) -> bool:
    return _corpus(path, options) is not None


def _files(path: str, _settings: SourceSettings, options: dict[str, str]) -> Iterator[SourceFile]:
    found = _corpus(path, options)
    if found is None:
        raise ConfigError("source.paths", f"{path} has no corpus.jsonl", "give a BEIR folder")
    yield from pin_files(iter([(path, *found)]))


BEIR = FolderFormat("beir", _is_beir, _files)
