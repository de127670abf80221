"""JSON Lines: one object per line."""

from collections.abc import Iterator, Sequence
from typing import Any

from lsr_prod.config import SourceSettings
from lsr_prod.corpus import compression, folders, lines, pinned_file
from lsr_prod.corpus.formats.interface import Decoded, FolderFormat, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.source_rows import BadRow, parse_object, shorten
from lsr_prod.storage import Entry, Store

JSON_REMEDY = "JSON has to be in UTF-8: convert it, for example with iconv -f {}"
_FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst")


Paths = Sequence[tuple[str, Sequence[str]]]
"""Columns that may be values inside objects, and their keys."""


def line_records(
    file: compression.Readable, start: int, stop: int | None, limit: int, columns: frozenset[str] = frozenset()
) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every line that begins in ``[start, stop)``; blank lines are skipped."""
    paths = nested_paths(columns)
    for at, line, whole in lines.text_lines(file, start, stop, limit):
        if at == 0:
            lines.require_narrow(line, JSON_REMEDY)
        yield at, parse_record(line, whole, paths)


def nested_paths(columns: frozenset[str]) -> Paths:
    """Return the columns with a dot in their name: each may be a value inside objects, as in ``meta.title``."""
    return [(column, column.split(".")) for column in sorted(columns) if "." in column]


def parse_record(text: bytes, whole: bool, paths: Paths) -> Record | BadRow:
    """Return the record of an object, with the values at ``paths`` unless it has a key with that very name."""
    if not whole:
        return BadRow("row_too_long", "the object is longer than any accepted text", None, shorten(text))
    record = parse_object(text)
    if isinstance(record, BadRow):
        return record
    for column, keys in paths:
        value: Any = record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            record.setdefault(column, value)
    return Record(record, text)


def _records(file: compression.Readable, piece: pinned_file.Slice, request: ReadRequest) -> Iterator[Decoded]:
    return line_records(file, *piece.byte_range, request.limit, request.columns)


JSON_LINES = SourceFormat("jsonl", (".jsonl", ".ndjson"), _records, splittable=lambda _: True)


def _corpus(path: str, options: dict[str, str]) -> tuple[Entry, str] | None:
    store = Store(path, options)
    found = ((store.entry(f"corpus.{file_format}"), file_format) for file_format in _FORMATS)
    return next(((entry, file_format) for entry, file_format in found if entry is not None), None)


def _files(path: str, _settings: SourceSettings, options: dict[str, str]) -> Iterator[pinned_file.SourceFile]:
    found = _corpus(path, options)
    if found is None:
        raise folders.source_error(f"{path} has no corpus.jsonl", "give a BEIR folder")
    yield from pinned_file.pin_files(iter([(path, *found)]))


BEIR = FolderFormat("beir", lambda path, options: _corpus(path, options) is not None, _files)
