"""Read and validate the query and the positive of every row of a slice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.config import MineSettings, SourceSettings
from lsr_prod.corpus.cut import cut_files
from lsr_prod.corpus.formats.interface import ReadRequest
from lsr_prod.corpus.listing import resolve_source
from lsr_prod.corpus.read import read_records
from lsr_prod.corpus.rows import BadRow, as_string, is_visible, shorten, show
from lsr_prod.corpus.slices import Slice
from lsr_prod.training.data.rows import field_errors, row_limit, source_of
from lsr_prod.training.data.schemas import check_formats


@dataclass(frozen=True, slots=True)
class Pair:
    """Validated row."""

    query: str  # text of the query; has at least one visible character
    positive: str | None  # text of the positive; None: the text is in the index
    positive_id: str | None = None  # id of the positive in the index, if the data has it
    query_id: str | None = None  # id of the query, if the data has it


def cut_pairs(settings: MineSettings, options: dict[str, str]) -> list[Slice]:
    """Pin the files of the data and cut them into slices."""
    source = _source(settings)
    with field_errors("mine.data"):
        files = list(resolve_source(source, options, documents=False))
        check_formats(files)
        return list(cut_files(enumerate(files), source, settings.slice_kilobytes * 1000, options))


def _source(settings: MineSettings) -> SourceSettings:
    """Return the source settings for listing and cutting; a row needs a query, and a positive as text or id."""
    data = settings.data
    positive = [data.column("positive"), *([settings.positive_id] if settings.positive_id else [])]
    return source_of(data, data.column("query"), positive)


def read_pairs(piece: Slice, settings: MineSettings, options: dict[str, str]) -> Iterator[tuple[int, Pair | BadRow]]:
    """Yield (position, row) of every row of a slice: byte of a text format, row number of other formats."""
    ids = frozenset(name for name in (settings.positive_id, settings.query_id) if name)
    request = ReadRequest(
        source=_source(settings),
        columns=frozenset({settings.data.column("query"), settings.data.column("positive"), *ids}),
        limit=row_limit(settings.data),
        ids=ids,
    )
    for position, record in read_records(piece, request, options):
        assert record is not None  # no position is skipped
        if isinstance(record, BadRow):
            yield position, record
        else:
            yield position, _validate(record.values, settings, record.line)


def _validate(record: Mapping[str, Any], settings: MineSettings, line: bytes | None) -> Pair | BadRow:
    """Validate one record; ``line`` is the raw line of a text format."""
    data = settings.data
    columns = (data.column("query"), data.column("positive"), settings.positive_id, settings.query_id)
    texts: list[str | None] = []
    problem: tuple[str, str] | None = None
    for column in columns:
        text, wrong = as_string(column, record.get(column)) if column else (None, None)
        texts.append(text)
        problem = problem or wrong
    query, positive, positive_id, query_id = texts
    pair = Pair(query or "", positive if is_visible(positive or "") else None, positive_id or None, query_id or None)
    problem = problem or _problem_of(pair, settings)
    if problem is None:
        return pair
    raw = show({column: record.get(column) for column in columns if column}) if line is None else shorten(line)
    return BadRow(*problem, pair.positive_id, raw)


def _problem_of(pair: Pair, settings: MineSettings) -> tuple[str, str] | None:
    data = settings.data
    if not is_visible(pair.query):
        return "empty_query", f"field {data.column('query')} holds no visible character"
    if pair.positive is None and pair.positive_id is None:
        fields = " and ".join([data.column("positive"), *([settings.positive_id] if settings.positive_id else [])])
        return "missing_positive", f"{fields}: absent, or no visible character"
    for field, text in (("query", pair.query), ("positive", pair.positive or "")):
        if (size := len(text.encode())) > data.max_text_bytes:
            return "text_too_long", f"{data.column(field)} has {size} bytes, max_text_bytes is {data.max_text_bytes}"
    if settings.teacher is not None and settings.teacher.key == "query_id" and pair.query_id is None:
        return "missing_query_id", f"field {settings.query_id} is absent or empty"
    return None
