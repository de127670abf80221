"""Validation of one record of training data: the result is a row to train on, or a bad row with its reason.

Reasons, in addition to those of reading (``broken_json``, ``not_an_object``, ``row_too_long``):
``missing_field``, ``wrong_type``, ``invalid_utf8``, ``empty_query``, ``empty_text``, ``text_too_long``,
``no_negative``, ``positive_equals_negative``, ``wrong_score_count`` and ``nan_score``.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, takewhile, zip_longest
from typing import Any

import numpy as np

from lsr_prod import errors, logs
from lsr_prod.config import SourceSettings
from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus import filelist, listing
from lsr_prod.corpus.formats.interface import Decoded, ReadRequest
from lsr_prod.corpus.pinned_file import Slice, SourceFile
from lsr_prod.corpus.read import read_records
from lsr_prod.corpus.source_rows import BadRow, TypedValue, as_string, is_visible, shorten, show
from lsr_prod.encoding.tables.quarantine_rows import BadRowWriter

log = logs.get_log(__name__)
LISTS = frozenset({"negatives", "documents", "scores"})
"""Fields whose value is a list."""
_OPTIONAL = frozenset({"negative", "negatives"})  # may be null
_NEEDS_NEGATIVE = "the row has no negative; margin_mse, kl and info_nce without in_batch need one or more"
_LARGEST_SCORE = float(np.finfo(np.float32).max)
_JSON_BYTES = 1 << 20
_SLICE_BYTES = 16_000_000  # of one task
_SAMPLED_SLICES = 64  # number of places that a sample is taken from


class _BadRecordError(Exception):
    """Ends the validation of one record; reason, detail and, where the reason alone does not name it, the column."""

    def __init__(self, reason: str, detail: str, column: str = "") -> None:
        super().__init__(reason, detail, column)


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A row to train on."""

    query: str | None  # text; None in a row of kind ``texts``
    documents: tuple[str, ...]  # texts, the positive first; the one text of kind ``texts``
    scores: tuple[float, ...] | None = None  # of a teacher, one per document; None for other kinds than ``scores``


def validate(
    record: Mapping[str, Any], data: TrainingDataSettings, *, needs_negative: bool, line: bytes | None = None
) -> TrainingRow | BadRow:
    """Validate one record against the settings."""
    try:
        row = _read(record, data)
        _check(row, data, needs_negative)
    except _BadRecordError as bad:
        reason, detail, column = bad.args
        raw = show({data.column(field): record.get(data.column(field)) for field in data.fields})
        return BadRow(reason, detail, None, raw if line is None else shorten(line), column.partition("[")[0])
    return row


def _read(record: Mapping[str, Any], data: TrainingDataSettings) -> TrainingRow:
    values: dict[str, Any] = {}
    for field in data.fields:
        column = data.column(field)
        if (value := record.get(column)) is None:
            if field in _OPTIONAL and column in record:
                continue
            raise _BadRecordError("missing_field", f"field {column} is absent or null", column)
        if field in LISTS:
            values[field] = _list(column, value, _score if field == "scores" else _text)
        else:
            values[field] = _text(column, value)
    if data.kind == "texts":
        return TrainingRow(None, (values["text"],))
    if data.kind == "scores":
        return TrainingRow(values["query"], values["documents"], values["scores"])
    negatives = values.get("negatives", (values["negative"],) if "negative" in values else ())  # null: the row has none
    return TrainingRow(values["query"], (values["positive"], *negatives))


