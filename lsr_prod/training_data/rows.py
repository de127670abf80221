"""Validation of one record of training data: the result is a row to train on, or a bad row with its reason.

Reasons, in addition to those of reading (``broken_json``, ``not_an_object``, ``row_too_long``):
``missing_field``, ``wrong_type``, ``invalid_utf8``, ``empty_query``, ``empty_text``, ``text_too_long``,
``no_negative``, ``positive_equals_negative``, ``wrong_score_count`` and ``nan_score``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsr_prod.config.training_data import TrainingDataSettings
from lsr_prod.corpus.rows import BadRow, TypedValue, as_string, is_visible, shorten, show

LISTS = frozenset({"negatives", "documents", "scores"})
"""Fields whose value is a list."""

_OPTIONAL = frozenset({"negative", "negatives"})  # may be null

_NEEDS_NEGATIVE = "the row has no negative; margin_mse, kl and info_nce without in_batch need one or more"
_LARGEST_SCORE = float(np.finfo(np.float32).max)


class _BadRecordError(Exception):
    """Ends the validation of one record; reason, detail and, where the reason alone does not name it, the column."""

    def __init__(self, reason: str, detail: str, column: str = "") -> None:
        super().__init__(reason, detail, column)


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A row to train on.

    Attributes:
        query: text; None in a row of kind ``texts``.
        documents: texts, the positive first; the one text of kind ``texts``.
        scores: of a teacher, one per document; None for other kinds than ``scores``.
    """

    query: str | None
    documents: tuple[str, ...]
    scores: tuple[float, ...] | None = None


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
