"""JSON Lines: one object per line."""

from collections.abc import Iterator

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.compression import Readable, text_lines
from lsr_prod.corpus.formats.interface import Decoded, FolderFormat, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.pinned_file import SourceFile, pin_files
from lsr_prod.corpus.rows import BadRow, parse_object, shorten
from lsr_prod.corpus.slices import Slice
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry, Store

_FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst")


def json_records(file: Readable, start: int, stop: int | None, limit: int) -> Iterator[tuple[int, Record | BadRow]]:
    """Yield (offset, record) of every line that begins in ``[start, stop)``; blank lines are skipped."""
    for at, line, whole in text_lines(file, start, stop, limit):
        yield at, _parse(line, whole)


def _parse(line: bytes, whole: bool) -> Record | BadRow:
    if not whole:
        return BadRow("row_too_long", "the line is longer than any accepted text", None, shorten(line))
    record = parse_object(line)
    return record if isinstance(record, BadRow) else Record(record, line)


def _records(file: Readable, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
    return json_records(file, *piece.byte_range, request.limit)


JSON_LINES = SourceFormat("jsonl", (".jsonl", ".ndjson"), _records, splittable=lambda _: True)


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