def _list(column: str, value: object, read: Callable[[str, object], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _BadRecordError("wrong_type", f"field {column} is {_type_of(value)}, not a list", column)
    return tuple(read(f"{column}[{place}]", item) for place, item in enumerate(value))


def _text(name: str, value: object) -> str:
    if value is None:
        raise _BadRecordError("missing_field", f"{name} is null", name)
    text, problem = as_string(name, value)
    if problem is not None:
        raise _BadRecordError(*problem, name)
    assert text is not None
    return text


def _score(name: str, value: object) -> float:
    if value is None:
        raise _BadRecordError("nan_score", f"{name} is null")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadRecordError("wrong_type", f"{name} is {_type_of(value)}, not a number", name)
    if not abs(value) <= _LARGEST_SCORE:  # NaN compares as false; an integer may be too large for a float
        raise _BadRecordError("nan_score", f"{name} is not a finite number of 32 bits")
    return float(value)


def _check(row: TrainingRow, data: TrainingDataSettings, needs_negative: bool) -> None:
    if row.query is not None and not is_visible(row.query):
        raise _BadRecordError("empty_query", f"field {data.column('query')} holds no visible character")
    if not row.documents:
        column = data.column("documents")
        raise _BadRecordError("missing_field", f"field {column} is an empty list, without a positive", column)
    if empty := [place for place, text in enumerate(row.documents) if not is_visible(text)]:
        raise _BadRecordError("empty_text", f"text {empty[0]} of the row holds no visible character; 0 is the positive")
    longest = max(len(text.encode()) for text in (row.query or "", *row.documents))
    if longest > data.max_text_bytes:
        raise _BadRecordError("text_too_long", f"{longest} bytes, data.max_text_bytes is {data.max_text_bytes}")
    if row.scores is not None and len(row.scores) != len(row.documents):
        raise _BadRecordError("wrong_score_count", f"{len(row.scores)} scores for {len(row.documents)} documents")
    if needs_negative and len(row.documents) < 2:
        raise _BadRecordError("no_negative", _NEEDS_NEGATIVE)
    positive = row.documents[0].split()  # tokenizers ignore differences in white space
    if any(text.split() == positive for text in row.documents[1:]):
        raise _BadRecordError("positive_equals_negative", "the positive is among the negatives")


def _type_of(value: object) -> str:
    return value.kind if isinstance(value, TypedValue) else type(value).__name__


@contextmanager
def field_errors(section: str) -> Iterator[None]:
    """Name the settings of a section in errors about the source settings that stand for them."""
    try:
        yield
    except errors.ConfigError as error:
        name = error.field.removeprefix("source.").removeprefix("data.")
        name = "columns" if name in ("id_field", "text_fields") else name
        raise errors.ConfigError(f"{section}.{name}", error.problem, error.remedy) from error


def pin_files(data: TrainingDataSettings, options: dict[str, str]) -> list[SourceFile]:
    """List the pinned files of training data in order; local files are read, about a second per GiB."""
    with field_errors("data"):
        return list(listing.resolve_source(_source(data), options, documents=False))


def cut_data(
    files: list[SourceFile], data: TrainingDataSettings, limit: int, options: dict[str, str]
) -> Iterator[Slice]:
    """Yield slices of about ``limit`` bytes of all files, in order."""
    return filelist.cut_files(enumerate(files), _source(data), limit, options)


def read_rows(
    piece: Slice, data: TrainingDataSettings, options: dict[str, str], *, needs_negative: bool
) -> Generator[tuple[int, TrainingRow | BadRow], None, None]:
    """Yield (position, row) of every row of a slice; a position is a byte of a text format, or a row number."""
    for position, record in read_data(piece, data, options):
        assert record is not None  # all are wanted
        if isinstance(record, BadRow):
            yield position, record
        else:
            yield position, validate(record.values, data, needs_negative=needs_negative, line=record.line)


def read_data(piece: Slice, data: TrainingDataSettings, options: dict[str, str]) -> Iterator[Decoded]:
    """Yield (position, record) of every row of a slice, not validated."""
    request = ReadRequest(
        source=_source(data),
        columns=frozenset(data.column(field) for field in data.fields),
        limit=row_limit(data),
        lists=True,
    )
    return read_records(piece, request, options)


def source_of(data: TrainingDataSettings, id_field: str, text_fields: list[str]) -> SourceSettings:
    """Return the settings by which the corpus lists, cuts and reads files of training data."""
    return SourceSettings(
        paths=data.paths,
        format=data.format,
        version=data.version,
        id_field=id_field,
        text_fields=text_fields,
        stored_fields=[],
    )


def row_limit(data: TrainingDataSettings) -> int:
    """Return the bytes of the longest row: it has many texts, and escapes lengthen each."""
    return 64 * data.max_text_bytes + _JSON_BYTES


def _source(data: TrainingDataSettings) -> SourceSettings:
    columns = [data.column(field) for field in data.fields]
    return source_of(data, columns[0], columns)


def cut_slices(data: TrainingDataSettings, options: dict[str, str], *, size: int = _SLICE_BYTES) -> list[Slice]:
    """Cut the pinned files of training data into slices of about ``size`` bytes; 0 chooses a size for a sample."""
    files = pin_files(data, options)
    if not size:
        size = max(1 << 16, sum(file.size for file in files) // _SAMPLED_SLICES)
    return list(cut_data(files, data, size, options))


def read_good_rows(data: TrainingDataSettings, options: dict[str, str]) -> Iterator[TrainingRow]:
    """Yield every good row in order."""
    good = bad = 0
    for piece in cut_slices(data, options):
        for _, row in read_rows(piece, data, options, needs_negative=False):
            if isinstance(row, BadRow):
                bad += 1
                continue
            good += 1
            yield row
    report_bad_rows(good, bad, data)


def sample_rows(data: TrainingDataSettings, options: dict[str, str], count: int) -> list[TrainingRow]:
    """Return good rows from places spread evenly over the data; deterministic."""
    pieces, bad = cut_slices(data, options, size=0), 0
    found: list[TrainingRow] = []
    step = max(1, -(-len(pieces) // _SAMPLED_SLICES))
    for first in takewhile(lambda _: len(found) < count, range(step)):
        with ExitStack() as stack:
            readers = [read_rows(piece, data, options, needs_negative=False) for piece in pieces[first::step]]
            for reader in readers:
                stack.callback(reader.close)
            for _, row in filter(None, chain.from_iterable(zip_longest(*readers))):  # a row of each in turn
                if len(found) == count:
                    break
                if isinstance(row, BadRow):
                    bad += 1
                else:
                    found.append(row)
    report_bad_rows(len(found), bad, data)
    if not found:
        raise errors.ConfigError("data.paths", f"{', '.join(data.paths)} has no good row", "give data that has rows")
    return found


def report_bad_rows(good: int, bad: int, data: TrainingDataSettings) -> None:
    """Raise if data has too many bad rows; the quarantine of a training set would name them."""
    check_bad_rows(good + bad, {"": bad}, data)
    if bad:
        log.warning("bad rows skipped", extra={"fields": {"bad": bad, "good": good}})


def quarantine(writer: BadRowWriter, piece: Slice, position: int, row: BadRow) -> None:
    """Add a bad row of a slice to the quarantine."""
    writer.add(row, ordinal=piece.ordinal, key=piece.file.key, source=piece.file.location, position=position)


def check_bad_rows(
    rows: int, bad: Mapping[str, int], data: TrainingDataSettings, *, field: str = "data", folder: str | None = None
) -> None:
    """Raise if too many of ``rows`` rows are bad, counted by reason; one reason may be empty.

    ``field`` is the path of the settings with the limit, ``folder`` the quarantine that has the bad rows.
    """
    if (number := sum(bad.values())) > data.max_bad_fraction * rows:
        reasons = ", ".join(f"{reason} {count}" for reason, count in bad.items() if reason)
        raise errors.QuarantineOverflowError(
            f"{number} of {rows} rows are bad{f' ({reasons})' if reasons else ''}, {field}.max_bad_fraction is "
            f"{data.max_bad_fraction:g}; {f'look at {folder}, ' if folder else ''}fix the data or {field}.columns, or "
            "raise the limit"
        )
